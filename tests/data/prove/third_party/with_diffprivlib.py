"""diffprivlib 0.6.6's integer mechanisms, as they are installed."""

from __future__ import annotations

from diffprivlib.mechanisms import (
    Binary,
    ExponentialCategorical,
    GaussianDiscrete,
    Geometric,
    GeometricTruncated,
    PermuteAndFlip,
)
from diffprivlib.mechanisms.base import bernoulli_neg_exp

GEOMETRIC = Geometric(epsilon=1, sensitivity=1)
TRUNCATED = GeometricTruncated(epsilon=1, sensitivity=1, lower=0, upper=4)
GAUSSIAN = GaussianDiscrete(epsilon=1, delta=0.1)
BINARY = Binary(epsilon=1, value0="0", value1="1")
CATEGORICAL = ExponentialCategorical(
    epsilon=1, utility_list=[["a", "b", 1], ["a", "c", 2], ["b", "c", 2]]
)
FLIP = PermuteAndFlip(epsilon=1, sensitivity=1, utility=[0, 1, 3])


def neg_exp(gamma=1.5):
    return bernoulli_neg_exp(gamma)


def geometric(value=0):
    return GEOMETRIC.randomise(value)


def geometric_truncated(value=2):
    return TRUNCATED.randomise(value)


def gaussian_discrete(value=0):
    return GAUSSIAN.randomise(value)


def binary(value=0):
    return int(BINARY.randomise(str(value)))


def categorical(value="a"):
    return "abc".index(CATEGORICAL.randomise(value))


def permute_and_flip():
    return FLIP.randomise()
