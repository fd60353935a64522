"""After how many releases of noise with a short nonce the test `repeats` finds it.

`python -m dpaudit_studies.evidence.nonce_birthday` draws releases of 16 values (Gaussian, code
`fraction`) one per call until the p-value is below the test's share of α = 0.01, 40 trials per
number of bits (seeds 7200, trial), and stores the number of releases at which it was found. 40
bits: 6 trials, as one takes a minute. Stored trials are not repeated. `python -m
result_tables` writes the page's map of them.
"""

from __future__ import annotations

import json
import time

import numpy as np

from dpaudit import registry
from dpaudit.audit.battery.repeats import Repeats
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.randomness import KeyedStream
from dpaudit_studies.evidence import MACHINE, RESULTS, write

WRITTEN = RESULTS / "seed-in-noise" / "birthday.json"
LAW = Claim.parse("gaussian:sigma=1")
VALUES = 16
TRIALS = {8: 40, 16: 40, 24: 40, 32: 40, 40: 6}
ALPHA = 0.01


def found_after(bits: int, trial: int, *, share: float) -> int:
    """Releases drawn, in steps of an eighth of what was drawn before."""
    stream = KeyedStream.from_seed(7200).child("birthday", bits, trial)
    key = SeedKey.new(secret=stream.child("key").bytes(32))
    source = SeedInNoise(key=key, nonce_bits=bits, code="fraction")
    test, spread = Repeats(LAW, stream.child("test")), stream.child("atoms").numpy()
    noise, drawn = stream.child("noise"), 0
    while True:
        calls = max(2, min(1 << 16, drawn // 8))
        rows = np.asarray(source.sample(calls, VALUES, stream=noise.child(drawn)))
        test.update(SampleBlock(drawn, rows, claim=LAW, spread=spread, calls=calls))
        drawn += calls
        if test.evidence(alpha=share).p <= share:
            return drawn


def main() -> None:
    done = json.loads(WRITTEN.read_text()) if WRITTEN.exists() else {"found_after": {}}
    # what one of the battery's counted tests gets, as in an audit
    counted = [n for n in registry.plugins("tests") if n not in {"forks", "timing"}]
    done |= {"share": ALPHA / len(counted), "machine": MACHINE}
    for bits, trials in TRIALS.items():
        own = done["found_after"].setdefault(str(bits), [])
        began = time.process_time()
        while len(own) < trials:
            own.append(found_after(bits, len(own), share=done["share"]))
            write(WRITTEN, done, indent=None)
        print(bits, f"{time.process_time() - began:.0f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
