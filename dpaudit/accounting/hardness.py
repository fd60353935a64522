"""How hard a Gaussian pancake is to find without its key: attacks, block sizes, operations.

**The lattice.** With σ = 1, r² = β² + γ² and u = f·w, f = r²/(γ√(2π)), each noise vector x has
⟨x, u⟩ = k + e, k a whole number and e normal with standard deviation s = β·r/(γ√(2π)) (arXiv
2509.23834, Lemma 2.6). For n rows X (n, d) and a uniform direction w, the whole numbers k = Xu − e
have covariance

    (1)  C = (f²/d)·XXᵀ + s²·I,

so k is short in the lattice C^(−1/2)·Zⁿ: its expected squared length there is tr(C⁻¹C), or

    (2)  |C^(−1/2)k| ≈ √n, one standard deviation per coordinate,

and the lattice has volume (det C)^(−1/2). C has n − d eigenvalues s², and s² + (f²/d)·σ_j² for the
singular values σ_j of X. For normal X, E ln det XᵀX = Σ_{j<d} (ψ((n−j)/2) + ln 2) ≈ lnΓ(n) −
lnΓ(n−d), since ψ(m/2) + ln 2 ≈ ln(m−1); all σ_j² are taken as their geometric mean times ρ²:

    (3)  −2·ln vol = (n−d)·ln s² + d·ln(s² + (f²/d)·ρ²·(Γ(n)/Γ(n−d))^(1/d)).

ρ² is the mean squared length of the n shortest of N rows, over d: with q the n/N quantile of χ²_d,

    (4)  ρ² = F_{d+2}(q)/F_d(q)   (rows shorter than 2 are left out of both).

**Block size.** BKZ of block b finds that vector when its projection to the last b directions is
shorter than the Gram–Schmidt vector there, under the geometric series assumption (Alkim, Ducas,
Pöppelmann and Schwabe 2016, section 6.3; tested by Albrecht, Göpfert, Virdia and Wunderer 2017):

    (5)  √b ≤ δ(b)^(2b−n−1)·vol^(1/n),

δ(b) = ((πb)^(1/b)·b/(2πe))^(1/(2(b−1))) from b = 50 on (Chen 2013), below it the measured values
that the lattice estimator of Albrecht, Player and Scott uses. And k must be the shortest vector,
√n ≤ Γ(n/2+1)^(1/n)·vol^(1/n)/√π. Where no n makes it so, or r < 1, where most k are 0, lattice
reduction is not expected to find it at any cost.

**Operations.** LLL: n³ times the squared bits of the entries. BKZ: 8n calls of a sieve of
2^(0.292·b + 16.4) operations (Becker, Ducas, Gama and Laarhoven 2016; Albrecht, Player and Scott
2015), or one call with b = n where that is less. Core-SVP counts one call as 2^(0.292·b). n is
chosen for the fewest operations. Seconds are fitted to what was measured (``python -m
dpaudit_studies.evidence.hardness``): c₁·(n/100)⁴·bits/20 + c₂·n·2^(0.292·b) on one core (for one
call c₂/8·2^(0.292·n)).

**Other attacks.** Covariance: the variance along w differs from 1 by 4πγ²·exp(−πr²), seen in d·(2/
difference)² vectors. Directions: try every u on a grid of 0.2; a resonance of 0.45·exp(−2π²s²)
shows in a few hundred vectors. Cheaper in no more than a few dimensions, or at γ of about 1.

**Precision.** Independent noise of standard deviation b along w widens the peaks: s² + f²b² takes
the place of s², as from β of about √(β² + γ²b²). Rounding to p bits gives b = 0.2127·2^(−p)
(:func:`blur`), a lattice of step Δ gives Δ/√12, smoothing gives τ.

Not claimed: a lower bound. These are the known attacks, under heuristics that hold on average; a
better attack, several directions (more short vectors), or luck takes less.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UsageError

__all__ = [
    "DTYPES",
    "FITTED",
    "REACH",
    "Estimate",
    "KeylessAttack",
    "Measured",
    "blur",
    "entry_bits",
    "estimate",
    "log_delta",
    "log_volume",
    "measured",
    "seconds_of",
]

Array = npt.NDArray[Any]

DTYPES = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}  # bits after the point
REACH = 64.0  # log2 of the operations of the largest public computations (SHA-1 collisions)

_SMALL_BLOCKS = (2, 5, 10, 15, 20, 25, 28, 40)
_SMALL_DELTAS = (1.0219, 1.01862, 1.01616, 1.01485, 1.0142, 1.01342, 1.01331, 1.01295)
_CHEN_FROM = 50
_SIEVE, _SIEVE_ONCE = 0.292, 16.4
_SCALE_BITS = 12  # of the basis, beyond its largest entry
_SHORTEST_ROW = 2.0
_LARGE = 10**6  # dimensions from which rows are as good as equally long
_MOST = 64  # rows per dimension
_GRID = 200
_WIDEST = 1e60  # of β and γ, so that no power overflows
_LOG_2PI = math.log(2 * math.pi)
_NET = 0.2  # between points of a grid of u
_SEEN = math.exp(-2 * math.pi**2 * _NET**2)  # of the resonance, at that distance
_PER_SECOND = 1e9  # multiplications and additions, numpy on one core
# c₁, c₂ and the most rows of fpylll 0.6 and of BLASter 0.1.1, fitted on 2026-11-23; kept while they
# are less than a tenth worse than those of today's cells (dpaudit_studies.evidence.hardness)
FITTED = {"fpylll": (1.04, 4.16e-6, 230.0), "BLASter": (0.0264, 6.77e-6, math.inf)}


@dataclass(frozen=True, slots=True)
class KeylessAttack:
    """One way to find the direction, and what it takes.

    ``log2_samples`` is the base-2 logarithm of the noise vectors drawn; ``rows``, ``block`` and
    ``log2_core_svp`` are those of lattice reduction, None of others. ``seconds`` are of one core,
    extrapolated beyond what was measured.
    """

    name: str
    log2_operations: float
    seconds: float
    log2_samples: float
    rows: int | None = None
    block: int | None = None
    log2_core_svp: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What it takes to find one pancake without its key.

    ``effective_beta`` is β with all blur counted in; ``attacks`` are those that are expected to
    succeed, the one of fewest operations first. ``rows`` and ``block`` are None if that is not the
    lattice.
    """

    in_documents: ClassVar[tuple[str, ...]] = (
        "attack",
        "rows",
        "block",
        "log2_operations",
        "seconds",
        "within_reach",
    )

    dim: int
    beta: float
    gamma: float
    dtype: str
    effective_beta: float
    attacks: tuple[KeylessAttack, ...]

    @property
    def lattice(self) -> KeylessAttack | None:
        """Lattice reduction, if it is expected to succeed."""
        return next((one for one in self.attacks if one.name == "lattice"), None)

    @property
    def attack(self) -> str:
        return self.attacks[0].name

    @property
    def rows(self) -> int | None:
        return self.attacks[0].rows

    @property
    def block(self) -> int | None:
        return self.attacks[0].block

    @property
    def log2_operations(self) -> float:
        return self.attacks[0].log2_operations

    @property
    def seconds(self) -> float:
        return self.attacks[0].seconds

    @property
    def within_reach(self) -> bool:
        """Whether the cheapest attack takes at most 2^64 operations."""
        return self.log2_operations <= REACH


