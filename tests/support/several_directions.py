"""A key with k orthonormal directions and its noise, independent of how the library makes them."""

from functools import cached_property

import numpy as np
from oracles import along_key

from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake


def key_of(k, *, dim, beta, gamma, seed=0):
    class SeveralKey(PancakeKey):
        @cached_property
        def basis(self):
            return np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, k)))[0].T.copy()

    return SeveralKey(dim=dim, beta=beta, gamma=gamma, secret=bytes(32))


def draw(key, sigma, n, rng):
    """V = g + Uᵀ(c − U g), shape (n, dim)."""
    u, g = key.basis, rng.standard_normal((n, key.dim)) * sigma
    source = Pancake(
        key=PancakeKey(dim=key.dim, beta=key.beta, gamma=key.gamma, secret=bytes(32)), sigma=sigma
    )
    c = np.stack([along_key(source, n, rng=rng) for _ in u], 1)
    return g + (c - g @ u.T) @ u
