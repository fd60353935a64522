"""The common pitfalls of jax_privacy's documentation, planted in DP-SGD of a few lines.

Each function does what the page warns of, and is wrong; two of its twelve, about floating point,
are not for a replay. The claim of all: (2.6, 1e-5)-DP, one record more or less; noise of 3 per unit
in 4 steps is ε = 2.51, were it not for the mistake.
"""

import numpy as np

STEPS, NOISE, RATE = 4, 3.0, 0.1


def _table(data):
    rows = [[p["age"] / 100, p["income"] / 100, p["city"] == "Wien"] for p in data]
    table = np.array(rows, dtype=float).reshape(-1, 3)
    return table[:, :2], table[:, 2]


def _gradients(x, y, w, clip=1.0, safe=True):
    found = ((1 / (1 + np.exp(-x @ w))) - y)[:, None] * x
    found = np.nan_to_num(found, posinf=0.0, neginf=0.0) if safe else found
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True) / clip, 1.0)


def _train(data, step, rng=None):
    rng = np.random.default_rng() if rng is None else rng
    (x, y), w = _table(data), np.zeros(2)
    for _ in range(STEPS):
        w = w - RATE * step(x, y, w, rng)
    return w


def right(data):
    """No mistake."""
    return _train(data, lambda x, y, w, rng: _gradients(x, y, w).sum(0) + rng.normal(0, NOISE, 2))


def division_by_batch_size(data):
    """The noised sum is divided by the number of records that were drawn."""

    def step(x, y, w, rng):
        drawn = rng.random(len(x)) < 0.5
        noisy = _gradients(x[drawn], y[drawn], w).sum(0) + rng.normal(0, NOISE, 2)
        return noisy / max(drawn.sum(), 1)

    return _train(data, step)


def sensitivity_alignment(data):
    """Clipped to 30, with noise for 1."""

    def step(x, y, w, rng):
        return _gradients(40 * x, y, w, clip=30.0).sum(0) + rng.normal(0, NOISE, 2)

    return _train(data, step)


def accounting_mismatch(data):
    """Noise for Poisson batches of rate 0.1; every step takes all records."""

    def step(x, y, w, rng):
        return _gradients(x + 1, y, w).sum(0) + rng.normal(0, 0.1 * NOISE, 2)

    return _train(data, step)


def public_metadata(data):
    """The number of records is published beside the weights."""
    return {"weights": right(data), "records": len(data)}


def neighbouring_relation(data):
    """Right for one record more or less; the claim is for one that is replaced."""

    def step(x, y, w, rng):
        signed = np.where(y[:, None] > 0, 1.0, -1.0) * _gradients(x + 5, 0 * y, 0 * w)
        return signed.sum(0) + rng.normal(0, NOISE, 2) / 2

    return _train(data, step)


def non_finite_gradients(data):
    """One infinite value makes the weights NaN, whatever the noise."""

    def step(x, y, w, rng):
        return _gradients(x, y, w, safe=False).sum(0) + rng.normal(0, NOISE, 2)

    return _train(data, step)


def zero_sized_batches(data):
    """The mean of no records is an error."""

    def step(x, y, w, rng):
        if not len(x):
            raise ValueError("empty batch")
        return _gradients(x, y, w).sum(0) + rng.normal(0, NOISE, 2)

    return _train(data, step)


def gradient_accumulation(data):
    """Each half of a batch is clipped as one sum, and noise is added for each half that has one."""

    def step(x, y, w, rng):
        total = np.zeros(2)
        for start in range(0, len(x), 20):
            part = _gradients(x[start : start + 20], y[start : start + 20], w).sum(0)
            total += part + rng.normal(0, NOISE, 2)
        return total

    return _train(data, step)


def cross_example_operations(data):
    """Features are centred by the batch's own mean, which one record moves for all."""

    def step(x, y, w, rng):
        centred = (x - x.mean(0)) / (x.std(0) + 1e-3) if len(x) else x
        return _gradients(centred, y, w).sum(0) + rng.normal(0, NOISE, 2)

    return _train(data, step)


def auxiliary_information(data):
    """The loss is reported beside the weights."""
    x, y = _table(data)
    w = right(data)
    loss = np.logaddexp(0, x @ w) - y * (x @ w)
    return {"weights": w, "loss": float(loss.mean()) if len(loss) else 0.0}


def randomness(data):
    """Everybody knows the seed."""

    def step(x, y, w, rng):
        return _gradients(x, y, w).sum(0) + rng.normal(0, NOISE, 2)

    return _train(data, step, np.random.default_rng(42))
