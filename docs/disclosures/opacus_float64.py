"""opacus: in float64, secure_mode adds float32 noise: the gradient's lower bits are released."""

import torch
from opacus.optimizers import DPOptimizer

for value in (0.0, 1 / 3):
    p = torch.nn.Parameter(torch.zeros(20_000, dtype=torch.float64))
    # no clipping, sigma = 1
    kind = {"noise_multiplier": 1e-9, "max_grad_norm": 1e9, "expected_batch_size": 1}
    optimizer = DPOptimizer(torch.optim.SGD([p], lr=1.0), secure_mode=True, **kind)
    p.grad_sample = torch.full((1, 20_000), value, dtype=torch.float64)
    optimizer.pre_step()
    for other in (0.0, 1 / 3):
        steps = (p.grad - other) * 2.0**33  # the noise lies on multiples of 2**-33, nearly always
        on_grid = int(((steps - steps.round()).abs() < 2.0**-17).sum())
        print(
            f"gradient {value:.3g}: {on_grid} of 20000 noisy coordinates "
            f"less {other:.3g} are on the grid"
        )
