"""Three servers add up their secret histograms.

One draws its noise from a backdoored source, one drops out. The pancake is a LAB SPECIMEN: noise
that the holder of a secret key can read through.
Run: python examples/06_secure_aggregation.py
"""

import numpy as np

from dpaudit.accounting import gaussian_sigma
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio
from dpaudit_mitigations.secure_aggregation.mitigation import DistributedGaussian, simulate
from dpaudit_mitigations.secure_aggregation.noise import NoiseShare
from dpaudit_mitigations.secure_aggregation.plan import FixedPoint

DIM, TRIALS = 4096, 2000
sigma, stream = gaussian_sigma(0.25, 1e-10), KeyedStream.fresh()
key = PancakeKey.new(dim=DIM, beta=1e-4, gamma="2sqrtd")
specimen = Pancake(key=key, sigma=sigma)

# 1. The round: server 0 is backdoored, server 1 is honest, server 2 drops out before it sends its
# vector. One honest server is sure to stay, so each share of the noise is the whole sigma.
histograms = np.random.default_rng().integers(0, 1000, (3, DIM)).astype(float)
form = FixedPoint.finest(bits=32, parties=3, bound=1000, sigma=sigma, length=DIM)
share = NoiseShare.calibrated(
    "discrete-gaussian", sigma=sigma, honest=1, granularity=form.granularity
)
poisoned = np.rint(
    specimen.sample(1, DIM, stream=stream.child("source"))[0] / form.granularity
).astype(np.int64)
noise = [poisoned, *(share.draw(DIM, stream=stream.child("server", i)) for i in (1, 2))]
vectors = [form.encode(h, noise=lambda _, z=z: z) for h, z in zip(histograms, noise, strict=True)]
sent = [v.copy() for v in vectors]  # a party masks its vector in place
outcome = simulate(
    sent, length=DIM, bits=32, stream=stream.child("round"), threshold=2, dropouts={"mask": [2]}
)
published = form.decode(outcome.total)
exact = histograms[0] + histograms[1] + (noise[0] + noise[1]) * form.granularity
print(
    f"published: the noisy sum of {', '.join(outcome.survivors)}, "
    f"exact: {np.array_equal(published, exact)}"
)

# 2. What others see. Alone the aggregator has masked vectors;
# with server 0 it has server 1's histogram and its noise.
of_range = np.mean(sent[1]) / 2**32
print(
    f"aggregator: server 1's masked values average {of_range:.3f} of the ring, "
    "its histogram stays hidden"
)
coalition = published - histograms[0] - noise[0] * form.granularity
print(
    "aggregator and server 0: "
    f"server 1's histogram ± {np.std(coalition - histograms[1]):.1f} (sigma is {sigma:.1f})"
)

# 3. The key holder: was the person in bin 17 there or not, everything else known?
candidates = np.stack([histograms[0], histograms[0]])
candidates[1, 17] -= 1
truth = np.arange(TRIALS) % 2
attack = LikelihoodRatio(key=key, sigma=sigma)
alone = candidates[truth] + specimen.sample(TRIALS, DIM, stream=stream.child("alone"))
three = DistributedGaussian(servers=3, backdoored=1, dropouts=1)
together = three.release(candidates[truth], specimen, stream=stream.child("together"))
for name, release in (("the backdoored server alone", alone), ("the three of them", together)):
    right = int((attack.score(release, candidates).argmax(1) == truth).sum())
    print(f"key holder against {name}: right in {right / TRIALS:.1%} of {TRIALS}")
print(f"on the wire: {outcome.wire:,} bytes, of which the two vectors are {2 * 4 * DIM:,}")
