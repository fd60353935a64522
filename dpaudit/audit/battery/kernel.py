"""A kernel two-sample test against exact noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery import detectable_effect
from dpaudit.audit.battery.parts import no_evidence
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Kernel"]

_WINDOW = 8
_SHORT = 3
_ROW_LENGTHS = (2, 3, 4, 12, 16)
_FREQUENCIES = 16  # cosine and sine of each: 32 features per bandwidth
_BANDWIDTHS = (0.15, 0.4, 1.0)  # of the kernel exp(−|x − y|²/(2h²·w)), w the length of a vector
_ALWAYS = 1 << 14  # vectors of each length
_CHUNK = 1 << 10  # vectors per step, so that their features stay in the cache
_STEP = 64
_FEWEST = 1000
# of the covariance's largest eigenvalue: smaller ones would magnify rounding and skewness
_SMALLEST = 0.02
Array = npt.NDArray[np.float64]


@dataclass(slots=True)
class _Features:
    """Sums of cos⟨x, ω⟩ and sin⟨x, ω⟩ over ``vectors`` x, for the frequencies ω (w, 3·16)."""

    frequencies: npt.NDArray[np.float32]
    cosines: Array
    sines: Array
    vectors: int = 0


def _hotelling(delta: Array, covariance: Array) -> tuple[float, int]:
    """δᵀΣ⁺δ over Σ's larger eigenvectors, and their number."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _SMALLEST * values[-1]
    return float(((delta @ vectors[:, kept]) ** 2 / values[kept]).sum()), int(kept.sum())


def _law(w: Array) -> tuple[Array, Array]:
    """Exact mean (2m,) and covariance (2m, 2m) of [cos⟨x,ω⟩, sin⟨x,ω⟩] for x ~ N(0, I).

    The frequencies ω have shape (length, m).
    """
    plus = np.exp(-0.5 * ((w[:, :, None] + w[:, None, :]) ** 2).sum(0))
    minus = np.exp(-0.5 * ((w[:, :, None] - w[:, None, :]) ** 2).sum(0))
    mean = np.exp(-0.5 * (w * w).sum(0))
    zero = np.zeros_like(plus)
    second = np.block([[(minus + plus) / 2, zero], [zero, (minus - plus) / 2]])
    both = np.concatenate([mean, np.zeros_like(mean)])
    return both, second - np.outer(both, both)


class Kernel:
    """Random Fourier features of 8 and 3 consecutive values, and of rows of 2, 3, 4, 12, 16 values.

    A Gaussian kernel is the mean of cos⟨ω, x − y⟩ over random ω (Rahimi and Recht 2007), so the
    kernel distance (MMD, Gretton et al. 2012) between the drawn values and a second sample compares
    their mean features. The second sample here is exact noise, infinitely much of it: N(0, I)'s
    characteristic function gives each feature's mean, and all features' covariance Σ, in closed
    form. So with δ the mean features less their exact means, n·δᵀΣ⁻¹δ is the two-sample test (in
    its Hotelling form, Chwialkowski et al. 2015) without a second sample's error.

    Null: χ² with up to 32 degrees of freedom for each bandwidth (Σ's eigenvectors with at least 2 %
    of its largest eigenvalue), by the central limit theorem for n ≥ 1000 bounded features;
    simulated to 2e-4. Frequencies come from the auditor's stream. Bonferroni over bandwidths and
    lengths. Looks at the first 2^14 vectors of each length and then at every 64th block.
    """

    looks_at = "kernel distance of windows and short rows to exact noise"
    harm = "dependence"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim
        self._stream = stream
        self._features: dict[str, _Features] = {}
        self._blocks = 0
        self._phase = np.empty((_CHUNK, len(_BANDWIDTHS) * _FREQUENCIES), np.float32)
        self._wave = np.empty_like(self._phase)

    def _start(self, name: str, length: int) -> _Features:
        rng = self._stream.child("frequencies", name).numpy()
        scale = np.repeat([1 / (h * math.sqrt(length)) for h in _BANDWIDTHS], _FREQUENCIES)
        w = (rng.standard_normal((length, len(scale))) * scale).astype(np.float32)
        return _Features(w, np.zeros(len(scale)), np.zeros(len(scale)))

    def _add(self, kind: str, x: Array) -> None:
        name = f"{kind} of {x.shape[1]}"
        if name not in self._features:
            self._features[name] = self._start(name, x.shape[1])
        f = self._features[name]
        if self._blocks % _STEP:
            x = x[: max(0, _ALWAYS - f.vectors)]
        for start in range(0, len(x), _CHUNK):
            part = x[start : start + _CHUNK].astype(np.float32)
            phase = np.matmul(part, f.frequencies, out=self._phase[: len(part)])
            wave = self._wave[: len(part)]
            f.sines += np.sin(phase, out=wave).sum(0)
            f.cosines += np.cos(phase, out=wave).sum(0)
        f.vectors += len(x)

    def update(self, block: Block) -> None:
        self._blocks += 1
        z = block.z
        if z.shape[1] in _ROW_LENGTHS:
            self._add("rows", z)
        flat = z.ravel()
        if len(flat) >= _WINDOW:
            windows = flat[: len(flat) - len(flat) % _WINDOW].reshape(-1, _WINDOW)
            self._add("windows", windows)
            self._add("windows", windows[:, :_SHORT])

    def evidence(self, *, alpha: float) -> Evidence:
        parts: dict[str, float] = {}
        excess: dict[str, tuple[float, int]] = {}
        for kind, f in self._features.items():
            if f.vectors < _FEWEST:
                continue
            for i, h in enumerate(_BANDWIDTHS):
                part = slice(i * _FREQUENCIES, (i + 1) * _FREQUENCIES)
                mean, covariance = _law(f.frequencies[:, part].astype(np.float64))
                delta = np.concatenate([f.cosines[part], f.sines[part]]) / f.vectors - mean
                square, degrees = _hotelling(delta, covariance)
                square *= f.vectors
                name = f"{kind}, bandwidth {h:g}"
                parts[name] = float(scipy.special.chdtrc(degrees, square))
                excess[name] = square / degrees, f.vectors
        if not parts:
            return no_evidence("too few values to compare", statistic=1.0)
        worst = min(parts, key=lambda name: parts[name])
        ratio, vectors = excess[worst]
        most = max(f.vectors for f in self._features.values())
        size = detectable_effect(1 / math.sqrt(most), alpha=alpha / len(parts))
        blind = BlindSpot(
            test="kernel",
            flaw="any joint law of few values",
            size=size * (2 * _FREQUENCIES) ** 0.25,
            unit="standard deviations of the features' means, together",
            says="dependence within 8 consecutive values that moves the features less than this, "
            "and dependence farther apart or between the blocks that were used",
        )
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=ratio,
            effect=f"most unusual: {worst}, squared distance {ratio:.2f} × what chance gives, "
            f"{vectors:,} vectors",
            parts=parts,
            blind_spots=(blind,),
        )
