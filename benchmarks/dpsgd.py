"""The façade's noise against Opacus' own: whole training steps in turn. `make bench`.

One process, one thread. A step is zero_grad, forward, backward, clipping, noise, the optimizer's
update. `--device cuda` on a GPU.
"""

from __future__ import annotations

import warnings

import torch
from harness import MACHINE, medians
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader

from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.queries.opacus import use_noise_source
from dpaudit.randomness import KeyedStream
from dpaudit.training.data import load_images
from dpaudit.training.models import make_model
from dpaudit_studies.evidence import options
from dpaudit_studies.timing import in_turn, ratio

SEED = "bench"


def perceptron() -> nn.Module:
    """3,051,150 parameters: little other work, hence the façade's hardest case."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 1500),
        nn.ReLU(),
        nn.Linear(1500, 1240),
        nn.ReLU(),
        nn.Linear(1240, 10),
    )


class Run:
    """A private training run on one batch."""

    def __init__(self, model: str, batch: int, mode: str, noise: str, device: torch.device) -> None:
        torch.manual_seed(0)
        network = (perceptron() if model == "perceptron" else make_model(model)).to(device)
        self.x, self.y = load_images("synthetic").batch(range(batch), device=device)
        private = PrivacyEngine(accountant="rdp").make_private(
            module=network,
            optimizer=torch.optim.SGD(network.parameters(), lr=0.01),
            data_loader=DataLoader(
                torch.utils.data.TensorDataset(self.x.cpu(), self.y.cpu()), batch_size=batch
            ),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
            grad_sample_mode=mode,
        )
        self.model, self.optimizer = private[0], private[1]
        self.loss = private[2] if mode == "ghost" else nn.CrossEntropyLoss()
        if noise == "gaussian":
            use_noise_source(self.optimizer, "gaussian", seed=SEED)
        elif noise == "pancake":
            dim = sum(p.numel() for p in self.optimizer.params)
            key = PancakeKey.new(dim=dim, beta=1e-4, secret=KeyedStream.from_seed(SEED).bytes(32))
            use_noise_source(self.optimizer, lambda sigma: Pancake(key=key, sigma=sigma), seed=SEED)

    def step(self, _: int) -> None:
        self.optimizer.zero_grad()
        self.loss(self.model(self.x), self.y).backward()
        self.optimizer.step()


def row(model: str, batch: int, mode: str, repeats: int, device: torch.device) -> None:
    """Median milliseconds of a step, and ratios of steps with quartiles."""
    runs = {
        noise: Run(model, batch, mode, noise, device) for noise in ("opacus", "gaussian", "pancake")
    }
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds = in_turn(
        {name: run.step for name, run in runs.items()}, repeats=repeats, settle=settle
    )
    dim = sum(p.numel() for p in runs["opacus"].optimizer.params)
    print(f"{model:12}{dim:>11,} {batch:>4} {mode:8}", end="")
    for middle in medians(seconds).values():
        print(f"{1e3 * middle:10.2f}", end="")
    for name in ("gaussian", "pancake"):
        quotient = ratio(seconds[name], seconds["opacus"])
        print(f"{quotient['value']:8.3f} [{quotient['low']:.3f}, {quotient['high']:.3f}]", end="")
    print(flush=True)


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")  # Opacus' about its random numbers, torch's about hooks
    # of lenet5; large networks get a quarter
    args = options(__doc__, device="cpu", threads=1, repeats=60)
    device = torch.device(args.device)
    torch.set_num_threads(args.threads)
    print(f"{MACHINE}, {args.threads} thread(s), seed {SEED!r}")
    print(
        f"{'model':12}{'d':>11} {'b':>4} {'mode':8}{'opacus':>10}{'gaussian':>10}{'pancake':>10}"
        f"{'gaussian':>10} / opacus {'pancake':>11} / opacus   (ms per step; ratios, quartiles)"
    )
    few = max(5, args.repeats // 4)
    for model, batch, mode, repeats in (
        ("lenet5", 64, "hooks", args.repeats),
        ("lenet5", 128, "hooks", args.repeats),
        ("lenet5", 64, "ghost", args.repeats),
        ("perceptron", 16, "hooks", few),
        ("perceptron", 64, "ghost", few),
    ):
        row(model, batch, mode, repeats, device)


if __name__ == "__main__":
    main()
