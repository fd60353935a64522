"""opacus: noisy gradients of 0 that DPOptimizer(secure_mode=True) cannot make from 1, sigma 1."""

import torch
from opacus.optimizers import DPOptimizer

for value in (0.0, 1.0):
    p = torch.nn.Parameter(torch.zeros(20_000))
    # no clipping, sigma = 1
    kind = {"noise_multiplier": 1e-9, "max_grad_norm": 1e9, "expected_batch_size": 1}
    optimizer = DPOptimizer(torch.optim.SGD([p], lr=1.0), secure_mode=True, **kind)
    p.grad_sample = torch.full((1, 20_000), value)
    optimizer.pre_step()
    n = p.grad - 1  # is there a float n with 1 + n == p.grad?
    near = [n, torch.nextafter(n, n - 1), torch.nextafter(n, n + 1)]
    reachable = torch.stack([1 + m == p.grad for m in near]).any(0)
    print(
        f"gradient {value}: {int((~reachable).sum())} of 20000 noisy coordinates "
        "are impossible for 1.0"
    )
