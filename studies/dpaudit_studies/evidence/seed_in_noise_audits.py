"""The default audit of every specimen of noise that carries its own seed, at 10^7 values.

`python -m dpaudit_studies.evidence.seed_in_noise_audits` audits each law with each of its codes at
α = 0.01, with nonces of 128 bits (seeds 7001 … 7008) and of 24 (seeds 7101 … 7108), under one key
from the seed 7000. The seeds were chosen before the first run. Each audit is stored as it
ends, and a stored one is not repeated.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from dpaudit import audit_sampler
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.randomness import KeyedStream
from dpaudit_studies.evidence import MACHINE, RESULTS, options, write

WRITTEN = RESULTS / "seed-in-noise" / "audits.json"
ALPHA = 0.01
SPECIMENS = [
    (law, code)
    for law, codes in {
        "gaussian": ("fraction", "head", "signs"),
        "laplace": ("fraction", "head", "signs"),
        "discrete-gaussian": ("signs",),
        "discrete-laplace": ("signs",),
    }.items()
    for code in codes
]


def audits() -> list[tuple[str, str, int, int]]:
    """Law, code, bits and seed of each."""
    return [
        (law, code, bits, first + i)
        for bits, first in ((128, 7001), (24, 7101))
        for i, (law, code) in enumerate(SPECIMENS)
    ]


def audit(
    law: str, code: str, bits: int, seed: int, *, key: Path, samples: float
) -> dict[str, Any]:
    began = time.process_time()
    source = f"seed-in-noise:law={law},code={code},nonce_bits={bits},key={key}"
    result = audit_sampler(source, samples=samples, alpha=ALPHA, seed=seed)
    counted = [t for t in result.tests if not t.advisory]
    first = min(counted, key=lambda t: t.p_adjusted)
    return {
        "law": law,
        "code": code,
        "nonce_bits": bits,
        "seed": seed,
        "verdict": result.verdict,
        "samples": result.samples,
        "tests": len(counted),
        "found_by": [t.name for t in counted if t.finding],
        "smallest": first.name,
        "p_adjusted": first.p_adjusted,
        "seconds": round(result.seconds, 1),
        "cpu_seconds_here": round(time.process_time() - began, 1),
        "machine": MACHINE,
    }


def main() -> None:
    args = options(__doc__, samples=1e7)
    done = json.loads(WRITTEN.read_text()) if WRITTEN.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key.json"
        SeedKey.new(secret=KeyedStream.from_seed(7000).bytes(32)).save(key)
        for law, code, bits, seed in audits():
            if any(row["seed"] == seed for row in done):
                continue
            done.append(audit(law, code, bits, seed, key=key, samples=args.samples))
            write(WRITTEN, done)
            print(done[-1], flush=True)


if __name__ == "__main__":
    main()
