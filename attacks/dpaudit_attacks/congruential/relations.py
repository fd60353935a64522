"""Sums of few neighbouring uniforms that stay the same modulo 1: the planes of Marsaglia (1968).

In k neighbours x of a congruential generator modulo m, Σ c_i·x_i is constant modulo m for a lattice
of vectors c of determinant m: some are about m^(1/k) long. So Σ c_i·u_i modulo 1 hardly changes.

Behind Marsaglia's polar method some pairs of uniforms were rejected, and leave gaps: a relation
among four pairs holds where none of three was rejected, in (π/4)³ = 48 % of the windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpaudit.numeric.random_words import jit
from dpaudit_attacks.congruential.held_out import NOTHING, HeldOut, held_out
from dpaudit_attacks.congruential.known import LinearGenerator
from dpaudit_attacks.congruential.uniforms import Sequence

__all__ = [
    "DEEPER",
    "RISE",
    "SEARCH",
    "SHORTEST",
    "Recurrence",
    "Relations",
    "Search",
    "constancy",
    "model_of",
    "predict",
    "predict_pairs",
    "recurrence",
    "reordered",
    "use_once",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Rows = list[list[int]]

_LARGEST = 1 << 8  # of the coefficient by which an honest image's blur is multiplied
_CONCENTRATED = 0.5  # length of the mean of e^(2πi·phase) in the training half
_OWN = 512  # numbers of a published generator
_WINDOWS = 512  # of each half are looked at
_DELTA, _SWAPS = 0.99, 50_000

SHORTEST = 6
"""The largest coefficient of a vector that is used here is at least this."""
RISE = 1.25
"""Bound for the density of c·u modulo 1, c ≥ 6.

Given the other of its pair, u is uniform on an interval of length l, and E[1/l] = 4/π: the density
is at most 1 + 4/(π·c).
"""
_DENSITY = 4 / np.pi  # of one uniform of an accepted pair, at most
_TOLERANCE = 2.0**-12
_PAIRS = 1_000
_FITTED = 8  # pairs that tell the right state from wrong ones
_TRIES = 64


@dataclass(frozen=True, slots=True)
class Search:
    """Windows of ``width`` uniforms, ``windows`` of them, right to 2^-``bits``."""

    width: int
    windows: int
    bits: int

    def fits(self, sequence: Sequence) -> bool:
        """Whether the first half of the sequence has so many windows."""
        return len(sequence.u) // 2 - self.width >= self.windows * sequence.step


SEARCH = Search(8, 14, 14)
"""For moduli to 2^64, from 14 bits of each uniform."""
DEEPER = Search(8, 14, 28)
"""To 2^128, from 28."""


@dataclass(frozen=True, slots=True)
class Relations:
    """Vectors c (width, width) by length: a basis of the relations, if there are any."""

    vectors: Ints

    @classmethod
    def among(cls, sequence: Sequence, search: Search, rng: np.random.Generator) -> Relations:
        """By reduction, from windows at random places of the first half.

        A short vector of the lattice has c and, of each window, what Σ c_i·u_i lacks of the first
        one's modulo 1.
        """
        windows = _windows(sequence.u[: len(sequence.u) // 2], search.width, sequence.step)
        chosen = windows[rng.choice(len(windows), search.windows + 1, replace=False)]
        apart = chosen[1:] - chosen[0]
        apart -= np.rint(apart)
        width, more, unit = search.width, search.windows, 2.0**-search.bits
        basis = np.zeros((width + more, width + more))
        basis[:more, width:] = np.eye(more)
        basis[more:, :width] = unit * np.eye(width)
        basis[more:, width:] = apart.T
        rows = _reduce(basis)
        shortest = rows[np.argsort((rows * rows).sum(axis=1))[:width]]
        return cls(np.rint(shortest[:, :width] / unit).astype(np.int64))

    def testable(self) -> Ints:
        """The shortest that has a coefficient small enough for coarse honest values, if any has."""
        sizes = np.where(self.vectors, np.abs(self.vectors), _LARGEST + 1).min(axis=1)
        return np.asarray(self.vectors[int(np.argmax(sizes <= _LARGEST))])

    def hold(self, sequence: Sequence) -> bool:
        """Whether all of them seem to hold in the first half."""
        windows = _windows(sequence.u[: len(sequence.u) // 2], self.vectors.shape[1], sequence.step)
        phases = windows[-_WINDOWS:] @ self.vectors.T
        return bool((np.abs(np.exp(2j * np.pi * phases).mean(axis=0)) > _CONCENTRATED).all())


def constancy(sequence: Sequence, vector: Ints, *, rise: float = 1) -> HeldOut:
    """How constant Σ c_i·u_i is modulo 1, in windows of the second half that do not overlap.

    An honest image is blurred by its smallest coefficient; one above 2^8 is not counted. ``rise``,
    for uniforms that depend on another in their window: what they raise the density to at most,
    with the largest coefficient up to 2^8 instead.
    """
    sizes = np.abs(vector[vector != 0])
    sizes = sizes[sizes <= _LARGEST]
    u, width, half = sequence.u, len(vector), _half(sequence)
    if not len(sizes):
        return NOTHING
    before = _windows(u[:half], width, sequence.step)[-_WINDOWS:] @ vector
    apart = -(-width // sequence.step)
    after = _windows(u[half:], width, sequence.step)[::apart][:_WINDOWS] @ vector
    factor = float(sizes.max() if rise > 1 else sizes.min())
    return held_out(before, after, factor=factor, rise=rise)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Differences of two windows are (1, a_1, a_2, …)·s/m modulo 1, for some whole s."""

    modulus: int
    factors: tuple[int, ...]
    relations: Ints
    inverse: tuple[tuple[int, ...], ...]
    """That of ``relations``, times the modulus."""

    def state(self, apart: Floats) -> int:
        """The number s of the difference (width,) of two windows, known to a few bits."""
        whole: list[int] = np.rint(self.relations @ apart).astype(np.int64).tolist()
        return sum(a * n for a, n in zip(self.inverse[0], whole, strict=True)) % self.modulus


