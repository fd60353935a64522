"""Break numpy's legacy normal in twenty lines.

A secret bit released twice is read from the last bits of its noise. RandomState.normal draws pairs
by Marsaglia's polar method. From a release and a guess of the value follow the two uniforms that
would have made it; if no uniforms near there give exactly these bits, the guess was wrong (Jin et
al. 2022, arXiv 2112.05307).
Run: python examples/03_floating_point.py
"""

import numpy as np

from dpaudit.stats import clopper_pearson
from dpaudit_attacks.floating_point.pair_inversion import PairInversion

PEOPLE = 20_000
secrets = np.random.default_rng(1).integers(0, 2, PEOPLE)  # each person's secret: 0 or 1
noise = np.random.RandomState(2).normal(0.0, 1.0, (PEOPLE, 2))
releases = secrets[:, None] + noise  # released twice each, sigma = 1

attack = PairInversion(sampler="numpy-legacy", scale=1.0)
could_be_0, could_be_1 = (attack.score(releases, np.array([np.zeros(2), np.ones(2)])) == 0).T
closer_to_1 = releases.mean(axis=1) > 0.5  # where the bits do not say, the sum does
guesses = np.where(could_be_0 & could_be_1, closer_to_1, could_be_1)

assert (np.where(secrets == 0, could_be_0, could_be_1)).all(), "the truth is never excluded"
right = int((guesses == secrets).sum())
interval = clopper_pearson(right, PEOPLE)
by_size = (closer_to_1 == secrets).mean()
print(
    f"right: {100 * right / PEOPLE:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}] "
    f"of {PEOPLE:,} secrets"
)
print(f"the best guess from the numbers' size alone: {100 * by_size:.1f} %")
