"""An exact discrete Laplace sampler, and the same with one line changed.

    dpaudit prove python:examples/11_discrete_laplace.py:draw --claim discrete-laplace:scale=2
    dpaudit prove python:examples/11_discrete_laplace.py:biased --claim discrete-laplace:scale=2

A proof reads the source and follows all coins; nothing is sampled. Canonne, Kamath and Steinke 2020
(arXiv 2004.00010), Algorithm 2.
"""

import secrets


def half_life():
    """1 with probability exp(-1/2)."""
    k = 1
    while secrets.randbelow(2 * k) == 0:
        k += 1
    return k % 2


def geometric():
    """P(k) proportional to exp(-k/2), k = 0, 1, …"""
    k = 0
    while half_life():
        k += 1
    return k


def draw():
    """Discrete Laplace noise of scale 2."""
    while True:
        size, negative = geometric(), secrets.randbits(1)
        if size or not negative:
            return -size if negative else size


def biased():
    """The same, but -0 counts as 0, which so has twice its weight."""
    size, negative = geometric(), secrets.randbits(1)
    return -size if negative else size
