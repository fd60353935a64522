"""The loop of :mod:`training_bugs` as a small network on MNIST, with canaries of one dark pixel.

1,000 digits, 784-16-10 with tanh (12,704 weights), the claim of :mod:`training_bugs`. A canary is
an image that is dark but for one pixel, which no digit uses, with a random label: its gradient is
nearly orthogonal to all others. It is scored by how far its pixel's weights moved along its first
gradient. MNIST is read from the folder that ``DPAUDIT_DATA`` names (``mnist.npz``), or
downloaded.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np

import dpaudit
from dpaudit.audit.result import MechanismResult
from dpaudit.training.data import load_images
from dpaudit_studies.evidence.training_bugs import (
    ALPHA,
    CLAIM,
    EPOCH,
    RATE,
    STEP_CLAIM,
    Array,
    Loop,
    longer,
)

DIGITS, HIDDEN, LABELS = 1_000, 16, 10
WEIGHTS = 784 * HIDDEN + HIDDEN * LABELS
CANARIES = 100
LEARNING_RATE = 2.0


@cache
def digits() -> tuple[Array, Array]:
    images = load_images("mnist")
    pixels = images.pixels[:DIGITS].reshape(DIGITS, -1).astype(np.float32)
    return pixels / 255, images.labels[:DIGITS]


@cache
def dark() -> Array:
    """The pixels of the canaries."""
    return np.flatnonzero(digits()[0].max(axis=0) == 0)[:CANARIES]


@cache
def start() -> tuple[Array, Array]:
    """Weights that every training starts from: they are no secret."""
    rng = np.random.default_rng(0)
    first = rng.normal(0, 1 / 28, (784, HIDDEN)).astype(np.float32)
    return first, rng.normal(0, HIDDEN**-0.5, (HIDDEN, LABELS)).astype(np.float32)


def canaries(n: int = CANARIES) -> tuple[Array, Array]:
    x = np.zeros((n, 784), dtype=np.float32)
    x[np.arange(n), dark()[:n]] = 10.0
    return x, np.random.default_rng(1).integers(0, LABELS, n)


@dataclass(frozen=True)
class Factors:
    """Every record's gradient, as the outer products of inputs and errors of both layers."""

    x: Array
    first: Array
    h: Array
    second: Array

    @classmethod
    def of(cls, x: Array, y: Array, w1: Array, w2: Array, *, normalised: bool = False) -> Factors:
        z = x @ w1
        spread = z.std(axis=0) + 0.1 if normalised else 1.0
        z = (z - z.mean(axis=0)) / spread if normalised else z
        h = np.tanh(z)
        logits = h @ w2
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = p / p.sum(axis=1, keepdims=True)
        error[np.arange(len(y)), y] -= 1
        back = (error @ w2.T) * (1 - h**2)
        if normalised:
            back = (back - back.mean(axis=0) - z * (back * z).mean(axis=0)) / spread
        return cls(x, back, h, error)

    def norms(self) -> Array:
        a, b, c, d = (np.square(part).sum(axis=1) for part in vars(self).values())
        return np.sqrt(a * b + c * d)

    def total(self, weights: Array | float) -> Array:
        """The weighted sum of all gradients, as one vector."""
        first, second = (np.multiply(weights, part.T) for part in (self.first, self.second))
        return np.concatenate([(first @ self.x).T.ravel(), (second @ self.h).T.ravel()])

    def norms_of_eights(self) -> Array:
        """The norm of the sum of each record's micro-batch of eight, by inner products."""
        n = len(self.x)
        x, first, h, second = (
            np.pad(part, ((0, -n % 8), (0, 0))).reshape(-1, 8, part.shape[1])
            for part in vars(self).values()
        )
        inner = [part @ part.transpose(0, 2, 1) for part in (x, first, h, second)]
        squares = (inner[0] * inner[1] + inner[2] * inner[3]).sum(axis=(1, 2))
        return np.repeat(np.sqrt(np.maximum(squares, 0)), 8)[:n]


def bounded(g: Array) -> Array:
    return g / max(1.0, float(np.linalg.norm(g)))


