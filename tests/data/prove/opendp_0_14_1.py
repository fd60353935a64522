"""The discrete samplers of OpenDP up to 0.14.1 with the division that made them biased.

dashu-ratio up to 0.4.2 divides a fraction a/b by an integer k, g = gcd(a, k), as a/g over
(b // g)·k; it should be b·(k // g) (cmpute/dashu#57, found by opendp/opendp#2638). The two agree
unless a numerator above 1 has a factor in common with k. Everything else follows OpenDP's
algorithms, after Canonne, Kamath and Steinke 2020.
"""

from __future__ import annotations

import secrets
from fractions import Fraction
from math import gcd


def divided(x, k):
    """Numerator and denominator of x / k, as dashu computes them."""
    g = gcd(x.numerator, k)
    return x.numerator // g, (x.denominator // g) * k


def bernoulli_exp_fraction(x):
    """1 with a probability that should be exp(−x), 0 ≤ x ≤ 1."""
    k = 1
    while True:
        numerator, denominator = divided(x, k)
        if secrets.randbelow(denominator) >= numerator:
            return k % 2
        k += 1


def bernoulli_exp(x):
    """1 with a probability that should be exp(−x), x ≥ 0."""
    while x > 1:
        if not bernoulli_exp_fraction(Fraction(1)):
            return 0
        x = x - 1
    return bernoulli_exp_fraction(x)


def geometric_exp(x):
    """k ≥ 0 with a probability that should be proportional to exp(−k·x)."""
    while True:
        u = secrets.randbelow(x.denominator)
        if bernoulli_exp(Fraction(u, x.denominator)):
            break
    v = 0
    while bernoulli_exp(Fraction(1)):
        v += 1
    return (v * x.denominator + u) // x.numerator


def discrete_laplace(scale=2):
    """k with a probability that should be proportional to exp(−|k|/scale)."""
    while True:
        positive = secrets.randbits(1)
        size = geometric_exp(1 / Fraction(scale))
        if positive or size:
            return size if positive else -size


def discrete_gaussian(sigma=2):
    """k with a probability that should be proportional to exp(−k²/2σ²)."""
    variance = Fraction(sigma) ** 2
    t = int(sigma) + 1
    while True:
        candidate = discrete_laplace(t)
        gap = abs(candidate) - variance / t
        if bernoulli_exp(gap**2 / (2 * variance)):
            return candidate


def laplace_mechanism(value=0, scale=3):
    """A count with noise that is claimed to give ε = 1/scale."""
    return value + discrete_laplace(scale)


def gaussian_mechanism(value=0, sigma=2):
    """A count with noise that is claimed to be discrete Gaussian."""
    return value + discrete_gaussian(sigma)
