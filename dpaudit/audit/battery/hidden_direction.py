"""Hidden directions in rows: searched on one half of the rows, judged on the other.

The search looks for directions and frequencies along which the training rows are least Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery import detectable_effect
from dpaudit.audit.battery.parts import no_evidence
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni, chi_square_two_sided, kolmogorov_p
from dpaudit.types import BlindSpot, Evidence, Interval

__all__ = ["HiddenDirection", "best_frequencies", "climb", "fourth_order_p", "phase_p", "scan"]

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.float32]
_REACH = 8.0
_PROJECTION_CELLS = 512
_GRID = {1: 4096, 2: 256, 3: 64, 4: 32}  # cells per axis
_SPAN = {1: 16.0, 2: 16.0, 3: 10.0, 4: 8.0}  # length of an axis: frequencies in steps of 1/span
_LOWEST = 0.5  # below this frequency a Gaussian's characteristic function is not negligible


def _unit(w: Array) -> Array:
    return np.asarray(w / np.maximum(np.linalg.norm(w, axis=0), np.finfo(np.float64).tiny))


def _outer_eigenvectors(matrix: npt.NDArray[np.float32], count: int) -> Array:
    _, vectors = np.linalg.eigh(matrix.astype(np.float64))
    if vectors.shape[1] <= 2 * count:
        return vectors
    return np.hstack([vectors[:, :count], vectors[:, -count:]])


def covariance_directions(x: Rows, *, count: int) -> Array:
    """The ``count`` strongest and weakest eigenvectors of XᵀX, shape (d, ≤ 2·count)."""
    return _outer_eigenvectors(x.T @ x, count)


def fourth_moment_directions(x: Rows, *, count: int) -> Array:
    """The same for Σ(|x|² − d − 2)·xxᵀ, which has mean 0 for N(0, I) (FOBI: Cardoso 1989)."""
    weight = np.einsum("ij,ij->i", x, x) - (x.shape[1] + 2)
    return _outer_eigenvectors(x.T @ (x * weight[:, None]), count)


def pursue(x: Rows, start: Array, *, steps: int) -> tuple[Array, Array]:
    """FastICA's fixed point for the fourth cumulant, w ← E[x⟨x,w⟩³] − 3w (Hyvärinen and Oja 1997).

    From the columns of ``start`` (d, k); returns unit vectors (d, k) and their projections' fourth
    cumulants (k,).
    """
    w = _unit(start)
    size = np.ones(w.shape[1])
    for _ in range(steps):
        y = np.clip(x @ w.astype(np.float32), -_REACH, _REACH)
        cube = y * y * y
        moved = (x.T @ cube).astype(np.float64) / len(x) - 3 * w
        size = np.einsum("ij,ij->j", w, moved)
        w = _unit(moved)
    return w, size


def best_frequencies(x: Rows, w: Array) -> tuple[Array, Array]:
    """Per unit vector of ``w`` (d, k): the f ≥ ½ with the largest |mean exp(2πif⟨x,w⟩)|, its size.

    Both have shape (k,). f is in steps of 1/16, by the FFT of a histogram wrapped to [−8, 8):
    wrapping changes no frequency that is a multiple.
    """
    y = x @ w.astype(np.float32)
    cell = np.floor(y * (_PROJECTION_CELLS / (2 * _REACH))).astype(np.int64) % _PROJECTION_CELLS
    cell += np.arange(w.shape[1]) * _PROJECTION_CELLS
    counts = np.bincount(cell.ravel(), minlength=_PROJECTION_CELLS * w.shape[1])
    size = np.abs(np.fft.rfft(counts.reshape(w.shape[1], -1), axis=1)) / len(x)
    first = int(_LOWEST * 2 * _REACH)
    best = first + size[:, first:].argmax(1)
    return best / (2 * _REACH), size[np.arange(w.shape[1]), best]


def scan(x: Rows, *, count: int) -> Array:
    """For d ≤ 4: the ``count`` vectors u of a grid with the largest |mean exp(2πi⟨x,u⟩)|, |u| ≥ ½.

    The result has shape (d, count). One d-dimensional FFT of the wrapped histogram of the rows
    gives every u of the grid at once.
    """
    d = x.shape[1]
    cells, span = _GRID[d], _SPAN[d]
    index = np.floor(x * (cells / span)).astype(np.int64) % cells
    flat = np.ravel_multi_index(tuple(index.T), (cells,) * d)
    counts = np.bincount(flat, minlength=cells**d).reshape((cells,) * d)
    size = np.abs(np.fft.rfftn(counts))
    axes = [np.fft.fftfreq(cells, span / cells)] * (d - 1) + [np.fft.rfftfreq(cells, span / cells)]
    square = sum(
        np.reshape(a * a, [-1 if i == j else 1 for j in range(d)]) for i, a in enumerate(axes)
    )
    size[square < _LOWEST**2] = 0.0
    best = np.unravel_index(np.argpartition(size.ravel(), -count)[-count:], size.shape)
    return np.stack([axis[i] for axis, i in zip(axes, best, strict=True)])


def climb(x: Rows, start: Array, *, steps: int) -> tuple[Array, Array]:
    """Maximise |mean exp(2πi⟨x,u⟩) − exp(−2π²|u|²)| from the columns of ``start`` (d, k).

    Returns u and that size. One step adds ∇log|·|²/(8π²), which is Newton's on the peak of a
    pancake (|·| ∝ exp(−2π²|u − u*|²)), at most ¼ long.
    """
    u = start.copy()
    size = np.zeros(u.shape[1])
    best, largest = u.copy(), size.copy()
    for _ in range(steps):
        phase = x @ (2 * math.pi * u).astype(np.float32)
        c, s = np.cos(phase), np.sin(phase)
        gauss = np.exp(-2 * math.pi**2 * np.einsum("ij,ij->j", u, u))
        real, imaginary = c.mean(0) - gauss, s.mean(0)
        size = np.hypot(real, imaginary)
        better = size > largest
        best[:, better], largest[better] = u[:, better], size[better]
        d_real = -2 * math.pi * (x.T @ s).astype(np.float64) / len(x) + 4 * math.pi**2 * gauss * u
        d_imaginary = 2 * math.pi * (x.T @ c).astype(np.float64) / len(x)
        move = (
            (real * d_real + imaginary * d_imaginary)
            / np.maximum(size, 1e-12) ** 2
            / (4 * math.pi**2)
        )
        u = u + move * np.minimum(1.0, 0.25 / np.maximum(np.linalg.norm(move, axis=0), 1e-12))
    return best, largest


_COLUMNS = 64
_DIMENSIONS = 12
_VALUES = 1 << 20  # kept of each d for training, and as many for judging
_ROWS = 1 << 16
_CLIMBED = 1 << 13  # rows that the gradient ascent reads
_FEWEST = 100
_SCANNED = 4  # largest d of a full frequency scan
_CELLS = 4096
_NET = 16
_KINDS = ("variance", "distance", "fourth order", "phase")
_EACH = 6  # candidates that each way of searching may add
_SHOWN = 1e-4
_CONFIDENCE = 0.95

_MIDDLE = 2 * (np.arange(_CELLS) + 0.5) / _CELLS - 1
_FOURTH = 3 / 8 * (35 * _MIDDLE**4 - 30 * _MIDDLE**2 + 3)  # Legendre's P₄ on (0, 1), of variance 1


def fourth_order_p(counts: npt.NDArray[np.int64]) -> float:
    """Neyman's smooth test of order 4 of ``counts`` in 4096 equal cells of (0, 1).

    It detects laws that are flat-topped, peaked or bimodal.

    Chernoff's bound at s = the observed mean t, P(mean ≥ t) ≤ exp(−n(st − log E exp(s·P₄))), for
    either sign.

    Formal guarantee: super-uniform for every n; about 5 times the true tail at 1e-3, 12 times at
    1e-6.
    """
    n = int(counts.sum())
    t = float(counts @ _FOURTH) / n
    sign = math.copysign(1.0, t)
    log = math.log(float(np.exp(abs(t) * sign * _FOURTH).mean()))
    return min(1.0, 2 * math.exp(-n * (t * t - log)))


def phase_p(real: float, imaginary: float, *, n: int, frequency: float) -> float:
    """P-value of R = |mean exp(2πify) − exp(−2π²f²)| for n values y ~ N(0, 1).

    ``real`` and ``imaginary`` are the mean's parts.

    Some of 16 directions of the plane lies within π/16 of the difference, so R ≥ r needs a mean of
    at least r·cos(π/16) along one of them; each is bounded by Chernoff with s = 2r and the exact E
    exp(s·cos(2πfy − θ)) = I₀(s) + 2Σ I_k(s)·cos(kθ)·exp(−2π²f²k²).

    Formal guarantee: super-uniform for every n and f. Sharper than the union of Hoeffding's,
    4·exp(−nR²/4): about 16·exp(−0.96·nR²).
    """
    k = np.arange(1, 40)
    rho = np.exp(-2 * math.pi**2 * frequency**2 * k**2)
    r = math.hypot(real - rho[0], imaginary)
    if r == 0:
        return 1.0
    s = min(2 * r, 20.0)
    theta = 2 * math.pi * np.arange(_NET) / _NET
    bessel = scipy.special.iv(k, s) * rho
    moment = scipy.special.iv(0, s) + 2 * np.cos(np.outer(theta, k)) @ bessel
    exponent = s * (r * math.cos(math.pi / _NET) + rho[0] * np.cos(theta)) - np.log(moment)
    return min(1.0, float(np.exp(-n * np.maximum(exponent, 0.0)).sum()))


@dataclass(slots=True)
class _Halves:
    """Rows of one d: those that candidates come from, and those that judge them."""

    train: list[Rows] = field(default_factory=list)
    judge: list[Rows] = field(default_factory=list)
    trained: int = 0
    judged: int = 0
    views: list[_View] = field(default_factory=list)  # of these rows, after a search

    def add(self, z: Array, most: int) -> None:
        cut = (len(z) + (self.trained <= self.judged)) // 2
        cut, rest = min(cut, most - self.trained), min(len(z) - cut, most - self.judged)
        self.train.append(z[:cut].astype(np.float32))
        self.judge.append(z[len(z) - rest :].astype(np.float32))
        self.trained += cut
        self.judged += rest
        self.views = []

    def search(self, rng: np.random.Generator) -> list[_View]:
        """All candidates of the training rows on the other rows; cached until rows are added."""
        if not self.views:
            w, u = _candidates(np.concatenate(self.train), rng)
            self.views = _judge(np.concatenate(self.judge), w, u)
        return self.views


class HiddenDirection:
    """Non-Gaussian component search in rows of d ≤ 64, for the first 12 such d.

    Half of each block (up to 2^20 values and 2^16 rows of each d) is for training: eigenvectors of
    the second and of weighted fourth moments, a few steps of FastICA from those and from random
    starts, and vectors u with a large characteristic function |E exp(2πi⟨x,u⟩)|: for d ≤ 4 by a
    scan of all frequencies up to about 2 (d = 4), 3 (d = 3) and 8 (d = 2), for larger d by gradient
    ascent from those directions and from random ones. The search only happens in :meth:`evidence`,
    for a fraction of a second.

    Null, given the training half: the other half's projections y on a candidate are independent
    N(0, 1). Judged by the exact χ² law of Σy², Kolmogorov-Smirnov, :func:`fourth_order_p` and
    :func:`phase_p`; Bonferroni over all of them.

    Not claimed: finding what training misses, above all a pancake with γ ≥ 2√d in d > 4, which is
    as hard as lattices.
    """

    looks_at = "hidden directions in rows of up to 64"
    harm = "hidden"
    costly = True

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim
        self._stream = stream
        self._halves: dict[int, _Halves] = {}

    def update(self, block: Block) -> None:
        d = block.z.shape[1]
        if d > _COLUMNS:
            return
        if d not in self._halves:
            if len(self._halves) == _DIMENSIONS:
                return
            self._halves[d] = _Halves()
        halves, most = self._halves[d], min(_VALUES // d, _ROWS)
        if halves.trained < most or halves.judged < most:
            halves.add(block.z, most)

    def evidence(self, *, alpha: float) -> Evidence:
        parts: dict[str, float] = {}
        most_unusual: dict[str, _View] = {}
        rows: dict[str, int] = {}
        tried = 0
        for d, halves in self._halves.items():
            if min(halves.trained, halves.judged) < _FEWEST:
                continue
            views = halves.search(self._stream.child("starts", d).numpy())
            tried += len(views)
            for kind in _KINDS:
                name, alike = f"d={d}, {kind}", [v for v in views if v.kind == kind]
                parts[name] = bonferroni([v.p for v in alike])
                most_unusual[name] = min(alike, key=lambda v: v.p)
                rows[name] = halves.judged
        if not parts:
            return no_evidence("too few rows of up to 64 values to search")
        worst = min(parts, key=lambda name: parts[name])
        view, n = most_unusual[worst], rows[worst]
        p = bonferroni(list(parts.values()))
        tail = (1 - _CONFIDENCE) / (2 * tried)
        d = max(self._halves, key=lambda d: self._halves[d].judged * d)
        n_judged = self._halves[d].judged
        share = alpha / (len(parts) * _EACH)
        recovered = {"direction": view.direction, "frequency": view.frequency}
        return Evidence(
            p=p,
            statistic=view.statistic,
            effect=f"most unusual: {worst} {view.statistic:.4f} ({view.meaning}) "
            f"along one direction, {n:,} held-out rows",
            parts=parts,
            blind_spots=_blind(d, n_judged, share) if d > 1 else (),
            interval=Interval(
                low=view.variance * n / float(scipy.special.chdtri(n, tail)),
                high=view.variance * n / float(scipy.special.chdtri(n, 1 - tail)),
                confidence=_CONFIDENCE,
                method="exact for Gaussian projections, Bonferroni over candidates",
            ),
            unit="× the claimed variance, along that direction",
            details=recovered if p < _SHOWN else {},
        )


def _candidates(x: Rows, rng: np.random.Generator) -> tuple[Array, Array]:
    """Unit vectors w (d, k) and frequency vectors u (d, l) from training rows ``x`` (n, d)."""
    d = x.shape[1]
    if d == 1:
        return np.ones((1, 1)), scan(x, count=_EACH)
    spectral = np.hstack([covariance_directions(x, count=2), fourth_moment_directions(x, count=3)])
    pursued, fourth = pursue(x, np.hstack([spectral, rng.standard_normal((d, _EACH))]), steps=8)
    w = np.hstack([spectral, pursued[:, np.argsort(-np.abs(fourth))[:_EACH]]])
    frequency, size = best_frequencies(x, w)
    top = np.argsort(-size)[:_EACH]
    starts = [w[:, top] * frequency[top]]
    if d <= _SCANNED:
        starts.append(scan(x, count=_EACH))
    else:
        random = rng.standard_normal((d, _EACH))
        starts.append(random / np.linalg.norm(random, axis=0) * np.linspace(0.5, 1.5, _EACH))
    u, size = climb(x[:_CLIMBED], np.hstack(starts), steps=10)
    return w, u[:, np.argsort(-size)[:_EACH]]


@dataclass(frozen=True, slots=True)
class _View:
    """One statistic of one candidate: its p-value and meaning, with direction and frequency."""

    kind: str
    p: float
    statistic: float
    meaning: str
    variance: float
    direction: list[float]
    frequency: float


def _judge(x: Rows, w: Array, u: Array) -> list[_View]:
    n = len(x)
    lengths = np.linalg.norm(u, axis=0)
    views: list[_View] = []
    for direction in w.T:
        y = (x @ direction.astype(np.float32)).astype(np.float64)
        variance = float(y @ y) / n
        cells = np.minimum((scipy.special.ndtr(y) * _CELLS).astype(np.int64), _CELLS - 1)
        counts = np.bincount(cells, minlength=_CELLS)
        distance, p_distance = kolmogorov_p(counts)
        for kind, p, statistic, meaning in (
            ("variance", chi_square_two_sided(variance * n, n), variance, "1 claimed"),
            ("distance", p_distance, distance, "Kolmogorov-Smirnov"),
            ("fourth order", fourth_order_p(counts), float(counts @ _FOURTH) / n, "0 claimed"),
        ):
            views.append(_View(kind, p, statistic, meaning, variance, direction.tolist(), 0.0))
    for vector, length in zip(u.T, lengths, strict=True):
        frequency = float(length)
        direction = vector / frequency
        y = (x @ direction.astype(np.float32)).astype(np.float64)
        phase = 2 * math.pi * frequency * y
        real, imaginary = float(np.cos(phase).mean()), float(np.sin(phase).mean())
        p = phase_p(real, imaginary, n=n, frequency=frequency)
        size, variance = math.hypot(real, imaginary), float(y @ y) / n
        meaning = f"mean of exp(2πify) at f = {frequency:.4f}"
        views.append(_View("phase", p, size, meaning, variance, direction.tolist(), frequency))
    return views


def _blind(d: int, rows: int, share: float) -> tuple[BlindSpot, ...]:
    return (
        BlindSpot(
            test="hidden-direction",
            flaw="a hidden direction that training finds",
            size=100 * detectable_effect(math.sqrt(2 / max(1, rows)), alpha=share),
            unit=f"% of the variance along one direction of {d}",
            says="a direction whose variance differs by less than this and whose shape is Gaussian",
        ),
        BlindSpot(
            test="hidden-direction",
            flaw="a thin pancake",
            size=None,
            unit="",
            says=f"evenly spaced layers along one direction of d > {_SCANNED}, spaced so closely "
            "(γ ≥ 2) that neither the variance nor the fourth moments along it change",
        ),
    )
