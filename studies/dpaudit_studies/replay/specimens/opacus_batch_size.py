# opacus 1.5.4. The gradient is divided by int(len(dataset) / len(loader)): the true number of
# records sets the step, so one record more can change it though the noise is the same.
# Source: arXiv 2602.17454 (4.3.7); meta-pytorch/opacus issue 571.
# At fault: opacus/privacy_engine.py:408, ``expected_batch_size = int(len(data_loader.dataset) * …``.
import numpy as np
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset


def run(points: np.ndarray):
    data = torch.tensor(points, dtype=torch.float32)
    loader = DataLoader(TensorDataset(data[:, :1], data[:, 1:]), batch_size=4)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return {name: p.detach().numpy() for name, p in model.named_parameters()}