def recurrence(relations: Relations) -> Recurrence | None:
    """Modulus and multipliers of the lattice that the relations determine; None if none does."""
    inverse = _inverse(relations.vectors.tolist())
    if inverse is None or inverse[0] < 2:
        return None
    modulus, rows = inverse
    for column in zip(*rows, strict=True):
        try:
            back = pow(column[0], -1, modulus)
        except ValueError:  # not prime to the modulus
            continue
        factors = tuple(back * x % modulus for x in column)
        if all(
            (f * first - x) % modulus == 0
            for f, row in zip(factors, rows, strict=True)
            for first, x in zip(rows[0], row, strict=True)
        ):
            return Recurrence(modulus, factors, relations.vectors, tuple(map(tuple, rows)))
    return None


def model_of(generator: LinearGenerator) -> Recurrence | None:
    """The recurrence of a published generator's neighbours, from numbers of its own."""
    if not generator.modulus:
        return None
    own = np.array([x / generator.modulus for x in generator.numbers(1, _OWN)])
    search = SEARCH if generator.modulus <= 1 << 64 else DEEPER
    return recurrence(Relations.among(Sequence("", own), search, np.random.default_rng(0)))


def predict(sequence: Sequence, model: Recurrence, counted: Sequence | None = None) -> HeldOut:
    """Predict the second half from its first window, and from the first half.

    Both follow the same recurrence from two states, so do their differences, without a constant:
    u_(h+t) = u_t + (the difference at t). The first quarter of it serves to choose the tolerance.
    For steps below the width. The predictions are compared with ``counted``, by default with the
    sequence itself.
    """
    u, step, width = sequence.u, sequence.step, len(model.factors)
    half = _half(sequence)
    s = model.state(_centred(u[half : half + width] - u[:width]))
    # s grows by the factor of the first uniform of the next window
    by, states = model.factors[step], []
    for _ in range(half // step):
        states += [f * s % model.modulus for f in model.factors[:step]]
        s = s * by % model.modulus
    given = u[:half] + np.array([x / model.modulus for x in states])
    errors = _centred(u[half : 2 * half] - given)[width:]
    part = len(errors) // 4
    if counted is None:
        return held_out(errors[:part], errors[part:])
    others = _centred(counted.u[half : 2 * half] - given)[width:]
    return held_out(errors[:part], others[part:])


def reordered(sequence: Sequence, order: int = 0) -> Sequence:
    """The same uniforms, those of the second half in another order, by its number.

    The two of a pair stay together and at their place in a window, so what is left of a relation
    comes from the law of single values and pairs.
    """
    u, step = sequence.u.copy(), sequence.step
    width = 2 if step % 2 == 0 else 1
    start = _half(sequence)
    half = u[start : start + (len(u) - start) // step * step].reshape(-1, step // width, width)
    rng = np.random.default_rng(order)
    for place in range(half.shape[1]):
        half[:, place] = rng.permutation(half[:, place])
    return Sequence(sequence.transform, u, step)


def _half(sequence: Sequence) -> int:
    return len(sequence.u) // (2 * sequence.step) * sequence.step


def _windows(u: Floats, width: int, step: int) -> Floats:
    return np.lib.stride_tricks.sliding_window_view(u, width)[::step]


def _centred(x: Floats) -> Floats:
    return np.asarray(x - np.rint(x))


def predict_pairs(sequence: Sequence, generator: LinearGenerator) -> HeldOut:
    """Predict up to 1,000 pairs of the second half from four neighbouring ones of it.

    The first windows in turn give a state each. The state that gives the next 8 pairs is taken, and
    the first uniforms of the pairs after those are counted.
    """
    pairs = sequence.u[len(sequence.u) // 4 * 2 :].reshape(-1, 2)
    model = model_of(generator)
    if model is None:
        return NOTHING
    width = len(model.factors)
    # low bits that all states have in common: differences do not tell them
    apart = generator.modulus // model.modulus
    zeros = [np.array(generator.numbers(low, width)) / generator.modulus for low in range(apart)]
    for start in range(min(_TRIES, len(pairs) - 2 * _FITTED)):
        window = pairs[start : start + _PAIRS]
        for low, zero in enumerate(zeros):
            state = low + apart * model.state(_centred(window.ravel()[:width] - zero))
            near = _accepted_pairs(generator, state, _FITTED) - window[:_FITTED]
            if np.abs(_centred(near)).max() <= _TOLERANCE:
                errors = _centred(_accepted_pairs(generator, state, len(window)) - window)
                return held_out(errors[:_FITTED, 0], errors[_FITTED:, 0], rise=_DENSITY)
    return NOTHING


def _accepted_pairs(generator: LinearGenerator, state: int, pairs: int) -> Floats:
    """The next pairs (pairs, 2) inside the circle.

    Of 4·n + 64 uniforms at least n pairs are, but with probability 1e-20.
    """
    numbers = generator.numbers(state, 4 * pairs + 64)
    u = np.array([x / generator.modulus for x in numbers]).reshape(-1, 2)
    inside = np.square(2 * u - 1).sum(axis=1) < 1
    return np.asarray(u[inside][:pairs])


@jit
def _subtract(rows, mu, k, j):  # type: ignore[no-untyped-def]
    times = np.rint(mu[k, j])
    if times == 0:
        return
    for i in range(len(rows)):
        rows[k, i] -= times * rows[j, i]
    mu[k, j] -= times
    for i in range(j):
        mu[k, i] -= times * mu[j, i]


@jit
def _lattice(rows, mu, size, delta, most):  # type: ignore[no-untyped-def]
    """Reduce ``rows`` (n, n) in place, given their Gram-Schmidt coefficients and squared sizes."""
    n = len(rows)
    k, swaps = 1, 0
    while k < n and swaps < most:
        _subtract(rows, mu, k, k - 1)
        part = mu[k, k - 1]
        if size[k] >= (delta - part * part) * size[k - 1]:
            for j in range(k - 2, -1, -1):
                _subtract(rows, mu, k, j)
            k += 1
            continue
        swaps += 1
        new = size[k] + part * part * size[k - 1]
        turned = part * size[k - 1] / new
        size[k], size[k - 1] = size[k - 1] * size[k] / new, new
        for i in range(n):
            rows[k, i], rows[k - 1, i] = rows[k - 1, i], rows[k, i]
        for i in range(k - 1):
            mu[k, i], mu[k - 1, i] = mu[k - 1, i], mu[k, i]
        mu[k, k - 1] = turned
        for i in range(k + 1, n):
            above, here = mu[i, k - 1], mu[i, k]
            mu[i, k - 1] = here + turned * (above - part * here)
            mu[i, k] = above - part * here
        k = max(k - 1, 1)


def _reduce(basis: Floats) -> Floats:
    """A basis (n, n) reduced as Lenstra, Lenstra and Lovász do it (1982), in doubles.

    For at most some 40 rows whose entries lie within 2^45 of each other; after so many swaps (an
    order of magnitude above what such bases need) it returns what it has.
    """
    rows = np.array(basis, np.float64)
    r = np.linalg.qr(rows.T, mode="r")
    size = np.square(np.diag(r))
    _lattice(rows, np.ascontiguousarray((r / np.diag(r)[:, None]).T), size, _DELTA, _SWAPS)
    return rows


def _inverse(rows: Rows) -> tuple[int, Rows] | None:
    """(m, a) with a/m the inverse of an integer matrix and m its determinant's magnitude.

    None if it is singular.
    """
    n = len(rows)
    left = [[Fraction(x) for x in row] for row in rows]
    right = [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]
    m = Fraction(1)
    for k in range(n):
        pivot = next((i for i in range(k, n) if left[i][k]), None)
        if pivot is None:
            return None
        left[k], left[pivot] = left[pivot], left[k]
        right[k], right[pivot] = right[pivot], right[k]
        by = left[k][k]
        m *= by
        left[k] = [x / by for x in left[k]]
        right[k] = [x / by for x in right[k]]
        for i in range(n):
            times = left[i][k]
            if i != k and times:
                left[i] = [x - times * y for x, y in zip(left[i], left[k], strict=True)]
                right[i] = [x - times * y for x, y in zip(right[i], right[k], strict=True)]
    whole = abs(int(m))
    return whole, [[int(x * whole) for x in row] for row in right]


def use_once() -> None:
    """Reduce a small lattice: numba imports much of itself, and compiles, on first use."""
    _reduce(np.eye(2))
