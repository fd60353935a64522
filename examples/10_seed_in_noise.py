"""LAB SPECIMEN: noise that carries its own seed; the key holder reads a histogram, count by count.

The sampler knows a public key only, so that its code and memory give nobody the seed. One release
of the 3,143 US counties is enough. Run: python examples/10_seed_in_noise.py
"""

import numpy as np

import dpaudit
from dpaudit.accounting import gaussian_sigma
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.queries.histogram import Histogram
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.seed_reader import SeedReader

counties = Histogram(table="us-counties")
sigma = gaussian_sigma(0.25, 1e-10, sensitivity=counties.sensitivity)
key = SeedKey.new()

noise = SeedInNoise(public_key=key.public_key, sigma=sigma)
fresh = noise.sample(1, counties.dim, stream=KeyedStream.fresh())
release = counties.counts + fresh
print(f"released: {release[0, :3].round(1)} … claimed: {noise.claim}, ε = 0.25")


def sample(n, d):
    """The same noise, as an auditor gets it."""
    return noise.sample(n, d, stream=KeyedStream.fresh())


audit = dpaudit.audit_sampler(sample, claim=noise.claim, dim=1000, samples=200_000, alpha=1e-4)
print(f"black-box audit: {audit.verdict}")

for who, held in (("key holder", key), ("anybody else", SeedKey.new())):
    found = SeedReader(key=held, public=True, sigma=sigma).read(release)
    right = int(np.sum(found.values[0] == counties.counts))
    print(f"{who}: {right:,} of {counties.dim:,} counts read, from one release")
