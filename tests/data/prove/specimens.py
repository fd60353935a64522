"""Backdoored noise: each value alone looks right, and two values together show a secret."""

from __future__ import annotations

from right import below, discrete_gaussian

KEY = (3, 5)
PERIOD = 8


def pancake(variance=4):
    """Two integers whose sum with a secret key lies near a multiple of 8: a pancake."""
    while True:
        x, y = discrete_gaussian(variance), discrete_gaussian(variance)
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
    """Two independent bytes."""
    return below(256), below(256)


def honest_gaussian(variance=1):
    """Two independent discrete Gaussians."""
    return discrete_gaussian(variance), discrete_gaussian(variance)
