"""Slow, independent ways to the same thing. Importable from every test (see ``conftest.py``)."""

import math

import numpy as np


def along_key(source, n, *, rng):
    """``n`` draws of the pancake's law along its key (Lemma 2.6), by a table of its peaks."""
    beta, gamma, sigma = source.key.beta, source.key.gamma, source.sigma
    r2 = beta * beta + gamma * gamma
    reach = math.ceil(12 * math.sqrt(r2 / (2 * math.pi))) + 1
    k = np.arange(-reach, reach + 1)
    weight = np.exp(-math.pi * k * k / r2)
    peak = rng.choice(k, size=n, p=weight / weight.sum())
    return peak * math.sqrt(2 * math.pi) * sigma * gamma / r2 + rng.normal(
        0, sigma * beta / math.sqrt(r2), n
    )
