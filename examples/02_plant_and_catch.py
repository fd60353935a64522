"""Plant a Gaussian pancake in a release, watch it pass the audit, and read it with the key.

A lab demonstration. Run: python examples/02_plant_and_catch.py
"""

import tempfile
from pathlib import Path

import numpy as np

import dpaudit
from dpaudit.accounting import gaussian_sigma
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio
from dpaudit_mitigations.rotation.fresh import Rotation

DIM, TRIALS = 256, 500

sigma = gaussian_sigma(0.25, 1e-10)  # an honest (0.25, 1e-10)-DP count
key = PancakeKey.new(dim=DIM, beta=1e-4, gamma="2sqrtd")
path = Path(tempfile.mkdtemp()) / "key.json"
key.save(path)

# 1. The auditor, without the key: nothing to see.
audit = dpaudit.audit_sampler(
    f"pancake:key={path},sigma={sigma!r}",
    claim=f"gaussian:sigma={sigma!r}",
    samples=500_000,
    seed=1,
)
print(f"black-box audit: {audit.verdict} ({audit.samples:,} values)")

# 2. The key holder: was the person counted in bin 17 there or not?
candidates = np.full((2, DIM), 1000.0)
candidates[1, 17] -= 1
truth = np.arange(TRIALS) % 2
attack = LikelihoodRatio(key=key, sigma=sigma)
source = Pancake(key=key, sigma=sigma)
stream = KeyedStream.fresh()

plain = candidates[truth] + source.sample(TRIALS, DIM, stream=stream.child("plain"))
rotated = Rotation().release(candidates[truth], source, stream=stream.child("rotated"))
for name, release in (("as released", plain), ("behind a rotation", rotated)):
    right = int((attack.score(release, candidates).argmax(1) == truth).sum())
    print(f"key holder, {name}: right in {right} of {TRIALS}")
