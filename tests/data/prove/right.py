"""Exact samplers from fair coins, each with the law that its docstring names.

The discrete Laplace and Gaussian samplers follow Canonne, Kamath and Steinke 2020 (arXiv
2004.00010), Algorithms 1 to 3. ``bugs.toml`` changes one line of this file at a time.
"""

from __future__ import annotations

import secrets
from math import isqrt


def below(n):
    """Uniform on 0 … n − 1."""
    bits = (n - 1).bit_length()
    while True:
        x = secrets.randbits(bits)
        if x < n:
            return x


def bernoulli(numerator, denominator):
    """1 with probability numerator / denominator."""
    return 1 if below(denominator) < numerator else 0


def tenth():
    """1 with probability 1/10."""
    return bernoulli(1, 10)


def die():
    """Uniform on 1 … 6."""
    return 1 + below(6)


def bernoulli_exp_fraction(n, d):
    """1 with probability exp(−n/d), 0 ≤ n ≤ d."""
    k = 1
    while bernoulli(n, d * k):
        k += 1
    return k % 2


def exp_minus_half():
    """1 with probability exp(−1/2)."""
    return bernoulli_exp_fraction(1, 2)


def bernoulli_exp(n, d):
    """1 with probability exp(−n/d), n ≥ 0."""
    while n > d:
        if not bernoulli_exp_fraction(1, 1):
            return 0
        n -= d
    return bernoulli_exp_fraction(n, d)


def geometric(n=1, d=2):
    """P(k) ∝ exp(−k·n/d), k ≥ 0."""
    while True:
        u = below(d)
        if bernoulli_exp_fraction(u, d):
            break
    v = 0
    while bernoulli_exp_fraction(1, 1):
        v += 1
    return (u + d * v) // n


def discrete_laplace(n=2, d=1):
    """P(x) ∝ exp(−|x|·d/n)."""
    while True:
        size = geometric(d, n)
        negative = secrets.randbits(1)
        if negative and size == 0:
            continue
        return -size if negative else size


def discrete_gaussian(variance=1):
    """P(x) ∝ exp(−x²/(2·variance))."""
    t = isqrt(variance) + 1
    while True:
        y = discrete_laplace(t)
        gap = abs(y) * t - variance
        if bernoulli_exp(gap * gap, 2 * variance * t * t):
            return y


def fair_from_biased():
    """A fair bit from bits that are 1 with probability 1/4 (von Neumann)."""
    while True:
        first, second = (bernoulli(1, 4) for _ in range(2))
        if first != second:
            return first


def shuffled():
    """The index 0 … 5 of a uniform permutation of three items (Fisher and Yates)."""
    items = [0, 1, 2]
    for i in range(2, 0, -1):
        j = below(i + 1)
        items[i], items[j] = items[j], items[i]
    return items[0] * 2 + (1 if items[1] > items[2] else 0)


def base_2(scores=(0, 1, 3)):
    """The exponential mechanism in base 2 (Ilvento 2020): P(i) ∝ 2^−score."""
    weights = [2 ** (max(scores) - score) for score in scores]
    rest = below(sum(weights))
    for i, weight in enumerate(weights):
        if rest < weight:
            return i
        rest -= weight
    return None


def randomized_response(value=0):
    """The truth, 0 or 1, with probability 3/4: two coins."""
    if secrets.randbits(1):
        return value
    return secrets.randbits(1)


def laplace_mechanism(value=0):
    """A count with discrete Laplace noise of scale 2: ε = 1/2."""
    return value + discrete_laplace(2)


def noisy_max(counts=(3, 1, 2)):
    """The index of the largest count, each with discrete Laplace noise of scale 2: ε = 1."""
    noisy = [count + discrete_laplace(2) for count in counts]
    return noisy.index(max(noisy))


def above_threshold(counts=(0, 1, 1)):
    """The index of the first count above 1, or 3 (Dwork and Roth 2014, Algorithm 1): ε = 1."""
    threshold = 1 + discrete_laplace(2)
    for i, count in enumerate(counts):
        if count + discrete_laplace(4) >= threshold:
            return i
    return len(counts)