def blur(dtype: str = "float64", *, step: float = 0.0, tau: float = 0.0) -> float:
    """Standard deviation, in σ, of what is added along any direction by the way of a release.

    Rounding N(0, 1) to ``dtype``, to a lattice of ``step``, and smoothing by ``tau``: a number in
    [2^e, 2^(e+1)) is rounded by a uniform error of variance 4^(e−p)/12, so rounding gives
    2^(−p)·√(E 4^⌊log₂|x|⌋/12) = 0.2127·2^(−p). Noise that this package *draws* in float32 has √(2 +
    directions) times as much, since correction factors are rounded too.

    Raises:
        UsageError: an unknown dtype; step or tau negative or not finite.

    >>> print(f"{blur('float32'):.3g} {blur('bfloat16'):.3g} {blur(step=0.01):.3g}")
    2.54e-08 0.00166 0.00289
    """
    if dtype not in DTYPES:
        raise UsageError(f"dtype={dtype}: is not known; choose from {', '.join(DTYPES)}")
    for name, value in (("step", step), ("tau", tau)):
        if not (0 <= value < math.inf):
            raise UsageError(f"{name}={value}: must be a finite number ≥ 0, in units of σ")
    exponent = np.arange(-64.0, 6.0)
    upper = scipy.special.erf(2 ** (exponent + 1) / math.sqrt(2))
    share = upper - scipy.special.erf(2**exponent / math.sqrt(2))
    rounded = math.sqrt(float(share @ 4**exponent) / 12) * 2.0 ** -DTYPES[dtype]
    return math.hypot(rounded, step / math.sqrt(12), tau)


