"""Smoothing and rounding against keyed attackers, and what they cost. `make bench`.

Tables from one process, in a minute or so. For the histogram at ε = 1: success of three attackers
with the key (nearest peak, the pancake's likelihood, the likelihood of the pancake after smoothing)
over 10,000 releases, compared with the best success against honest noise of the same variance; then
neighbours σ/2 apart along the key by γ, against smoothing for γ ≥ 2√d; then CPU seconds of a
release.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import scipy
import torch

from dpaudit.accounting import gaussian_sigma_paper
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson
from dpaudit_mitigations.none import NoMitigation
from dpaudit_mitigations.smoothing.rounding import Rounding
from dpaudit_mitigations.smoothing.smoothing import Smoothing

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.keyed_attackers import along_key, attackers, successes

SEED = KeyedStream.from_seed("bench smoothing")
TRIALS = 10_000


def key_of(dim: int, *, beta: float = 1e-4, gamma: float | str = "2sqrtd") -> PancakeKey:
    secret = SEED.child("key", dim).bytes(32)
    return PancakeKey.new(dim=dim, beta=beta, gamma=gamma, secret=secret, allow_small_gamma=True)


def shown(right: dict[str, int], trials: int) -> str:
    cells = []
    for n in right.values():
        interval = clopper_pearson(n, trials)
        cells.append(
            f"{100 * n / trials:6.2f} % [{100 * interval.low:5.2f}, {100 * interval.high:5.2f}]"
        )
    return "  ".join(cells)


def histogram(dim: int, trials: int) -> None:
    host = Histogram(table="uniform", bins=dim)
    key = key_of(dim)
    sigma = gaussian_sigma_paper(1.0, 1e-10)
    print(
        f"\nhistogram, d = {dim}, γ = {key.gamma:g}, β = 1e-4, σ = {sigma:.4g} (ε = 1), "
        f"{trials:,} releases"
    )
    print(
        f"{'':24}{'L2 ×':>8}  {'honest':>7}  nearest-peak              likelihood"
        "                informed"
    )
    pancake, honest = Pancake(key=key, sigma=sigma), Gaussian(sigma=sigma)
    spacing = math.sqrt(2 * math.pi) / key.gamma
    for name, mitigation, source, tau in (
        ("none", NoMitigation(), pancake, 1e-9),
        ("smoothing R = 0.2", Smoothing(dim=dim, ratio=0.2), pancake, None),
        ("smoothing R = 0.5", Smoothing(dim=dim, ratio=0.5), pancake, None),
        ("smoothing R = 1.5", Smoothing(dim=dim, ratio=1.5), pancake, None),
        ("  own=secure", Smoothing(dim=dim, ratio=1.5, own="secure"), pancake, None),
        ("  honest source", Smoothing(dim=dim, ratio=1.5), honest, None),
        ("two servers (τ = σ)", Smoothing(tau=1.0), pancake, None),
        ("rounding P/2", Rounding(peaks=0.5, dim=dim), pancake, 0.5 * spacing / math.sqrt(12)),
        ("rounding P", Rounding(peaks=1, dim=dim), pancake, spacing / math.sqrt(12)),
        ("rounding 2P", Rounding(peaks=2, dim=dim), pancake, 2 * spacing / math.sqrt(12)),
        ("rounding to integers", Rounding(to="integers"), pancake, 1 / sigma / math.sqrt(12)),
    ):
        attacks = attackers(key, sigma=sigma, tau=tau or mitigation.tau)
        right = successes(
            mitigation,
            source,
            attacks,
            lambda n, s: host.neighbours(n, stream=s),
            trials=trials,
            stream=SEED.child(name),
        )
        factor = mitigation.scale(sigma) / sigma
        best = scipy.stats.norm.cdf(0.5 / mitigation.scale(sigma))
        print(f"{name:24}{factor:8.4f}  {100 * best:5.2f} %  {shown(right, trials)}", flush=True)


def adaptive(trials: int) -> None:
    print(
        "\nadaptive γ against smoothing for γ ≥ 2√d (d = 256, R = 1.5), "
        "neighbours σ/2 apart along the key"
    )
    m = Smoothing(dim=256, ratio=1.5)
    print(f"best against honest noise: {100 * scipy.stats.norm.cdf(0.25 / m.scale(1.0)):.2f} %")
    for gamma in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        key = key_of(256, gamma=gamma)
        right = successes(
            m,
            Pancake(key=key),
            attackers(key, sigma=1.0, tau=m.tau),
            along_key(key, 0.5),
            trials=trials,
            stream=SEED.child("adaptive"),
        )
        print(f"γ = {gamma:<6g}{shown(right, trials)}", flush=True)


def seconds(dim: int) -> None:
    print(
        f"\nCPU seconds of one release, d = {dim:,}, float32, "
        "against a Gaussian draw in the same loop"
    )
    query, source, stream = torch.zeros(1, dim), Gaussian(), SEED.child("time")
    named = {
        "gaussian draw": lambda i: source.sample(
            1, dim, stream=stream.child(i), dtype=torch.float32
        ),
        "no mitigation": lambda i: NoMitigation().release(query, source, stream=stream.child(i)),
        "smoothing fast": lambda i: Smoothing(dim=dim).release(
            query, source, stream=stream.child(i)
        ),
        "smoothing secure": lambda i: Smoothing(dim=dim, own="secure").release(
            query, source, stream=stream.child(i)
        ),
        "rounding": lambda i: Rounding(peaks=2, dim=dim).release(
            query, source, stream=stream.child(i)
        ),
        "rounding bf16": lambda i: Rounding(to="bf16").release(
            query, source, stream=stream.child(i)
        ),
    }
    spent: dict[str, list[float]] = {name: [] for name in named}
    for i in range(4):
        for name, work in named.items():
            began = time.process_time()
            work(i)
            if i:  # the first warms up
                spent[name].append(time.process_time() - began)
    base = sorted(spent["gaussian draw"])[1]
    for name, each in spent.items():
        print(f"{name:20}{sorted(each)[1]:8.3f} s   × {sorted(each)[1] / base:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, nargs="*", default=[256, 4096])
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--time-dim", type=int, default=10_000_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for d in args.dims:
        histogram(d, args.trials)
    adaptive(args.trials)
    seconds(args.time_dim)
