"""Samplers with a fixed seed, right and flawed, that `make golden` audits: f(n, d) -> (n, d)."""

import numpy as np

_rng = np.random.default_rng(11)
_old = np.random.RandomState(11)
_calls = 0


def normal(n, d):
    return _rng.normal(size=(n, d))


def laplace(n, d):
    return _rng.laplace(size=(n, d))


def laplace_wide(n, d):
    return 1.03 * _rng.laplace(size=(n, d))


def rounded(n, d):
    """The integers nearest to a normal of σ = 2: not the discrete Gaussian."""
    return np.rint(_rng.normal(0, 2, size=(n, d)))


def wide(n, d):
    return 1.02 * normal(n, d)


def cut(n, d):
    return np.clip(normal(n, d), -3.5, 3.5)


def hole(n, d):
    z = normal(n, d)
    return np.where((z > 0.4) & (z < 0.5), z + 1, z)


def sixteen_bits(n, d):
    u = (_rng.integers(0, 2**16, size=(2, n, d)) + 0.5) / 2**16
    return np.sqrt(-2 * np.log(u[0])) * np.cos(2 * np.pi * u[1])


def coarse(n, d):
    return np.round(normal(n, d), 3)


def low_bits(n, d):
    return (normal(n, d).view(np.int64) >> 20 << 20).view(np.float64)


def correlated(n, d):
    z = _rng.normal(size=n * d + 1)
    return ((z[1:] + 0.02 * z[:-1]) / np.sqrt(1 + 0.02**2)).reshape(n, d)


def shared(n, d):
    return np.sqrt(0.97) * normal(n, d) + np.sqrt(0.03) * _rng.normal(size=(n, 1))


def flat(n, d):
    """Nothing along one direction."""
    z, w = normal(n, d), np.ones(d) / np.sqrt(d)
    return z - np.outer(z @ w, w) if d > 1 else z


def sphere(n, d):
    z = normal(n, d)
    return z / np.linalg.norm(z, axis=1, keepdims=True) * np.sqrt(d) if d > 1 else z


def antithetic(n, d):
    z = normal(n, d)
    z[1::2] = -z[: 2 * (n // 2) : 2]
    return z


def lagged(n, d):
    z = normal(n, d).ravel()
    z[1000:] = np.sqrt(1 - 0.1**2) * z[1000:] + 0.1 * z[:-1000]
    return z.reshape(n, d)


def pool(n, d):
    return _rng.choice(np.random.default_rng(1).normal(size=4096), size=(n, d))


def shrinking(n, d):
    global _calls
    _calls += n * d
    return normal(n, d) * (1 - min(_calls, 300_000) / 5_000_000)


def fixed_seed(n, d):
    return np.random.default_rng(3).normal(size=(n, d))


def special(n, d):
    return normal(n, d) * (1.1 if d == 1 else 1)


def legacy(n, d):
    """MT19937 and the polar method: noise that can be computed from noise seen."""
    return _old.normal(size=(n, d))


def thick_pancake(n, d):
    """γ = 1 along the first axis: a direction that needs no key."""
    z = normal(n, d)
    z[:, 0] = (np.rint(3 * z[:, 0]) + 0.05 * _rng.normal(size=n)) / 3
    return z


def on_value(value):
    """Noise that is narrower where the value is above 0."""
    return value + (0.9 if value > 0 else 1.0) * _rng.normal()


def add_laplace(value, n):
    return value + _rng.laplace(size=n)


def add_narrow_laplace(value, n):
    return np.round(value + 0.8 * _rng.laplace(size=n), 1)


def add_grid_laplace(value, n):
    return np.round(value) + _rng.geometric(1 - np.exp(-1), n) - _rng.geometric(1 - np.exp(-1), n)


def count_rows(dataset, n):
    """A dict, with the number of rows and noise that is too small."""
    return [{"rows": len(dataset), "noisy": len(dataset) + _rng.laplace() / 2} for _ in range(n)]


def train(dataset, seed):
    return dataset.sum(axis=0) + np.random.default_rng(seed).normal(0, 1.0, 400)


def train_quietly(dataset, seed):
    return dataset.sum(axis=0) + np.random.default_rng(seed).normal(0, 0.2, 400)


def data():
    return np.zeros((50, 400))


canaries = np.eye(400)


def score(model, record):
    return float(model @ record)
