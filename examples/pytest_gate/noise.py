"""Two samplers of N(0, 1): one as numpy draws it, one with a flaw that no histogram shows."""

import numpy as np

generator = np.random.default_rng()  # seeded by the operating system


def honest(n, d):
    return generator.standard_normal((n, d))


def flawed(n, d):
    """Antithetic pairs, a trick from simulation: each number comes back with the other sign."""
    half = generator.standard_normal((n, (d + 1) // 2))
    return np.concatenate([half, -half], axis=1)[:, :d]


def private_count(value, n):
    """A count with two-sided geometric noise, scale 1: (1, 0)-DP in exact whole numbers."""
    p = 1 - np.exp(-1.0)
    return value + generator.geometric(p, n) - generator.geometric(p, n)
