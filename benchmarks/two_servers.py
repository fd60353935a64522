"""Two servers end to end over loopback mTLS. `make bench`.

Compared with drawing the noise and writing the file alone. Server 2 is a process of its own, server
1 is this one. Both draw exact discrete Gaussian noise from a CSPRNG.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

import numpy as np
import psutil
from harness import MACHINE, clocked

from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.transport.certificates import load_identity, make_authority
from dpaudit_mitigations.transport.connection import Log
from dpaudit_mitigations.two_servers.agreement import ahead, secure_draw
from dpaudit_mitigations.two_servers.answer_side import AnswerSide, Contact, Question
from dpaudit_studies.evidence import options

SIGMA, BOUND = 2.0, 100.0


def noise_alone(dim: int) -> tuple[float, float]:
    """Wall and CPU seconds of one server's noise, drawn as the servers draw it."""
    draw = secure_draw(sigma=SIGMA, step=2.0**-23, stream=KeyedStream.fresh())
    draw(0, 1000)
    return clocked(lambda: deque(ahead(draw, dim), maxlen=0))[1:]


def file_alone(path: Path, values: np.ndarray) -> float:
    """Seconds to write the vector to a file and sync it."""
    began = time.perf_counter()
    with path.open("wb") as file:
        file.write(memoryview(values).cast("B"))
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - began


def releases(folder: Path, values: np.ndarray, repeats: int) -> list[tuple[float, float]]:
    """Wall seconds of each release, and the CPU seconds of both servers."""
    make_authority(folder / "certificates", ["answer", "noise"])
    command = [sys.executable, "-m", "dpaudit", "serve", "noise"]
    command += ["--identity", folder / "certificates" / "noise", "--journal", folder / "noise"]
    command += ["--sigma", SIGMA, "--bound", BOUND, "--dim", values.size]
    server = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True)
    try:
        address = json.loads(server.stdout.readline())["address"]
        (folder / "answer").mkdir()
        side = AnswerSide(journal=folder / "answer", log=Log("bench"))
        contact = Contact(address, "noise", load_identity(folder / "certificates" / "answer"))
        other, costs = psutil.Process(server.pid), []

        def cpu() -> float:
            return time.process_time() + sum(other.cpu_times()[:2])

        for number in range(repeats):
            question = Question(
                values, release="bench", round=number, sigma=SIGMA, peer_sigma=SIGMA
            )
            wall, before = time.perf_counter(), cpu()
            side.release(question, contact)
            costs.append((time.perf_counter() - wall, cpu() - before))
            published = folder / "noise" / "published" / f"bench@{number}.npy"
            noise = np.load(published, mmap_mode="r")[:100_000] - values[:100_000]
            if abs(noise.std() / (SIGMA * 2**0.5) - 1) > 0.02:
                raise SystemExit("what was published is not the query with both servers' noise")
            published.unlink()
        side.close()
        return costs
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """A line for each part, then the release less what one server's noise takes."""
    args = options(__doc__, dim=39_000_000, repeats=3)
    dim = args.dim
    values = np.random.default_rng(1).standard_normal(dim, np.float32)
    print(f"{MACHINE}, {dim:,} float32")
    with tempfile.TemporaryDirectory(prefix="dpaudit-bench-") as name:
        noise = [noise_alone(dim) for _ in range(args.repeats)]
        file = min(file_alone(Path(name) / "file", values) for _ in range(args.repeats))
        (Path(name) / "file").unlink()
        costs = releases(Path(name), values, args.repeats)
    alone, cpu = min(n[0] for n in noise), min(n[1] for n in noise)
    whole, both = min(costs)
    print(f"one server's noise alone         {alone:6.2f} s, {cpu:5.2f} s CPU")
    print(f"the file alone, synced           {file:6.2f} s")
    print(f"release, server 1 to published   {whole:6.2f} s, {both:5.2f} s CPU in both servers")
    print(f"beyond one server's noise        {whole - alone:6.2f} s")
    print(f"beyond both's, in CPU seconds           {both - 2 * cpu:8.2f} s CPU")
    print(f"release / one server's noise     {whole / alone:6.2f}, in CPU {both / cpu:.2f}")


if __name__ == "__main__":
    main()
