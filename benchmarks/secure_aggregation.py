"""One round of secure aggregation on 39 million float32 coordinates, on one machine.

`--dim` for a smaller one. The same round on the same vectors twice: in one process with every
message framed, hashed, parsed and counted, and as four processes over mutual TLS from their start
to the published file on disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from harness import MACHINE, children_cpu, clocked, peak

from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.mitigation import simulate
from dpaudit_mitigations.secure_aggregation.noise import NoiseShare
from dpaudit_mitigations.secure_aggregation.plan import FixedPoint
from dpaudit_mitigations.transport.certificates import make_authority
from dpaudit_studies.evidence import options

PARTIES = ("alice", "bob", "carol")
PIECE = 1 << 20
SIGMA = 0.01  # of a party's noise, in the values' unit


def updates_of(dim: int, seed: int) -> list[np.ndarray]:
    """A vector for each party, float32 in [-1, 1)."""
    return [
        np.random.default_rng([seed, i]).random(dim, np.float32) * 2 - 1
        for i in range(len(PARTIES))
    ]


def on_grid(updates: list[np.ndarray], granularity: float, at: int) -> np.ndarray:
    """A piece of the exact sum: whole steps, added as 64-bit integers."""
    pieces = (
        np.rint(u[at : at + PIECE].astype(np.float64) / granularity).astype(np.int64)
        for u in updates
    )
    return sum(pieces) * granularity


def exact(total: np.ndarray, updates: list[np.ndarray], granularity: float) -> bool:
    return all(
        np.array_equal(total[at : at + PIECE], on_grid(updates, granularity, at))
        for at in range(0, len(total), PIECE)
    )


def simulated(updates: list[np.ndarray], *, sigma: float, seed: int, threshold: int) -> dict:
    """One process: encoding, masking, framing, checking, unmasking, decoding."""
    dim, stream = len(updates[0]), KeyedStream.from_seed(seed)
    point = FixedPoint.finest(bits=32, parties=len(updates), bound=1.0, sigma=sigma, length=dim)
    share = None
    if sigma:
        share = NoiseShare(law="discrete-gaussian", sigma=sigma, granularity=point.granularity)

    def encoder(i: int):
        noise = share.drawer(stream.child("noise", i)) if share else None
        return lambda: point.encode(updates[i], noise=noise)

    def whole():
        parties = [encoder(i) for i in range(len(updates))]
        outcome = simulate(parties, length=dim, bits=32, stream=stream, threshold=threshold)
        return outcome, point.decode(outcome.total)

    (outcome, total), seconds, processor = clocked(whole)
    uploaded = sum(outcome.sent.values()) / len(updates)
    return {
        "seconds": seconds,
        "processor": processor,
        "exact": sigma == 0 and exact(total, updates, point.granularity),
        "rms": float(np.std(total[:PIECE] - on_grid(updates, point.granularity, 0)))
        / (sigma or 1.0),
        "bytes": uploaded / dim,
    }


def processes(updates: list[np.ndarray], *, threshold: int) -> dict:
    """An aggregator and three contributors over mutual TLS on loopback; wall seconds."""
    terms = ["--parties", ",".join(PARTIES), "--threshold", str(threshold)]
    terms += ["--bound", "1", "--sigma", "0", "--round", "bench"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_authority(folder / "c", ["aggregator", *PARTIES])
        for party, update in zip(PARTIES, updates, strict=True):
            np.save(folder / f"{party}.npy", update)

        def start(command: str, party: str, *more: str) -> subprocess.Popen:
            where = ["--identity", f"c/{party}", "--journal", f"j-{party}"]
            program = [sys.executable, "-m", "dpaudit", "serve", command, *where, *terms, *more]
            with (folder / f"{party}.log").open("w") as log:
                return subprocess.Popen(
                    program, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
                )

        server = start("aggregate", "aggregator", "--dim", str(len(updates[0])), "--out", "sum.npy")
        first = json.loads(server.stdout.readline())
        began, used = time.perf_counter(), children_cpu()
        others = [
            start("contribute", p, "--peer", first["address"], "--input", f"{p}.npy")
            for p in PARTIES
        ]
        assert server.wait(600) == 0
        seconds = time.perf_counter() - began
        assert [other.wait(60) for other in others] == [0] * len(others)
        for process in (server, *others):
            process.stdout.close()
        lines = [json.loads(line) for line in (folder / "aggregator.log").read_text().splitlines()]
        moments = {
            (x.get("method"), x["outcome"]): datetime.fromisoformat(x["time"])
            for x in reversed(lines)
        }
        joined = moments[None, "published"] - moments["join", "served"]
        total = np.load(folder / "sum.npy", mmap_mode="r")
        right = exact(total, updates, first["granularity"])
        times = {"seconds": seconds, "joined": joined.total_seconds()}
        return {**times, "processor": children_cpu() - used, "exact": right}


def main() -> None:
    """Print the table."""
    args = options(__doc__, dim=39_000_000, seed=1, threshold=2)
    updates = updates_of(args.dim, args.seed)
    ours = simulated(updates, sigma=0.0, seed=args.seed, threshold=args.threshold)
    noisy = simulated(updates, sigma=SIGMA, seed=args.seed, threshold=args.threshold)
    wired = processes(updates, threshold=args.threshold)
    print(f"n=3, threshold={args.threshold}, d={args.dim:,} float32, seed {args.seed}; {MACHINE}")
    print(f"dpaudit {version('dpaudit')}, cryptography {version('cryptography')}\n")
    print(f"{'':58}{'seconds':>9}{'CPU s':>8}  the sum")

    for name, seconds, processor, remark in (
        ("one process", ours["seconds"], ours["processor"],
         f"exact: {ours['exact']}; {ours['bytes']:.3f} bytes a coordinate and party"),
        ("one process, exact discrete Gaussian noise added", noisy["seconds"], noisy["processor"],
         f"noise {noisy['rms']:.3f}σ; √3 is 1.732"),
        ("four processes over mTLS, from all joined to disk", wired["joined"], None,
         f"exact: {wired['exact']}"),
        ("  the same from the start of the processes", wired["seconds"], wired["processor"],
         "with loading, encoding and Python's own start"),
    ):  # fmt: skip
        cpu = "" if processor is None else f"{processor:.2f}"
        print(f"{name:58}{seconds:9.2f}{cpu:>8}  {remark}")
    print(f"\npeak memory: {peak() / 1024:.1f} GiB (all parties in one process)")
    sys.exit(0 if ours["exact"] and wired["exact"] else "a sum is wrong")


if __name__ == "__main__":
    main()
