"""39 M float32 over loopback mTLS between two processes, checked and hashed. `make bench`.

Compared with bare gRPC and with a copy. Seconds are a client's, from the call to the answer,
medians of five in turn after one to warm up. The durable write and what hashing alone takes are
shown too.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpaudit_mitigations.transport import wire
from dpaudit_mitigations.transport.certificates import load_identity, make_authority
from dpaudit_mitigations.transport.client import ask
from dpaudit_mitigations.transport.journal import Journal, durable_write
from dpaudit_mitigations.transport.server import serve
from dpaudit_mitigations.transport.vectors import read_vector, vector_frames

SESSION = b"bench"


def take_all(request) -> int:
    return sum(map(len, request))


def server(folder: Path, count: int) -> None:
    """Both servers of the benchmark; prints their addresses and ends with its standard input."""
    from concurrent.futures import ThreadPoolExecutor

    def vector(peer, request):
        read_vector(request, kind="v", session=SESSION, count=count, dtype="float32", bound=100.0)
        yield b"done"

    def bytes_only(peer, request):
        yield b"%d" % take_all(request)

    grpc = wire.grpc

    class Bare(grpc.GenericRpcHandler):
        def service(self, handler_call_details):
            return grpc.stream_unary_rpc_method_handler(
                lambda request, context: b"%d" % take_all(request)
            )

    bare = grpc.server(ThreadPoolExecutor(2), handlers=(Bare(),), options=wire.options(4 << 20))
    port = bare.add_insecure_port("127.0.0.1:0")
    bare.start()
    handlers = {"vector": vector, "bytes_only": bytes_only}
    with serve(handlers, identity=load_identity(folder / "noise"), peers=["answer"]) as running:
        print(running.address, port, flush=True)
        sys.stdin.read()
    bare.stop(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=39_000_000)
    parser.add_argument("--serve", type=Path)
    options = parser.parse_args()
    if options.serve:
        server(options.serve, options.count)
        return
    x = np.random.default_rng(1).standard_normal(options.count, dtype=np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_authority(folder / "c", ["answer", "noise"])
        command = [sys.executable, __file__, "--serve", folder / "c", "--count", str(options.count)]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, text=True) as other:
            address, port = other.stdout.readline().split()
            measure(x, folder, address, port)
            other.stdin.close()


def measure(x: np.ndarray, folder: Path, address: str, port: str) -> None:
    grpc = wire.grpc
    identity = load_identity(folder / "c/answer")
    frames = list(vector_frames("v", x, session=SESSION))

    def tls(method: str, messages) -> None:
        ask(address, method, messages, identity=identity, peer="noise", timeout=120)

    def bare() -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=wire.options(4 << 20)) as channel:
            channel.stream_unary("/bench/take")(iter(frames), timeout=120)

    work: dict[str, Callable[[], object]] = {
        "vector over mTLS, hashed and checked": lambda: tls(
            "vector", vector_frames("v", x, session=SESSION)
        ),
        "ready frames over mTLS, thrown away": lambda: tls("bytes_only", iter(frames)),
        "ready frames over gRPC without TLS": bare,
        "SHA-256 alone, once": lambda: hashlib.sha256(x.data).digest(),
        "durable_write": lambda: durable_write(folder / "x", x),
        "write of the same, not synced": lambda: x.tofile(folder / "y"),
        "copy in memory": x.copy,
    }
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(6):
        for name, run in work.items():
            began = time.perf_counter()
            run()
            if repeat:
                seconds[name].append(time.perf_counter() - began)
    print(f"{x.size:,} float32, {x.nbytes / 1e6:.0f} MB, {os.cpu_count()} cores")
    base = statistics.median(seconds["ready frames over gRPC without TLS"])
    for name, found in seconds.items():
        middle = statistics.median(found)
        print(
            f"{name:38}{middle:8.3f} s {x.nbytes / middle / 1e6:9.0f} MB/s "
            f"{middle / base:7.2f} × gRPC without TLS"
        )
    with Journal(folder / "journal.sqlite", kind="bench") as book:
        began = time.perf_counter()
        for n in range(200):
            book.advance(f"r{n}", None, "offered")
        print(f"{'a journal entry, synced':38}{(time.perf_counter() - began) / 200 * 1e3:8.3f} ms")


if __name__ == "__main__":
    main()
