"""A rotated release against one Gaussian draw: time ratio and peak memory. `make bench`.

Timed in turn in one process; memory in vectors. Time and memory of the source's own draw and of the
query are not the release's.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import time

import torch

from dpaudit import registry
from dpaudit.noise.gaussian import Gaussian
from dpaudit.randomness import KeyedStream

SEED = KeyedStream.from_seed("bench")
ROTATIONS = (
    "rotation",
    "rotation:renorm=chi",
    "rotation:randomness=csprng",
    "shared-rotation",
    "structured-rotation",
)


class Made:
    """A source drawn before the clock started; it hands its vector over and keeps none."""

    sigma, dim, claim = 2.0, None, "gaussian:sigma=2"

    def __init__(self, n: int, d: int, stream: KeyedStream) -> None:
        self._held = [Gaussian(sigma=2.0).sample(n, d, stream=stream, dtype=torch.float32)]

    def sample(self, n: int, d: int, **_: object) -> torch.Tensor:
        return self._held.pop()


def seconds(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratio(name: str, d: int, *, n: int = 1, repeats: int = 5) -> tuple[float, float]:
    """Medians over pairs in turn: a release beyond its draw over a draw; and a draw's seconds."""
    mitigation, query = registry.create("mitigations", name), torch.zeros(n, d)
    pairs = []
    for i in range(repeats + 1):
        stream, source = SEED.child(i), Made(n, d, SEED.child(i, "source"))
        own = seconds(
            lambda stream=stream: Gaussian(sigma=2.0).sample(
                n, d, stream=stream, dtype=torch.float32
            )
        )
        taken = seconds(
            lambda stream=stream, source=source: mitigation.release(query, source, stream=stream)
        )
        pairs.append((taken / own, own))
    pairs = pairs[1:]  # the first compiles
    return statistics.median(r for r, _ in pairs), statistics.median(own for _, own in pairs)


def extra_vectors(name: str, d: int, *, n: int = 1) -> float:
    """Peak memory of a release beyond query and noise, in float32 arrays (n, d).

    In a process of its own. The source's noise is counted as held throughout, so a release that
    lets go of it early has that vector to its credit.
    """
    code = f"""
import sys; sys.path.insert(0, "benchmarks")
import torch
from rotation import SEED, Made
from dpaudit import registry
def status(word):
    return next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith(word))
m = registry.create("mitigations", {name!r})
m.release(torch.zeros(1, 1 << 16), Made(1, 1 << 16, SEED), stream=SEED)
query, source = torch.zeros({n}, {d}), Made({n}, {d}, SEED)
query.add_(0)
before = status("VmRSS")
m.release(query, source, stream=SEED)
print((status("VmHWM") - before) / ({n} * {d} * 4 / 1024))
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(said.stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--d", type=int, default=39_000_000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        f"{platform.processor() or platform.machine()}, {arguments.threads} threads, "
        f"d={arguments.d:,} float32, one row"
    )
    print(f"{'mitigation':30}{'draw, s':>9}{'× a draw':>10}{'extra vectors':>15}")
    for name in ROTATIONS:
        times, own = ratio(name, arguments.d)
        print(
            f"{name:30}{own:9.3f}{times:10.2f}{extra_vectors(name, arguments.d):15.2f}", flush=True
        )
    times, own = ratio("shared-rotation", 1_000_000, n=8)
    extra = extra_vectors("shared-rotation", 1_000_000, n=8)
    print(f"{'shared-rotation, 8 × 1,000,000':30}{own:9.3f}{times:10.2f}{extra:15.2f}")


if __name__ == "__main__":
    main()
