"""tmlt-core 0.20.0's discrete samplers, as they are installed; coins from the operating system."""

from __future__ import annotations

import random
from fractions import Fraction

from tmlt.core.random import discrete_gaussian

COINS = random.SystemRandom()


def dlaplace(scale=2):
    return discrete_gaussian._sample_dlaplace(scale, COINS)


def geometric(x="1/2"):
    return discrete_gaussian._sample_geometric_exp_fast(Fraction(x), COINS)


def dgauss(sigma_squared=1):
    return discrete_gaussian.sample_dgauss(sigma_squared, COINS)
