"""opacus on a CPU: a clipped gradient of many float32 numbers is longer than the clipping norm."""

import torch
from opacus.optimizers import DPOptimizer

for size in (10**6, 10**7, 10**8):
    normal = torch.randn(1, size, generator=torch.Generator().manual_seed(1))
    worst = torch.full((1, size), 2.0**-12)  # its square is half of the last bit of 1
    worst[0, :16] = 1
    for name, gradient in (("Gaussian", normal), ("worst", worst)):
        p = torch.nn.Parameter(torch.zeros(size))
        kind = {"noise_multiplier": 0.0, "max_grad_norm": 1.0, "expected_batch_size": 1}
        optimizer = DPOptimizer(torch.optim.SGD([p], lr=1.0), **kind)
        p.grad_sample = gradient
        optimizer.clip_and_accumulate()
        norm = float(torch.linalg.vector_norm(p.summed_grad, dtype=torch.float64))
        print(f"{size} numbers, {name}: clipped to 1, its norm is {norm:.6f}")
