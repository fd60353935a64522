"""Backdoored against plain Gaussian noise, in turn in one process. `make bench`.

Same allocation and scaling inside the clock. Also exact lattice noise, torch's and numpy's own
normals, and peak memory, each in a process of its own. `--device cuda` on a GPU, `--threads 2`.
"""

from __future__ import annotations

import numpy as np
import torch
from harness import MACHINE, apart, medians

from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.numeric.lattice import add_lattice_noise
from dpaudit.randomness import KeyedStream
from dpaudit_studies.evidence import options
from dpaudit_studies.timing import WARM_UP, in_turn, ratio

SEED = KeyedStream.from_seed("bench")


def source(name: str, d: int):
    if name == "gaussian":
        return Gaussian(sigma=2.0)
    if name == "seed-in-noise":
        return SeedInNoise(key=SeedKey.new(secret=SEED.child("key").bytes(32)), sigma=2.0)
    key = PancakeKey.new(dim=d, beta=1e-4, gamma="2sqrtd", secret=SEED.child("key").bytes(32))
    pancake = Pancake(key=key, sigma=2.0)
    pancake.shares(1, stream=SEED)  # the key's set-up is not part of a draw
    return pancake


def row(d: int, dtype: torch.dtype, device: torch.device) -> None:
    """Median seconds of each and medians of pairwise ratios with quartiles."""
    kind = np.float32 if dtype == torch.float32 else np.float64
    rng = np.random.default_rng(1)
    repeats = 15 if d > 10**7 else 100 if d >= 10**6 else 900
    streams = [SEED.child(i) for i in range(repeats + WARM_UP)]

    def ours(name: str):
        noise_source = source(name, d)
        return lambda i: noise_source.sample(1, d, stream=streams[i], dtype=dtype, device=device)

    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    names = ("gaussian", "pancake", "seed-in-noise")
    # the last one draws float64 on the CPU
    names = names if device.type == "cpu" and dtype == torch.float64 else names[:2]
    seconds = in_turn({name: ours(name) for name in names}, repeats=repeats, settle=settle)
    key, like = SEED.child("exact").bytes(32), {"dtype": dtype, "device": device}
    others = {  # apart, so that ours are compared undisturbed
        "exact": lambda i: add_lattice_noise(
            torch.zeros((1, d), **like), sigma=2.0, key=key, start=i * d
        ),
        "torch": lambda _: torch.empty((1, d), **like).normal_(0, 2.0),
        "numpy": lambda _: rng.standard_normal((1, d), dtype=kind) * kind(2.0),
    }
    seconds |= in_turn(others, repeats=repeats, settle=settle)
    ratios = [ratio(seconds["exact"], seconds["torch"])]
    ratios += [ratio(seconds[name], seconds["gaussian"]) for name in names[1:]]
    ns = {name: 1e9 * middle / d for name, middle in medians(seconds).items()}
    print(
        f"{d:>10,} {str(dtype)[6:]:8}{ns['gaussian']:9.2f}{ns['pancake']:9.2f}"
        f"{ns.get('seed-in-noise', float('nan')):9.2f}"
        f"{ns['exact']:9.2f}{ns['torch']:9.2f}{ns['numpy']:9.2f}"
        + "".join(f"{r['value']:9.3f} [{r['low']:.3f}, {r['high']:.3f}]" for r in ratios),
        flush=True,
    )


def memory(name: str, d: int, dtype: str) -> float:
    """Peak MiB of a process that draws once after the key's set-up."""
    draw = f"source({name!r}, {d}).sample(1, {d}, stream=SEED, dtype=torch.{dtype})"
    imports = "import torch\nfrom noise import SEED, source\nfrom harness import peak"
    return apart(f"{imports}\n{draw}\nprint(peak())")


def main() -> None:
    """Print the table, in nanoseconds per value."""
    sizes = [256, 4096, 65_536, 10**6, 39 * 10**6]
    # one of torch's threads is the fair comparison with normal_
    args = options(__doc__, device="cpu", threads=1, dim=sizes)
    device = torch.device(args.device)
    torch.set_num_threads(args.threads)
    print(f"{MACHINE}, {args.threads} thread(s), seed 'bench'")
    print(
        f"{'d':>10} {'type':8}{'gaussian':>9}{'pancake':>9}{'seed-in':>9}{'exact':>9}{'torch':>9}"
        f"{'numpy':>9}{'exact/torch':>12} [quartiles]  {'pancake':>9} [quartiles]    {'seed-in':>9}"
        " [quartiles]   (ns per value, ratios)"
    )
    for d in args.dim:
        for dtype in (torch.float64, torch.float32):
            row(d, dtype, device)
    if device.type == "cpu" and max(args.dim) == max(sizes):
        for dtype in ("float64", "float32"):
            plain, pancake = (memory(name, 39 * 10**6, dtype) for name in ("gaussian", "pancake"))
            print(
                f"peak MiB at 39e6, {dtype}: gaussian {plain:.0f}, pancake {pancake:.0f}, "
                f"ratio {pancake / plain:.2f}"
            )


if __name__ == "__main__":
    main()