@dataclass(frozen=True, slots=True)
class _Phase:
    """ln f, ln s and ln √(s² + f²b²) of one pancake."""

    log_f: float
    log_s: float
    log_width: float

    @classmethod
    def of(cls, beta: float, gamma: float, b: float) -> _Phase:
        log_r = math.log(math.hypot(beta, gamma))
        log_f = 2 * log_r - math.log(gamma) - _LOG_2PI / 2
        log_s = math.log(beta) + log_r - math.log(gamma) - _LOG_2PI / 2
        added = log_f + math.log(b) if b else -math.inf
        return cls(log_f, log_s, float(np.logaddexp(2 * log_s, 2 * added)) / 2)


def estimate(
    dim: int,
    beta: float,
    gamma: float,
    *,
    dtype: str = "float64",
    rows: int | None = None,
    step: float = 0.0,
    tau: float = 0.0,
    drawn: int = 30_000,
) -> Estimate:
    """Estimate what finding a pancake without its key takes, by each known attack.

    ``dtype``, ``step`` and ``tau`` say how the noise is released (:func:`blur`); ``drawn`` is how
    many vectors there are to choose short rows from, at least as many as the lattice has; ``rows``
    fixes the lattice's rows instead of the best number.

    Raises:
        UsageError: dim below 2, β or γ not a finite number > 0, rows not above dim + 1, drawn
            below 1; or as :func:`blur`.

    >>> found = estimate(128, 1e-4, 2 * 128**0.5)
    >>> found.attack, found.within_reach
    ('lattice', True)
    """
    _check(dim, beta, gamma, rows, drawn)
    b = blur(dtype, step=step, tau=tau)
    gamma_, beta_ = min(gamma, _WIDEST), min(beta, _WIDEST)
    phase, r = _Phase.of(beta_, gamma_, b), math.hypot(beta_, gamma_)
    candidates: list[KeylessAttack | None] = [
        _directions(dim, phase),
        _covariance(dim, r, beta_, gamma_, b),
    ]
    if r >= 1:  # below, most k are 0
        candidates.append(_lattice(dim, phase, rows, drawn))
    attacks = sorted((one for one in candidates if one), key=lambda one: one.log2_operations)
    return Estimate(
        dim=dim,
        beta=beta,
        gamma=gamma,
        dtype=dtype,
        effective_beta=beta * math.exp(min(500.0, phase.log_width - phase.log_s)),
        attacks=tuple(attacks),
    )


def _check(dim: int, beta: float, gamma: float, rows: int | None, drawn: int) -> None:
    if dim < 2:
        raise UsageError(f"dim={dim}: a hidden direction needs at least 2 dimensions")
    for name, value in (("beta", beta), ("gamma", gamma)):
        if not 0 < value < math.inf:
            raise UsageError(f"{name}={value}: must be a finite number > 0")
    if rows is not None and rows < dim + 2:
        raise UsageError(f"rows={rows}: the lattice needs at least dim + 2 = {dim + 2} rows")
    if drawn < 1:
        raise UsageError(f"samples={drawn}: must be at least 1")


def _lattice(dim: int, phase: _Phase, rows: int | None, drawn: int) -> KeylessAttack | None:
    """The attack at the best of all numbers of rows, or at ``rows``; None where none succeeds."""
    if rows is not None:
        n = np.array([float(rows)])
        operations, block = _reduction(dim, n, phase, drawn)
    else:
        ends = float(dim + 2), float(_MOST * (dim + 1))
        for _ in range(2):  # coarse, then fine between the neighbours of the best
            n = np.unique(np.rint(np.geomspace(*ends, _GRID)))
            operations, block = _reduction(dim, n, phase, drawn)
            at = int(operations.argmin())
            ends = n[max(0, at - 1)], n[min(len(n) - 1, at + 1)]
    at = int(operations.argmin())
    if not math.isfinite(operations[at]):
        return None
    size, b = float(n[at]), float(block[at])
    return KeylessAttack(
        name="lattice",
        log2_operations=float(operations[at]),
        seconds=min(
            seconds_of(size, b, bits=_bits(phase), first=first, second=second)
            for first, second, most in FITTED.values()
            if size <= most
        ),
        log2_samples=math.log2(max(drawn, size)),
        rows=int(size),
        block=int(b),
        log2_core_svp=_SIEVE * b,
    )


