"""An ordinary Opacus training, after its own MNIST example.

A client shares each step's noisy gradient with a server. Needs torch, Opacus and, for secure_mode,
torchcsprng.
Run: python train.py OUT.npz [--steps 400] [--data mnist.npz]
"""

import argparse
import math

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, NOISE_MULTIPLIER, MAX_GRAD_NORM, LEARNING_RATE, DELTA = 64, 1.0, 1.0, 0.1, 1e-5


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def load_records(path: str | None, *, split: str = "train") -> TensorDataset:
    """Images, labels and record numbers: MNIST (npz), or 5,120 noisy drawings of ten shapes."""
    if path:
        with np.load(path, allow_pickle=False) as file:
            pixels, labels = file[f"x_{split}"], file[f"y_{split}"].astype(np.int64)
    else:
        rng = np.random.default_rng(0)
        shapes = 80 * np.kron(rng.integers(0, 2, (10, 7, 7)), np.ones((4, 4)))
        labels = rng.integers(0, 10, 5120)
        pixels = np.clip(shapes[labels] + 70 * rng.standard_normal((5120, 28, 28)), 0, 255)
        part = slice(4096) if split == "train" else slice(4096, None)
        pixels, labels = pixels[part], labels[part]
    images = (torch.as_tensor(pixels / 255, dtype=torch.float32).unsqueeze(1) - 0.1307) / 0.3081
    return TensorDataset(images, torch.as_tensor(labels), torch.arange(len(labels)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--data")
    options = parser.parse_args()

    torch.manual_seed(0)
    loader = DataLoader(load_records(options.data), batch_size=BATCH)
    model, loss = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    weights = nn.utils.parameters_to_vector(model.parameters()).detach().clone()

    engine = PrivacyEngine(secure_mode=True)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=MAX_GRAD_NORM,
    )
    shared, batches = [], []
    for _ in range(math.ceil(options.steps / len(loader))):
        for images, labels, numbers in loader:
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()
            shared.append(
                nn.utils.parameters_to_vector([p.grad for p in model.parameters()]).clone()
            )
            batches.append(numbers)
            if len(shared) == options.steps:
                break

    images, labels, _ = load_records(options.data, split="test").tensors
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).double().mean().item()
    print(
        f"accuracy {100 * accuracy:.1f} %, "
        f"epsilon {engine.get_epsilon(DELTA):.4f} at delta {DELTA:g}"
    )
    np.savez(
        options.out,
        weights=weights.numpy(),  # the server knows these: it handed them out
        gradients=torch.stack(shared).numpy(),  # and these: it was sent them
        divisor=optimizer.expected_batch_size,
        # the client's own log: which records were in which batch
        records=torch.cat(batches).numpy(),
        sizes=[len(numbers) for numbers in batches],
    )


if __name__ == "__main__":
    main()
