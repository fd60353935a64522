"""audit_training on a real Opacus training: scikit-learn's digits, 4,810 parameters.

``python -m dpaudit_studies.evidence.training_opacus [--runs 60]`` prints a table: an honest
training, two with a planted bug, and what initial weights that differ between runs hide.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dpaudit
from dpaudit_studies.evidence import options

RATE, STEPS = 0.05, 100
CLAIM = f"sigma=1,rate={RATE},steps={STEPS}"


def training(sigma: float, bound: float = 1.0, *, same_start: bool = True) -> Callable[..., Any]:
    def train(data: Any, seed: int) -> nn.Module:
        torch.manual_seed(0 if same_start else seed)
        model: Any = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
        torch.manual_seed(seed)
        model, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
            data_loader=DataLoader(TensorDataset(*data), batch_size=int(RATE * len(data[0]))),
            noise_multiplier=sigma,
            max_grad_norm=bound,
        )
        done = 0
        while True:
            for x, y in loader:
                if done == STEPS:
                    return model
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                done += 1

    return train


TRAININGS = {
    "honest": training(1.0),
    "noise multiplier 0.1": training(0.1),
    "no clipping": training(0.01, 100.0),
    "noise multiplier 0.1, new initial weights in each run": training(0.1, same_start=False),
}


def main() -> None:
    args = options(__doc__, runs=60, seed=1)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    digits = load_digits()
    data = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    rng = np.random.default_rng(0)  # far out, with random labels
    odd = torch.tensor(3 * rng.standard_normal((20, 64)), dtype=torch.float32)
    canaries = odd, torch.tensor(rng.integers(0, 10, 20))
    print("| training | ε claimed | ε shown | seconds |\n|---|---|---|---|")
    for name, train in TRAININGS.items():
        began = time.perf_counter()
        result = dpaudit.audit_training(
            train, data, canaries=canaries, runs=args.runs, dpsgd=CLAIM, seed=args.seed
        )
        bound = f"{np.floor(100 * result.epsilon.low) / 100:.2f}"
        bold = f"**{bound}**" if result.verdict == "finding" else bound
        took = time.perf_counter() - began
        print(f"| {name} | {result.claim_epsilon:.2f} | {bold} | {took:.0f} |", flush=True)


if __name__ == "__main__":
    main()
