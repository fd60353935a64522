"""Opacus 1.6.0: one epoch of DP-SGD with Poisson sampling; (1.5, 1e-5)-DP, one record changed."""

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset


def run(data):
    """A logistic regression; the trained weights are released."""
    rows = [[float(p["age"]) / 100, float(p["income"]) / 100] for p in data]
    labels = [float(p["city"] == "Wien") for p in data]
    x, y = torch.tensor(rows).reshape(-1, 2), torch.tensor(labels)
    model = torch.nn.Linear(2, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = DataLoader(TensorDataset(x, y), batch_size=10)
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=3.0,
        max_grad_norm=1.0,
    )  # fmt: skip
    for features, target in loader:
        optimizer.zero_grad()
        output = model(features).squeeze(1)
        torch.nn.functional.binary_cross_entropy_with_logits(output, target).backward()
        optimizer.step()
    return {name: value.detach() for name, value in model.state_dict().items()}
