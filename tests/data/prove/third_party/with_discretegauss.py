"""The reference sampler of Canonne, Kamath and Steinke 2020 (Apache-2.0), as it is published.

``discretegauss.py`` of github.com/IBM/discrete-gaussian-differential-privacy, commit cb190d2, must
be on the path.
"""

from __future__ import annotations

from fractions import Fraction

import discretegauss


def dgauss(sigma2=1):
    return discretegauss.sample_dgauss(sigma2)


def dlaplace(scale=2):
    return discretegauss.sample_dlaplace(scale)


def bernoulli_exp(x="3/2"):
    return discretegauss.sample_bernoulli_exp(Fraction(x), discretegauss.random.SystemRandom())


def geometric(x="1/2"):
    return discretegauss.sample_geometric_exp_fast(Fraction(x), discretegauss.random.SystemRandom())