def _reduction(dim: int, n: Array, phase: _Phase, drawn: int) -> tuple[Array, Array]:
    """log2 of the operations (∞ where no block size does), and block sizes, for each n."""
    block = _block(n, _log_volume(dim, n, phase, drawn) / n)
    lll = 3 * np.log2(n) + 2 * math.log2(_bits(phase))
    bkz = np.where(block > 2, _SIEVE * block + _SIEVE_ONCE + np.log2(8 * n), -np.inf)
    once = _SIEVE * n + _SIEVE_ONCE
    operations = np.logaddexp2(lll, np.minimum(bkz, once))
    return np.where(np.isnan(block), np.inf, operations), np.where(once < bkz, n, block)


def log_volume(
    dim: int, beta: float, gamma: float, *, rows: int, drawn: int = 30_000, blurred: float = 0.0
) -> float:
    """Natural logarithm of the lattice's volume: equation (3), ``blurred`` as from :func:`blur`."""
    phase = _Phase.of(beta, gamma, blurred)
    return float(_log_volume(dim, np.array([float(rows)]), phase, drawn)[0])


def _log_volume(dim: int, n: Array, phase: _Phase, drawn: int) -> Array:
    gram = (scipy.special.gammaln(n) - scipy.special.gammaln(n - dim)) / dim
    signal = 2 * phase.log_f - math.log(dim) + gram + np.log(_shortness(dim, n, drawn))
    width = 2 * phase.log_width
    return np.asarray(-((n - dim) * width + dim * np.logaddexp(width, signal)) / 2)


def _shortness(dim: int, n: Array, drawn: int) -> Array:
    """ρ²: mean squared length, over d, of the n shortest of ``drawn`` rows: equation (4)."""
    if dim >= _LARGE:
        return np.ones(len(n))
    below, beyond = (scipy.special.chdtr(dim + i, _SHORTEST_ROW**2) for i in (0, 2))
    share = below + np.minimum(1.0, n / drawn) * (1 - below)
    with np.errstate(divide="ignore"):
        q = scipy.special.chdtri(dim, 1 - share)
    return np.asarray((scipy.special.chdtr(dim + 2, q) - beyond) / (share - below))


def log_delta(block: Array) -> Array:
    """Natural logarithm of the root-Hermite factor δ for each block size."""

    def chen(b: Array) -> Array:
        return np.asarray((np.log(math.pi * b) / b + np.log(b / (2 * math.pi * math.e))) / 2)

    small = [*np.log(_SMALL_DELTAS), float(chen(np.array(50.0))) / (_CHEN_FROM - 1)]
    below = np.interp(block, [*_SMALL_BLOCKS, _CHEN_FROM], small)
    above = chen(np.maximum(block, _CHEN_FROM)) / (np.maximum(block, _CHEN_FROM) - 1)
    return np.asarray(np.where(block < _CHEN_FROM, below, above))


def _block(n: Array, log_root: Array) -> Array:
    """The least block size by (5) for each n and ln vol^(1/n); NaN where k is not the shortest."""

    def enough(b: Array) -> Array:
        return np.asarray((2 * b - n - 1) * log_delta(b) + log_root - np.log(b) / 2 >= 0)

    low, high = np.full(len(n), 1.0), n.copy()
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        does = enough(middle)
        high = np.where(does & (high - low > 1), middle, high)
        low = np.where(does | (high - low <= 1), low, middle)
    gaussian = scipy.special.gammaln(n / 2 + 1) / n - math.log(math.pi) / 2 + log_root
    return np.where(gaussian >= np.log(n) / 2, np.maximum(high, 2.0), np.nan)


def _bits(phase: _Phase) -> float:
    return entry_bits(math.exp(phase.log_width))


def entry_bits(width: float) -> float:
    """Bits of the basis' entries for phases of standard deviation ``width``."""
    return _SCALE_BITS + max(0.0, -math.log2(width))


def seconds_of(n: float, block: float, *, bits: float, first: float, second: float) -> float:
    """Seconds of one core to reduce n rows up to ``block``, for c₁ and c₂ of one reducer."""
    lll = first * (n / 100) ** 4 * bits / 20
    calls = n if block < n else 1 / 8
    return lll + (second * calls * _power(_SIEVE * block) if block > 2 else 0.0)


