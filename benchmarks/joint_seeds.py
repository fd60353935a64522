"""Joint seeds: seconds per candidate and party, wire and memory.

Against one float32 Gaussian draw of as many values.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from harness import MACHINE, clocked, peak

from dpaudit.noise.gaussian import Gaussian
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.joint_seeds.derivation import cores, derived_noise, vector_digest
from dpaudit_mitigations.joint_seeds.messages import SessionTerms
from dpaudit_mitigations.joint_seeds.mitigation import run_session
from dpaudit_mitigations.joint_seeds.parties import SeedServer, Verifier
from dpaudit_mitigations.joint_seeds.transcript import verify, write
from dpaudit_studies.evidence import options


def timed(name: str, work):
    result, wall, cpu = clocked(work)
    print(f"{name:<44}{wall:>9.2f}{cpu:>9.2f}{peak():>11.0f}", flush=True)
    return result, wall


def main() -> None:
    args = options(__doc__, dim=39_000_000, candidates=10)
    dim, scale, stream = args.dim, 2.0**24, KeyedStream.from_seed("bench")
    vector_digest("noise", derived_noise(bytes(32), dim=10, scale=scale), dim=10)  # compiles
    print(f"{MACHINE}, {dim:,} coordinates, {args.candidates} candidates")
    print(f"{'':<44}{'wall s':>9}{'CPU s':>9}{'peak MiB':>11}")
    noise = derived_noise(bytes(32), dim=dim, scale=scale)
    _, one = timed(
        "a candidate: drawn and hashed, 1 thread", lambda: vector_digest("noise", noise, dim=dim)
    )
    timed(
        f"the same, {cores()} threads",
        lambda: vector_digest("noise", noise, dim=dim, threads=cores()),
    )

    keys = [
        Ed25519PrivateKey.from_private_bytes(stream.child("key", i).bytes(32)) for i in range(2)
    ]
    server, verifier = (key.public_key().public_bytes_raw() for key in keys)
    terms = SessionTerms(
        candidates=args.candidates,
        dim=dim,
        scale=scale,
        granularity=2.0**-24,
        server=server,
        verifier=verifier,
    )
    steps = np.zeros(dim, np.int64)
    steps += 1  # touched, so that it counts
    parties = (
        SeedServer(steps, terms=terms, key=keys[0], stream=stream.child("server"), threads=cores()),
        Verifier(terms=terms, key=keys[1], stream=stream.child("verifier"), threads=cores()),
    )
    session, _ = timed(
        f"a session: query and release held, {cores()} threads", lambda: run_session(*parties)
    )
    print("  seconds", ", ".join(f"{name} {spent:.2f}" for name, spent in session.seconds.items()))
    messages = session.wire - session.release.nbytes
    print(f"  wire {session.wire:,} bytes, of which messages {messages:,}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "transcript.json"
        write(session.record, path)
        print(f"  transcript {path.stat().st_size:,} bytes")
        verdict, _ = timed(f"dpaudit verify transcript, {cores()} threads", lambda: verify(path))
        assert verdict.holds

    torch.set_num_threads(1)
    draw = Gaussian(sigma=1.0)
    draw.sample(1, 1000, stream=stream, dtype=torch.float64)
    _, gaussian = timed(
        "for comparison: a float32 Gaussian draw",
        lambda: draw.sample(1, dim, stream=stream, dtype=torch.float32),
    )
    print(f"a candidate on one thread takes {one / gaussian:.1f} times that draw")


if __name__ == "__main__":
    main()
