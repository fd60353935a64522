# opacus 1.5.4. A gradient that is not a number has no norm to be clipped to, so the sum and the
# whole model become none either: one record shows for certain.
# Source: arXiv 2602.17454 (4.3.9).
# At fault: opacus/optimizers/optimizer.py, ``clip_and_accumulate``: NaN passes ``clamp(max=1)``.
import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer

BATCH = 8


def run(points: np.ndarray):
    data = torch.tensor(points, dtype=torch.float32)
    model = GradSampleModule(torch.nn.Linear(1, 1))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), noise_multiplier=1.0, max_grad_norm=1.0,
        expected_batch_size=BATCH,
    )  # fmt: skip
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data[:, :1]), data[:, 1:], reduction="none")
        loss.mean().backward()
        optimizer.step()
    return {name: p.detach().numpy() for name, p in model.named_parameters()}
