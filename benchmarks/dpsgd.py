"""Our noise against Opacus' own: whole training steps in turn. `make bench`.

One process, one thread. A step is zero_grad, forward, backward, clipping, noise, the optimizer's
update. `--device cuda` on a GPU; `dpsgd.py cnn wide` for these alone.
"""

from __future__ import annotations

import statistics
import warnings
from itertools import chain, pairwise

import torch
from harness import MACHINE, medians
from opacus import PrivacyEngine
from scipy.stats import binom
from torch import nn
from torch.utils.data import DataLoader

from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.queries.opacus import secure_noise, use_noise_source
from dpaudit.randomness import KeyedStream
from dpaudit.training.data import load_images
from dpaudit.training.models import make_model
from dpaudit_studies.evidence import options
from dpaudit_studies.timing import in_turn

SEED = "bench"


WIDTHS = {"perceptron": (1500, 1240), "wide": (4000, 5400)}
"""Hidden layers: 3,051,150 and 24,799,410 parameters, little other work: noise's hardest case."""
ROWS = (  # the cnn is Opacus' example for MNIST as well
    ("cnn", 64, "hooks", 4),
    ("cnn", 256, "hooks", 2),
    ("cnn", 64, "ghost", 4),
    ("perceptron", 64, "ghost", 1),
    ("wide", 64, "ghost", 1),
    ("wide", 256, "ghost", 0.5),
)
"""Model, batch, mode, and the share of --repeats."""


def network(model: str) -> nn.Module:
    if model not in WIDTHS:
        return make_model(model)
    sizes = (784, *WIDTHS[model], 10)
    layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(sizes)]
    return nn.Sequential(nn.Flatten(), *chain(*layers))


class Run:
    """A private training run on one batch."""

    def __init__(self, model: str, batch: int, mode: str, noise: str, device: torch.device) -> None:
        torch.manual_seed(0)
        module = network(model).to(device)
        self.x, self.y = load_images("synthetic").batch(range(batch), device=device)
        private = PrivacyEngine(accountant="rdp").make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.01),
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
        if noise == "secure":
            secure_noise(self.optimizer)
        elif noise == "pancake":
            dim = sum(p.numel() for p in self.optimizer.params)
            key = PancakeKey.new(dim=dim, beta=1e-4, secret=KeyedStream.from_seed(SEED).bytes(32))
            use_noise_source(self.optimizer, lambda sigma: Pancake(key=key, sigma=sigma), seed=SEED)

    def step(self, _: int) -> None:
        self.optimizer.zero_grad()
        self.loss(self.model(self.x), self.y).backward()
        self.optimizer.step()


def of_pairs(ours: list[float], theirs: list[float]) -> str:
    """The median ratio of steps in pairs, with its exact 95 % interval (order statistics)."""
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    at = max(1, int(binom.ppf(0.025, len(ratios), 0.5)))
    return f"{statistics.median(ratios):.3f} [{ratios[at - 1]:.3f}, {ratios[-at]:.3f}]"


def row(model: str, batch: int, mode: str, repeats: int, device: torch.device) -> None:
    """Median milliseconds of a step, and ratios to Opacus' with intervals."""
    noises = ("opacus", "secure", "pancake")
    runs = {noise: Run(model, batch, mode, noise, device) for noise in noises}
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    steps = {name: run.step for name, run in runs.items()}
    seconds = in_turn(steps, repeats=repeats, settle=settle)
    dim = sum(p.numel() for p in runs["opacus"].optimizer.params)
    print(f"{model:10}{dim:>11,}{batch:>5} {mode:6}{repeats:>6}", end="")
    print("".join(f"{1e3 * middle:10.2f}" for middle in medians(seconds).values()), end="")
    for name in noises[1:]:
        print(f"{of_pairs(seconds[name], seconds['opacus']):>23}", end="")
    print(flush=True)


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")  # Opacus' about its random numbers, torch's about hooks
    args = options(__doc__, device="cpu", threads=1, repeats=50, names=["cnn", *WIDTHS])
    device = torch.device(args.device)
    torch.set_num_threads(args.threads)
    print(f"{MACHINE}, {args.threads} thread(s), seed {SEED!r}; ms per step; 95 % intervals")
    print(
        f"{'model':10}{'d':>11}{'b':>5} {'mode':6}{'steps':>6}{'opacus':>10}{'secure':>10}"
        f"{'pancake':>10}{'secure / opacus':>23}{'pancake / opacus':>23}"
    )
    for model, batch, mode, share in ROWS:
        if model in (args.names or [model]):
            row(model, batch, mode, max(10, int(share * args.repeats)), device)


if __name__ == "__main__":
    main()
