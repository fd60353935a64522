"""The covariance of whole rows: directions with more or less noise, correlated coordinates.

Extreme eigenvalues have exact tails, for a white Wishart matrix of any shape.

Let W = XᵀX with X an n × p matrix of independent N(0, 1), p ≤ n, and N(x) the number of eigenvalues
above x. Fixing one eigenvalue in the joint density leaves a white Wishart matrix W′ of one row and
one column less (Muirhead 1982, Theorem 3.2.18), so the signed density

    √π / (2^((n+p−1)/2) Γ(n/2) Γ(p/2)) · y^((n−p−1)/2) · e^(−y/2) · E det(y − W′)

integrates over y > x to E Σ_{λᵢ>x} (−1)^#{λⱼ>λᵢ} = P(N(x) is odd); and E det(y − W′) is the monic
Laguerre polynomial of degree p − 1 with parameter n − p, exactly (its zeros' neighbourhood is where
Tracy and Widom's law comes from, as both numbers grow). P(N odd) = P(largest > x) − P(N = 2, 4, …),
and by eigenvalue repulsion the last term is below 2 % of the first wherever that is below 0.1. The
smallest eigenvalue is treated the same way, from below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.parts import no_evidence, two_sided
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni
from dpaudit.types import BlindSpot, Evidence, Interval

__all__ = [
    "Covariance",
    "largest_eigenvalue_p",
    "largest_eigenvalue_quantile",
    "off_diagonal_p",
    "smallest_eigenvalue_p",
]

_COLUMNS = 1024  # up to this d the d × d matrix is kept, beyond it the rows themselves
_NARROW = 256  # beyond this d the rows are kept until there are more of them than columns
_ROWS = 256  # whose eigenvalues are computed, where rows are kept of d > 1024
_VALUES = 6 << 20  # used of each d ≤ 32, fewer in proportion up to d = 64: equal time
_WIDE_VALUES = 1 << 24  # of each larger d
_WIDE_ROWS = 10 << 20  # values of wide rows kept, over all d: 20 MiB of float16
_FARTHEST = 6e4  # float16 holds it
_STRIP = 512  # columns that are compared with all others at once
_FEWEST = 32
_MARGIN = 0.9
_ROUNDING = 1e-6  # above the relative error of the largest eigenvalue from float32 products
_SHOWN = 1e-4
_SHOWN_COLUMNS = 128
_CONFIDENCE = 0.95
_LEAST = 1e-30  # a length that is not 0 in float32
_NO_ZERO = math.sqrt(np.finfo(np.float64).tiny)  # its square is above 0
Array = npt.NDArray[np.float64]


def off_diagonal_p(square: float, *, rows: int, columns: int) -> float:
    """Two-sided p-value of T = Σ_{i<j} n·r_ij², r_ij the cosine between columns i and j of X.

    X has n = ``rows`` rows. Under independent N(0, 1) entries the columns' directions are
    independent and uniform, so any acyclic set of r_ij is independent and the first three cumulants
    are exact: with M pairs and C triangles κ₁ = M, κ₂ = 2M(n−1)/(n+2), κ₃ = M·κ₃(n·r²) +
    24C(n−1)/(n+2)², r² ~ Beta(½, (n−1)/2). For two columns that law itself is used. For more, the
    tails are Pearson's type III with these three (χ²_M in the limit n ≫ columns³); simulation finds
    up to twice as many values below 1e-4 where n is 32, so p^0.9 is returned, and 1 where n < 32.
    """
    n, pairs = rows, math.comb(columns, 2)
    if pairs == 0 or n < _FEWEST:
        return 1.0
    if pairs == 1:
        x = min(1.0, square / n)
        half = 0.5, (n - 1) / 2
        return two_sided(scipy.special.betainc(*half, x), scipy.special.betaincc(*half, x))
    second, third = 3 * n / (n + 2), 15 * n * n / ((n + 2) * (n + 4))
    skew = third - 3 * second + 2
    k2 = pairs * (second - 1)
    k3 = pairs * skew + 24 * math.comb(columns, 3) * (n - 1) / (n + 2) ** 2
    shape = 4 * k2**3 / k3**2
    x = max(0.0, shape + (square - pairs) / math.sqrt(k2) * math.sqrt(shape))
    p = two_sided(scipy.special.gammainc(shape, x), scipy.special.gammaincc(shape, x))
    return float(p**_MARGIN)


def _largest_cosine_p(square: float, *, rows: int, columns: int) -> float:
    """p-value of the largest r_ij²: exact, Bonferroni over pairs.

    1 where rows < 32: there the largest rounds to 1.
    """
    if rows < _FEWEST:
        return 1.0
    tail = float(scipy.special.betaincc(0.5, (rows - 1) / 2, min(1.0, square)))
    return min(1.0, math.comb(columns, 2) * tail)


@dataclass(slots=True)
class _SecondMoments:
    """Second moments of the rows of one d: XᵀX (d, d), or for large d the first rows themselves."""

    rows: int = 0
    product: Array | None = None
    wide_rows: list[npt.NDArray[np.float16]] = field(default_factory=list)

    def multiply(self, x: Array) -> None:
        """Add XᵀX."""
        narrow = x if x.shape[1] <= 64 else x.astype(np.float32)
        product = (narrow.T @ narrow).astype(np.float64)
        if self.product is None:
            self.product = product
        else:
            self.product += product

    def multiply_wide_rows(self) -> int:
        """Replace the rows held by their XᵀX; returns how many values they were."""
        x = np.concatenate(self.wide_rows).astype(np.float64)
        self.wide_rows.clear()
        self.multiply(x)
        return x.size

    def gram(self) -> tuple[Array, int, int]:
        """The smaller of XᵀX and XXᵀ, and the numbers of rows and columns of X or Xᵀ behind it."""
        if self.product is not None:
            return self.product, self.rows, len(self.product)
        x = np.concatenate(self.wide_rows)
        x = (x if x.shape[1] <= _COLUMNS else x[:_ROWS]).astype(np.float32)
        return (x @ x.T).astype(np.float64), x.shape[1], len(x)

    def largest_cosine(self) -> tuple[float, int, int]:
        """Cosine of largest size between two columns of the rows held, and the two."""
        x = np.concatenate(self.wide_rows).astype(np.float32)
        x /= np.maximum(np.sqrt(np.einsum("ij,ij->j", x, x)), np.float32(_LEAST))
        best, pair = 0.0, (0, 0)
        for start in range(0, x.shape[1], _STRIP):
            cosine = x[:, start : start + _STRIP].T @ x[:, start:]
            cosine[np.tril_indices(len(cosine))] = 0.0  # columns up to themselves
            i, j = np.unravel_index(int(np.abs(cosine).argmax()), cosine.shape)
            if abs(cosine[i, j]) > abs(best):
                best, pair = float(cosine[i, j]), (start + int(i), start + int(j))
        return best, *pair


class Covariance:
    """Extreme eigenvalues of each dimension's second moments, and their squared correlations.

    The latter by their sum and by the largest.

    Null of the eigenvalues (mean 0 and variance 1 are known): exact for every shape, see above;
    in the limit Tracy and Widom's law (Johnstone 2001). Null
    of the correlations' sum: :func:`off_diagonal_p`; of the largest: each squared correlation is
    exactly Beta(½, (n−1)/2), tested from 32 rows on. Bonferroni over all. For d ≤ 1024 from XᵀX
    of the first rows (6·2^20 values for d ≤ 32, 3·2^20 at d = 64, 2^24 of each larger d); the
    smaller XXᵀ where rows are fewer than columns, and the first 256 rows alone where d > 1024. The
    largest correlation of two columns is tested there as well, over the 10·2^20 values that are
    kept of all such d. Rounded to float32 before they are multiplied where d > 64 and kept as
    float16 where rows are kept: an error of 1e-6 of a variance against noise of 1e-2.

    Formal guarantee of the interval: for Gaussian rows of any covariance Σ it holds the variance
    along Σ's strongest direction, for all d at once, since λ₁(Σ)·λ₁(W) ≥ λ₁(Σ^½WΣ^½) ≥ λ₁(Σ)·χ²_n.
    """

    looks_at = "covariance of whole rows"
    harm = "strength"
    causal_order = 17
    costly = True

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._moments: dict[int, _SecondMoments] = {}
        self._room = _WIDE_ROWS

    def update(self, block: Block) -> None:
        n, d = block.z.shape
        if d == 1:
            return
        moments = self._moments.setdefault(d, _SecondMoments())
        if d <= _COLUMNS:
            most = _VALUES // max(d, d * d // 32) if d <= 64 else _WIDE_VALUES // d
            n = min(n, most - moments.rows)
        if moments.product is None and d > _NARROW:
            self._hold(moments, block.z[: max(0, n)])
            return
        if n <= 0:
            return
        moments.multiply(block.z[:n])
        moments.rows += n

    def _hold(self, moments: _SecondMoments, z: Array) -> None:
        d = z.shape[1]
        z = z[: self._room // d]
        if not len(z):
            return
        self._room -= z.size
        moments.wide_rows.append(np.clip(z, -_FARTHEST, _FARTHEST).astype(np.float16))
        moments.rows += len(z)
        if d < moments.rows and d <= _COLUMNS:
            self._room += moments.multiply_wide_rows()

    def evidence(self, *, alpha: float) -> Evidence:
        looks = {d: _look(d, second) for d, second in self._moments.items() if second.rows > 1}
        parts = {f"d={d}, {name}": p for d, look in looks.items() for name, p in look.parts.items()}
        if not parts:
            return no_evidence("one value or one row per dimension: no covariance", statistic=1.0)
        worst = min(parts, key=lambda name: parts[name])
        d = int(worst[2 : worst.index(",")])
        look = looks[d]
        # XXᵀ of rows that are kept: they were turned round
        rows = look.columns if self._moments[d].wide_rows else look.rows
        along = (
            f"{rows:,} rows, variances along eigenvectors {look.low / rows:.4f} to "
            f"{look.high / rows:.4f} × claimed"
        )
        tail = (1 - _CONFIDENCE) / (2 * len(looks))
        interval = Interval(
            low=look.high / largest_eigenvalue_quantile(tail, rows=rows, columns=d),
            high=look.high / float(scipy.special.chdtri(rows, 1 - tail)),
            confidence=_CONFIDENCE,
            method="exact, Bonferroni over dimensions",
        )
        largest = max(looks.values(), key=lambda look: look.rows * look.columns)
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=(look.low if worst.endswith("smallest") else look.high) / rows,
            effect=f"most unusual: {worst} "
            f"({look.pair if worst.endswith('of columns') else along})",
            parts=parts,
            blind_spots=_blind(largest.rows, largest.columns, alpha / len(parts)),
            interval=interval,
            unit=f"× the claimed variance, along the strongest direction of {d}",
            details={
                f"d={d}, {name} direction": vector
                for d, look in looks.items()
                for name, vector in look.directions.items()
            },
        )


@dataclass(frozen=True, slots=True)
class _Look:
    """What the rows of one d show: extreme eigenvalues of a Gram matrix of this shape, p-values.

    ``pair``: which columns the largest correlation is of, where rows are kept; ``directions``: the
    strongest and the weakest, where they are unusual and short enough to show.
    """

    low: float
    high: float
    rows: int
    columns: int
    parts: Mapping[str, float]
    pair: str
    directions: Mapping[str, list[float]]


def _look(d: int, second: _SecondMoments) -> _Look:
    gram, rows, columns = second.gram()
    values, vectors = np.linalg.eigh(gram)
    kept = min(rows, columns)
    high = float(values[-1])
    low = max(0.0, float(values[-kept])) + _ROUNDING * high  # never smaller than it is
    shape = {"rows": rows, "columns": columns}
    size = np.maximum(np.diag(gram), _NO_ZERO)
    cosine = np.triu(gram, 1) ** 2 / np.outer(size, size)
    parts = {
        "largest": largest_eigenvalue_p(high, **shape),
        "smallest": smallest_eigenvalue_p(low, **shape),
        "correlations": off_diagonal_p(rows * float(cosine.sum()), **shape),
        "one pair": _largest_cosine_p(float(cosine.max()), **shape),
    }
    pair, directions = "", {}
    if second.wide_rows and second.rows >= _FEWEST:
        r, i, j = second.largest_cosine()
        parts["one pair of columns"] = _largest_cosine_p(r * r, rows=second.rows, columns=d)
        pair = f"columns {i} and {j}, correlation {r:+.3f} in {second.rows:,} rows"
    if columns == d <= _SHOWN_COLUMNS:
        for name, part, side in (("strongest", "largest", -1), ("weakest", "smallest", d - kept)):
            if parts[part] < _SHOWN:
                directions[name] = vectors[:, side].tolist()
    return _Look(low, high, rows, columns, parts, pair, directions)


def _blind(rows: int, d: int, share: float) -> tuple[BlindSpot, ...]:
    # The largest eigenvalue is at least the strong direction's own: (1 + more)·χ²_n.
    edge = largest_eigenvalue_quantile(min(share, 0.09), rows=rows, columns=d)
    more = edge / float(scipy.special.chdtri(rows, 0.9)) - 1
    return (
        BlindSpot(
            test="covariance",
            flaw="a direction with more noise",
            size=100 * more,
            unit=f"% more variance along one direction of {d}",
            says="a direction of unknown place whose variance is larger by less than about this",
        ),
    )


_NEGLIGIBLE = 45.0  # nats below the integrand's top
_BULK = 0.1  # above this the p-value is 1
_HALVINGS = 16
_EVEN = 1.02  # bounds the missing even counts


def _log_density(t: Array, *, n: int, p: int, side: int) -> Array:
    """Log of the signed density of t = √eigenvalue, −inf at and within the outermost zero.

    ``side`` is +1 for the density above the zeros, −1 below.

    Outside all zeros the ratios of neighbouring monic polynomials have the sign of ``side``
    (Sturm), and forward recurrence is stable there because the polynomials are its dominant
    solution.
    """
    y = t * t
    a = n - p
    total = np.zeros_like(t)
    ratio = np.ones_like(t)
    outside = np.ones(t.shape, bool)
    for k in range(p - 1):
        ratio = side * (y - (2 * k + 1 + a)) - (k * (k + a) / ratio if k else 0.0)
        outside &= ratio > 0
        ratio = np.where(outside, ratio, 1.0)
        total += np.log(ratio)
    constant = (
        0.5 * math.log(math.pi)
        - 0.5 * (n + p - 1) * math.log(2)
        - math.lgamma(n / 2)
        - math.lgamma(p / 2)
    )
    total += constant + math.log(2) + scipy.special.xlogy(a, t) - y / 2
    return np.where(outside, total, -np.inf)


@cache
def _quadrature() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return nodes, weights


def _odd(x: float, *, n: int, p: int, side: int) -> float:
    """P(an odd number of eigenvalues lie beyond ``x``), or 1 where ``x`` lies within the bulk."""
    start = math.sqrt(x)
    steps = np.concatenate([[0.0], np.geomspace(1e-6, 1e3, 120)])
    t = start + side * steps
    if side < 0:
        t = np.maximum(t, 0.0)
    log = _log_density(t, n=n, p=p, side=side)
    if log[0] == -np.inf:
        return 1.0
    top = int(log.argmax())
    gone = np.flatnonzero(log[top:] < log[top] - _NEGLIGIBLE)
    length = abs(t[top + gone[0]] - start) if len(gone) else abs(t[-1] - start)
    legendre, weights = _quadrature()
    nodes = start + side * length * (legendre + 1) / 2
    density = np.exp(_log_density(nodes, n=n, p=p, side=side))
    return float(length / 2 * (weights @ density))


def _tail(x: float, *, rows: int, columns: int, side: int) -> float:
    odd = _odd(x, n=max(rows, columns), p=min(rows, columns), side=side)
    return _EVEN * odd if odd <= _BULK else 1.0


def largest_eigenvalue_p(x: float, *, rows: int, columns: int) -> float:
    """P(largest eigenvalue of XᵀX ≥ ``x``), X (rows, columns) of independent N(0, 1); 1 above 0.1.

    Formal guarantee: a super-uniform p-value, up to the repulsion bound in the module's text
    (checked by simulation).
    """
    return _tail(x, rows=rows, columns=columns, side=1)


def smallest_eigenvalue_p(x: float, *, rows: int, columns: int) -> float:
    """P(smallest non-zero eigenvalue of XᵀX ≤ ``x``); 1 above 0.1. Same guarantee."""
    return _tail(x, rows=rows, columns=columns, side=-1) if x > 0 else 0.0


@lru_cache(maxsize=256)
def largest_eigenvalue_quantile(p: float, *, rows: int, columns: int) -> float:
    """The ``x`` that the largest eigenvalue exceeds with P ≤ ``p`` < 0.1; √x is right to 1e-4."""
    low = math.sqrt(rows) + math.sqrt(columns) - 2.0
    # Davidson and Szarek (2001), Theorem II.13
    high = math.sqrt(rows) + math.sqrt(columns) + math.sqrt(-2 * math.log(p))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if largest_eigenvalue_p(middle * middle, rows=rows, columns=columns) > p:
            low = middle
        else:
            high = middle
    return high * high
