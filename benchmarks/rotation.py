"""A mitigated release against one Gaussian draw: time ratio and peak memory. `make bench`.

Timed in turn in one process; memory in vectors. Time and memory of the source's own draw and of the
query are not the release's.
"""

from __future__ import annotations

import statistics

import torch
from harness import MACHINE, apart

from dpaudit import registry
from dpaudit.noise.gaussian import Gaussian
from dpaudit.randomness import KeyedStream
from dpaudit_studies.evidence import options
from dpaudit_studies.timing import in_turn

SEED = KeyedStream.from_seed("bench")
MITIGATIONS = (
    "rotation",
    "rotation:renorm=chi",
    "rotation:randomness=csprng",
    "shared-rotation",
    "structured-rotation",
    "smoothing:dim={d}",
    "smoothing:dim={d},own=secure",
    "rounding:dim={d},peaks=2",
    "rounding:to=bf16",
)
MEMORY = """
import torch
from rotation import SEED, Prepared
from dpaudit import registry
def status(word):
    return next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith(word))
m = registry.create("mitigations", {name!r})
m.release(torch.zeros(1, {w}), Prepared(1, {w}, SEED), stream=SEED)
query, source = torch.zeros({n}, {d}), Prepared({n}, {d}, SEED)
query.add_(0)
before = status("VmRSS")
m.release(query, source, stream=SEED)
print((status("VmHWM") - before) / ({n} * {d} * 4 / 1024))
"""


class Prepared:
    """A source drawn before the clock started; it hands its vector over and keeps none."""

    sigma, dim, claim = 2.0, None, "gaussian:sigma=2"

    def __init__(self, n: int, d: int, stream: KeyedStream) -> None:
        self._vectors = [Gaussian(sigma=2.0).sample(n, d, stream=stream, dtype=torch.float32)]

    def sample(self, n: int, d: int, **_: object) -> torch.Tensor:
        return self._vectors.pop()


def ratio(name: str, d: int, *, n: int = 1, repeats: int = 5) -> tuple[float, float]:
    """Medians over pairs in turn: a release beyond its draw over a draw; and a draw's seconds."""
    mitigation, query = registry.create("mitigations", name.format(d=d)), torch.zeros(n, d)
    sources = []
    works = {
        "source": lambda i: sources.append(Prepared(n, d, SEED.child(i, "source"))),
        "draw": lambda i: Gaussian(sigma=2.0).sample(
            n, d, stream=SEED.child(i), dtype=torch.float32
        ),
        "release": lambda i: mitigation.release(query, sources.pop(), stream=SEED.child(i)),
    }
    seconds = in_turn(works, repeats=repeats)
    pairs = zip(seconds["release"], seconds["draw"], strict=True)
    return statistics.median(r / own for r, own in pairs), statistics.median(seconds["draw"])


def row(title: str, name: str, d: int, *, n: int = 1) -> None:
    """Time of a draw, the ratio, and peak memory beyond query and noise in arrays (n, d).

    The source's noise is counted as held throughout, so a release that lets go of it early has that
    vector to its credit.
    """
    times, own = ratio(name, d, n=n)
    warm = d if "dim" in name else 1 << 16  # some are made for one dimension
    extra = apart(MEMORY.format(name=name.format(d=d), n=n, d=d, w=warm))
    print(f"{title:30}{own:9.3f}{times:10.2f}{extra:15.2f}", flush=True)


def main() -> None:
    args = options(__doc__, d=39_000_000, threads=2)
    torch.set_num_threads(args.threads)
    print(f"{MACHINE}, {args.threads} threads, d={args.d:,} float32, one row")
    print(f"{'mitigation':30}{'draw, s':>9}{'× a draw':>10}{'extra vectors':>15}")
    for name in MITIGATIONS:
        row(name.replace("dim={d},", "").replace(":dim={d}", ""), name, args.d)
    row("shared-rotation, 8 × 1,000,000", "shared-rotation", 1_000_000, n=8)


if __name__ == "__main__":
    main()
