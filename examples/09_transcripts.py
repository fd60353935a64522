"""Noise that a third party can check afterwards.

An honest server, one that swaps its noise, and counts with proofs. Each transcript goes through
`dpaudit verify transcript`.
Run: python examples/09_transcripts.py [DIR]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.accounting.mechanisms import binomial_coins
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.numeric.lattice import lattice_step
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.joint_seeds.messages import SessionTerms
from dpaudit_mitigations.joint_seeds.mitigation import SubstitutingServer, run_session
from dpaudit_mitigations.joint_seeds.parties import SeedServer, Verifier
from dpaudit_mitigations.joint_seeds.transcript import write
from dpaudit_mitigations.verifiable_counts import mitigation as counting

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
folder.mkdir(parents=True, exist_ok=True)
DIM, SIGMA = 1000, 22.3
step, stream = lattice_step(SIGMA), KeyedStream.fresh()
keys = {party: Ed25519PrivateKey.generate() for party in ("server", "verifier")}
public = {party: key.public_key().public_bytes_raw() for party, key in keys.items()}
query = np.rint(np.random.default_rng().integers(0, 1000, DIM) / step).astype(np.int64)
# LAB SPECIMEN
specimen = Pancake(key=PancakeKey.new(dim=DIM, beta=1e-4, gamma="2sqrtd"), sigma=SIGMA)
poisoned = np.rint(specimen.sample(1, DIM, stream=stream.child("pancake"))[0] / step).astype(
    np.int64
)


def session(name, make_server, **specials):
    """One session of joint seeds: its transcript; if complete, also the release and opening."""
    terms = SessionTerms(candidates=10, dim=DIM, scale=SIGMA / step, granularity=step, **public)
    server = make_server(
        query, terms=terms, key=keys["server"], stream=stream.child(name, "server"), **specials
    )
    verifier = Verifier(terms=terms, key=keys["verifier"], stream=stream.child(name, "verifier"))
    done = run_session(server, verifier)
    write(done.record, folder / f"{name}.json")
    if done.outcome == "complete":
        server.opening().save(folder / f"{name}.seal")
        np.save(folder / f"{name}.npy", done.release)


def verify(name, *options):
    """What `dpaudit verify transcript` says, and its exit code."""
    command = [sys.executable, "-m", "dpaudit", "verify", "transcript", folder / f"{name}.json"]
    command += map(str, options)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"{name}, exit {done.returncode}: {done.stdout.strip() or done.stderr.strip()}\n")


session("honest", SeedServer)
verify("honest")
verify("honest", "--opening", folder / "honest.seal", "--release", folder / "honest.npy")
for i in range(7):  # each is caught nine times in ten; the tenth time the pancake is released
    session(f"swapped-{i}", SubstitutingServer, candidate=0, substitute=poisoned)
    verify(f"swapped-{i}")
coins = 2 * -(-binomial_coins(1.0, 1e-10) // 2)  # per bin, for ε = 1; an even number
counts = counting.run_session(
    [120, 45, 300], coins=coins, stream=stream.child("counts"), key=keys["verifier"]
)
counts.transcript.write(folder / "counts.json")
print(f"counts 120, 45, 300 released as {counts.released} with {coins} coins each")
verify("counts", "--verifier", public["verifier"].hex())
text = (folder / "counts.json").read_text()
(folder / "forged.json").write_text(text[:600] + ("A" if text[600] != "A" else "B") + text[601:])
verify("forged")
