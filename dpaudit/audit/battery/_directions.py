"""Searches for directions and frequencies along which training rows look least Gaussian."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = [
    "best_frequencies",
    "climb",
    "covariance_directions",
    "fourth_moment_directions",
    "pursue",
    "scan",
]

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
    best, found = u.copy(), size.copy()
    for _ in range(steps):
        phase = x @ (2 * math.pi * u).astype(np.float32)
        c, s = np.cos(phase), np.sin(phase)
        gauss = np.exp(-2 * math.pi**2 * np.einsum("ij,ij->j", u, u))
        real, imaginary = c.mean(0) - gauss, s.mean(0)
        size = np.hypot(real, imaginary)
        better = size > found
        best[:, better], found[better] = u[:, better], size[better]
        d_real = -2 * math.pi * (x.T @ s).astype(np.float64) / len(x) + 4 * math.pi**2 * gauss * u
        d_imaginary = 2 * math.pi * (x.T @ c).astype(np.float64) / len(x)
        move = (
            (real * d_real + imaginary * d_imaginary)
            / np.maximum(size, 1e-12) ** 2
            / (4 * math.pi**2)
        )
        u = u + move * np.minimum(1.0, 0.25 / np.maximum(np.linalg.norm(move, axis=0), 1e-12))
    return best, found
