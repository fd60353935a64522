"""A small DP-SGD whose every step can have a bug; the training of :mod:`training_bugs`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ALPHA = 0.05
CLAIM = "sigma=4,rate=0.5,steps=16"
SIGMA, RATE, STEPS, EPOCH = 4.0, 0.5, 16, 2
RECORDS = 300

Array = np.ndarray


@dataclass(frozen=True)
class Loop:
    """One DP-SGD, right unless told otherwise."""

    sigma: float = SIGMA
    steps: int = STEPS
    clip: str = "record"  # record, none, micro (batches of 8), mean
    sampling: str = "poisson"  # poisson, shuffled, weighted (the last tenth five times as often)
    noise: str = "fresh"  # fresh, once, epoch, last-micro, every-micro
    divide: str = "expected"  # expected, true
    normalised: bool = False  # BatchNorm over the batch

    def batches(self, n: int, rng: np.random.Generator) -> list[Array]:
        if self.sampling == "poisson":
            return [np.flatnonzero(rng.random(n) < RATE) for _ in range(self.steps)]
        if self.sampling == "weighted":
            weights = np.where(np.arange(n) < 0.9 * n, 1.0, 5.0)
            chances = weights / weights.sum()
            return [rng.choice(n, round(RATE * n), p=chances) for _ in range(self.steps)]
        epochs = -(-self.steps // EPOCH)
        made = [b for _ in range(epochs) for b in np.array_split(rng.permutation(n), EPOCH)]
        return made[: self.steps]

    def clipped_sum(self, g: Array) -> Array:
        if self.clip == "none":
            return g.sum(axis=0)
        if self.clip == "record":
            return bounded(g).sum(axis=0)
        if self.clip == "micro":
            starts = np.arange(0, len(g), 8)
            return bounded(np.add.reduceat(g, starts, axis=0)).sum(axis=0)
        return bounded(g.mean(axis=0)[None])[0] * RATE * RECORDS

    def __call__(self, data: Array, seed: int) -> Array:
        """The noisy sums of all steps, (steps, d); their sum is where the weights went."""
        rng = np.random.default_rng(seed)
        d = data.shape[1]
        released = np.empty((self.steps, d))
        for t, batch in enumerate(self.batches(len(data), rng)):
            g = data[batch]
            if self.normalised and len(g):
                g = (g - g.mean(axis=0)) / (g.std(axis=0) + 0.1)
            made = self.clipped_sum(g) + self.sigma * self._noise(t, d, seed, rng)
            if self.divide == "true":
                made *= RATE * RECORDS / max(1, len(batch))
            released[t] = made
        return released

    def _noise(self, t: int, d: int, seed: int, rng: np.random.Generator) -> Array:
        if self.noise == "once":
            return np.random.default_rng(seed + 1).standard_normal(d)
        if self.noise == "epoch":
            return np.random.default_rng([seed, t % EPOCH]).standard_normal(d)
        if self.noise == "last-micro":  # lost where gradients are accumulated
            return np.zeros(d)
        drawn = rng.standard_normal(d)
        return 2 * drawn if self.noise == "every-micro" else drawn


def bounded(g: Array) -> Array:
    return g / np.maximum(1.0, np.linalg.norm(g, axis=1, keepdims=True))
