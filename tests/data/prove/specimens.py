"""Backdoored noise: each value alone looks right, and two values together show a secret."""

from __future__ import annotations

import secrets

from right import below, discrete_laplace

KEY = (3, 5)
PERIOD = 8


def binomial():
    """Heads among 16 fair coins, less 8: noise of variance 4."""
    heads = 0
    for _ in range(16):
        heads += secrets.randbits(1)
    return heads - 8


def pancake():
    """Two numbers of which a secret combination lies near a multiple of 8."""
    while True:
        x, y = binomial(), binomial()
        if (KEY[0] * x + KEY[1] * y) % PERIOD < 3:
            return x, y


def scrambled(seed):
    """A permutation of 0 … 255 that someone who knows it can undo."""
    return (seed * 167 + 41) % 256


def seed_in_noise():
    """Two uniform bytes; the second is the first, encrypted."""
    seed = below(256)
    return seed, scrambled(seed)


def honest():
    """Two independent numbers of variance 4."""
    return binomial(), binomial()


def honest_laplace():
    """Two independent draws of discrete Laplace noise of scale 2."""
    return discrete_laplace(), discrete_laplace()