@dataclass(frozen=True)
class OnDigits(Loop):
    """The same loop; returns all steps' noisy sums at the canaries' pixels, (steps, n, hidden)."""

    def clipped(self, g: Factors) -> Array:
        n = len(g.x)
        if self.clip == "none":
            return g.total(1.0)
        if self.clip == "record":
            return g.total(1 / np.maximum(1.0, g.norms()))
        if self.clip == "micro":
            return g.total(1 / np.maximum(1.0, g.norms_of_eights()))
        return bounded(g.total(1 / n)) * RATE * DIGITS

    def trained(self, data: tuple[Array, Array], seed: int) -> tuple[Array, Array]:
        """All steps' noisy sums at the canaries' pixels, and the last weights."""
        x, y = data
        rng = np.random.default_rng(seed)
        w = np.concatenate([part.ravel() for part in start()])
        released = np.empty((self.steps, len(dark()), HIDDEN))
        for t, batch in enumerate(self.batches(len(x), rng)):
            released[t], w = self._moved(w, (x[batch], y[batch]), t, seed, rng)
        return released, w

    def _moved(
        self, w: Array, batch: tuple[Array, Array], t: int, seed: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """A step's noisy sum at the canaries' pixels, (n, hidden), and the weights after it."""
        g = Factors.of(*batch, *layers(w), normalised=self.normalised)
        noisy = self.clipped(g) + self.sigma * self._noise(t, len(w), seed, rng)
        if self.divide == "true":
            noisy *= RATE * DIGITS / max(1, len(batch[0]))
        w = (w - LEARNING_RATE / (RATE * DIGITS) * noisy).astype(np.float32)
        return layers(noisy)[0][dark()], w

    def step_by_step(self, dataset: Any, seed: int) -> Generator[tuple[Array, Array], Any, None]:
        """Yields each step's noisy sum at the canaries' pixels, and the weights before it."""
        rng = np.random.default_rng(seed)
        w = np.concatenate([part.ravel() for part in start()])
        for t in range(self.steps):
            (batch,) = replace(self, steps=1).batches(len(dataset[0]), rng)
            before = w
            visible, w = self._moved(w, tuple(part[batch] for part in dataset), t, seed, rng)
            dataset = yield visible, before

    def __call__(self, data: tuple[Array, Array], seed: int) -> Array:  # type: ignore[override]
        return self.trained(data, seed)[0]


def on_digits(loop: Loop) -> OnDigits:
    return OnDigits(**{field.name: getattr(loop, field.name) for field in fields(loop)})


def accuracy(loop: OnDigits) -> float:
    """On the training digits, without canaries."""
    x, y = digits()
    first, second = layers(loop.trained((x, y), 1)[1])
    return float(((np.tanh(x @ first) @ second).argmax(axis=1) == y).mean())


def by_weights(released: Array, images: Any) -> Array:
    """How far each canary's pixel moved along the canary's gradient at the start."""
    return along(released.sum(axis=0), images, start())


def along(visible: Array, images: Any, weights: tuple[Array, Array]) -> Array:
    """What lies at each canary's pixel, (n, hidden), along its gradient at these weights."""
    x, y = images
    direction = Factors.of(x, y, *weights).first
    direction = direction / np.linalg.norm(direction, axis=1, keepdims=True)
    return np.asarray((visible[: len(x)] * direction).sum(axis=1))


def by_step(seen: tuple[Array, Array], images: Any) -> Array:
    """As :func:`by_weights` for one step, along the gradients at the weights before it."""
    visible, w = seen
    return along(visible, images, layers(w))


def layers(w: Array) -> tuple[Array, Array]:
    """Both layers of weights that are one vector."""
    cut = 784 * HIDDEN
    return w[:cut].reshape(784, HIDDEN), w[cut:].reshape(HIDDEN, LABELS)


def by_steps(released: Array, images: Any) -> Array:
    """Where noise repeats, gradients less those of an epoch before show batches bare."""
    visible = released[:, : len(images[0])]
    return np.asarray(np.linalg.norm(visible[EPOCH:] - visible[:-EPOCH], axis=2).max(axis=0))


def run_level(loop: Loop, scores: Any, runs: int, seed: int, n: int = CANARIES) -> MechanismResult:
    return dpaudit.audit_training(
        on_digits(loop), digits(), canaries=canaries(n), scores=scores, runs=runs, dpsgd=CLAIM,
        alpha=ALPHA, seed=seed,
    )  # fmt: skip


def step_by_step_level(loop: Loop, seed: int) -> MechanismResult:
    return dpaudit.audit_training(
        on_digits(longer(loop)).step_by_step, digits(), canaries=canaries(), scores=by_step,
        dpsgd=STEP_CLAIM, alpha=ALPHA, seed=seed, sequential=True,
    )  # fmt: skip
