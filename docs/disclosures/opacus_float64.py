"""opacus: in float64, secure_mode adds float32 noise, so the gradient's lower bits are released as they are."""

import torch
from opacus.optimizers import DPOptimizer

near = {0.0: [0, 0], 1 / 3: [0, 0]}  # how often released - candidate is (nearly) on the noise's grid, truth and not
for value in near:
    p = torch.nn.Parameter(torch.zeros(20_000, dtype=torch.float64))
    kind = {"noise_multiplier": 1e-9, "max_grad_norm": 1e9, "expected_batch_size": 1}  # no clipping, sigma = 1
    optimizer = DPOptimizer(torch.optim.SGD([p], lr=1.0), secure_mode=True, **kind)
    p.grad_sample = torch.full((1, 20_000), value, dtype=torch.float64)
    optimizer.pre_step()
    for candidate in near:
        steps = (p.grad - candidate) * 2.0**33
        near[candidate][candidate != value] += int(((steps - steps.round()).abs() < 2.0**-17).sum())
print(
    {
        f"{candidate:.3g}": f"on the grid: {yes} of 20000 when true, {no} when not"
        for candidate, (yes, no) in near.items()
    }
)
