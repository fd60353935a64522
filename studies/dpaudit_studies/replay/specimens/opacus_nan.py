# opacus 1.5.4. A gradient that is not a number has no norm to be clipped to, so the sum and the
# whole model become none either: one record shows for certain.
# Source: arXiv 2602.17454 (4.3.9).
# At fault: opacus/optimizers/optimizer.py, ``clip_and_accumulate``: NaN passes ``clamp(max=1)``.
import numpy as np
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

PEOPLE = 8


def run(points: np.ndarray):
    data = torch.tensor(points, dtype=torch.float32)
    loader = DataLoader(TensorDataset(data[:, :1], data[:, 1:]), batch_size=PEOPLE)
    model = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0,
        max_grad_norm=1.0, poisson_sampling=False,
    )
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return {name: p.detach().numpy() for name, p in model.named_parameters()}
