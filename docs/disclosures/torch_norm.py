"""torch on a CPU: the float32 norm of many numbers is too small, the float64 one is right."""

import sys

import torch

for size in map(int, map(float, sys.argv[1:] or ("1e6", "1e7", "1e8"))):
    x = torch.randn(size, generator=torch.Generator().manual_seed(1))
    exact = sum(float(part.double().square().sum()) for part in x.split(10**6)) ** 0.5
    for threads in (1, 2):
        torch.set_num_threads(threads)
        norms = (torch.linalg.vector_norm(x, dtype=k) for k in (torch.float32, torch.float64))
        low, high = (float(norm) / exact - 1 for norm in norms)
        print(f"{size} numbers, {threads} threads: float32 {low:+.2e}, float64 {high:+.2e}")