def _power(exponent: float) -> float:
    """2^exponent, ∞ where a float ends."""
    return 2.0**exponent if exponent < 1000 else math.inf


def _covariance(dim: int, r: float, beta: float, gamma: float, b: float) -> KeylessAttack:
    """The outermost eigenvalue of the covariance."""
    if r < 2:
        k = np.arange(-40, 41)
        weight = np.exp(-math.pi * np.square(k) / r**2)
        variance = (beta / r) ** 2 + 2 * math.pi * (gamma / r**2) ** 2 * float(
            weight @ np.square(k) / weight.sum()
        )
        log_off = math.log2(max(abs(variance - 1), 1e-300))
    else:
        log_off = math.log2(4 * math.pi) + 2 * math.log2(gamma) - math.pi * r**2 / math.log(2)
    log_off -= math.log2(1 + b * b)
    samples = math.log2(dim) + 2 * max(0.0, 1 - log_off)
    operations = samples + 2 * math.log2(dim)
    return KeylessAttack("covariance", operations, _power(operations) / _PER_SECOND, samples)


def _directions(dim: int, phase: _Phase) -> KeylessAttack:
    """Every u of the right length on a grid, up to its sign; of length 1 at least."""
    length = max(0.0, phase.log_f)  # its logarithm: a multiple of u where f is below 1
    tried = dim * (length / math.log(2) - math.log2(_NET))
    squared = min(600.0, 2 * (phase.log_width + length - phase.log_f))
    log_visible = (math.log(_SEEN) - 2 * math.pi**2 * math.exp(squared)) / math.log(2)
    samples = 2 + math.log2(tried * math.log(2) + 10) - 2 * log_visible
    operations = tried + samples + math.log2(dim)
    return KeylessAttack("directions", operations, _power(operations) / _PER_SECOND, samples)


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured cell: ``found`` of ``keys``, median ``seconds`` (of all tries if 0 found)."""

    in_documents: ClassVar[tuple[str, ...]] = ("clock", "estimated_block", "estimated_seconds")

    dim: int
    beta: float
    gamma: float
    rows: int
    reduction: str
    seconds: float
    found: int
    keys: int
    reducer: str
    source: str

    @property
    def block(self) -> int:
        """The largest block size that it went through; 2 for LLL."""
        head, _, size = self.reduction.partition("-")
        return int(size) if head == "BKZ" else 2

    @property
    def clock(self) -> str:
        """What ``seconds`` are of: CPU, or wall time on a machine that other work shared."""
        return "CPU" if self.source == "keyless-frontier" else "wall"

    @property
    def estimated_block(self) -> int | None:
        """The block size by (5) with as many rows; None where k is not the shortest vector."""
        volume = log_volume(self.dim, self.beta, self.gamma, rows=self.rows)
        block = float(_block(np.array([float(self.rows)]), np.array([volume / self.rows]))[0])
        return None if math.isnan(block) else int(block)

    @property
    def estimated_seconds(self) -> float:
        """What the model fitted to this reducer gives for as many rows and this reduction."""
        first, second, _ = FITTED[self.reducer]
        bits = entry_bits(self.beta / math.sqrt(2 * math.pi))
        return seconds_of(self.rows, self.block, bits=bits, first=first, second=second)

    def distance(self, dim: int, beta: float) -> float:
        """From another (d, β), for listing the nearest: a factor of 2 in d is as 10 in β."""
        return abs(math.log2(self.dim / dim)) + abs(math.log10(self.beta) - math.log10(beta))


def measured() -> tuple[Measured, ...]:
    """All measured cells, by dimension and β (``dpaudit_studies.evidence.hardness --write``)."""
    return tuple(
        _read(files("dpaudit.accounting").joinpath("hardness.csv").read_text(encoding="utf-8"))
    )


def _read(text: str) -> Iterator[Measured]:
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        yield Measured(
            dim=int(row["dim"]),
            beta=float(row["beta"]),
            gamma=float(row["gamma"]),
            rows=int(row["rows"]),
            reduction=row["reduction"],
            seconds=float(row["seconds"]),
            found=int(row["found"]),
            keys=int(row["keys"]),
            reducer=row["reducer"],
            source=row["source"],
        )
