"""The snapping mechanism: floating-point Laplace noise on a lattice coarser than its flaws."""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

import numpy as np
import numpy.typing as npt

from dpaudit.accounting._checks import probability
from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import device_of, double, to_numpy
from dpaudit.numeric.drawing import cpu_sample
from dpaudit.numeric.lattice import in_dtype
from dpaudit.numeric.normal import check_query
from dpaudit.protocols import Array, Host, Stream
from dpaudit.types import EpsilonBounds

__all__ = ["Snapping", "log_near", "log_rounded"]

_LN2 = 0.6931471805599453
_TERMS = 15

Floats = npt.NDArray[np.float64]


def log_near(u: Floats) -> Floats:
    """Logarithms of doubles 0 < u < 1, not subnormal: off by a factor within 1 ± 2^-48.

    With u = m·2^e, √½ ≤ m < √2, and f = (m − 1)/(m + 1): ln u = e·ln 2 + 2f·(1 + f²/3 + f⁴/5 + …).
    |f| < 0.1716, so what follows the fifteenth term is below 2^-75 of the sum. m − 1 is exact; f
    has two roundings, the sum, whose terms all have one sign, fewer than eight more: ln m is off by
    a factor within 1 ± 10·2^-53, e·ln 2 by 1 ± 2·2^-53. They cancel at worst at e = −1, m = √2,
    from 0.693 to 0.347: (2·0.693 + 10·0.347)·2^-53/0.347 and a last rounding, 15·2^-53.
    """
    m, e = np.frexp(u)
    small = m < 0.7071067811865476
    m = np.where(small, 2 * m, m)
    f = (m - 1) / (m + 1)
    square = f * f
    total = np.full_like(f, 1 / (2 * _TERMS - 1))
    for odd in range(2 * _TERMS - 3, 0, -2):
        total = total * square + 1 / odd
    return np.asarray((e - small) * _LN2 + 2 * f * total)


def log_rounded(u: float) -> float:
    """The double nearest to ln u, 0 < u < 1.

    ln u is transcendental, so it lies on no midpoint of two doubles: digits are added until the
    enclosure, ``decimal``'s correctly rounded logarithm and one unit of its last digit, rounds to
    one double.
    """
    digits = 40
    while True:
        context = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)
        value = context.ln(Decimal(u))
        low, high = float(context.next_minus(value)), float(context.next_plus(value))
        if low == high:
            return low
        digits *= 2


_EXTRA = 2.0**-46  # what rounding may add to ε, in units of bound/scale
_SLACK = 2.0**-46  # of the fast logarithm
_CHUNK = 1 << 14
_WIDEST = 2.0**40  # bound/scale up to which _EXTRA is proven


class Snapping:
    """Mironov's snapping mechanism (2012, CCS), coordinate by coordinate.

    The release is clamp_B( round_Λ( clamp_B(x) ⊕ S ⊗ λ ⊗ LN(U) ) ). ⊕ and ⊗ are double-precision
    operations. U is uniform on (0, 1) in full floating-point precision (a random exponent and 52
    more bits: each double with probability its distance to the next), S a fair sign, LN the
    correctly rounded logarithm, Λ the least power of two ≥ λ; halves round up. All bits come from
    ``Stream.bytes``.

    ``epsilon`` is the ε of one coordinate at L1 sensitivity ``sensitivity`` Δ, rounding included: λ
    = (Δ + 2^-46·B)/ε. Formal guarantee: (Δ/λ + 2^-46·B/λ)-DP, which is no more than ε, if Λ ≤ B ≤
    2^40·λ; but for δ = (1 + e^ε)·2^-1022, as no U is smaller and no noise larger than 709·λ.
    Mironov's Theorem 1 has 1/λ + 2^-49·B/λ at Δ = 1; the wider correction is for any Δ and rests on
    this proof, η = 2^-53.

    Given S, the outcome is a monotone function of U, and a cell of Λ·Z has borders b, odd multiples
    of Λ/2 with |b| ≤ B + Λ/2 ≤ 3B/2, at U with ln U = S·(b(1 ± η) − x)/(λ(1 ± 2.01η)); the doubles'
    grid moves U by a factor 1 ± 2η more. So each border's U is that of real arithmetic but for a
    factor exp(±h), h < η·(4.6 + 2.1)·B/λ + 2η < 9ηB/λ. As Λ ≥ λ, a cell's probability is off by at
    most four times the relative error of its borders' U: outside the cell the farther border has at
    most 1/e of the nearer's U,
    and (1 + 1/e)/(1 − 1/e) < 2.2; a cell around x has at least (1 − 1/e)/2 in all, as has the one
    next to an x so near a border that the other sign counts. In real arithmetic two neighbours'
    probabilities differ by a factor of at most exp(Δ/λ), rounding being post-processing; two errors
    of 4.01h make it exp(Δ/λ + 73ηB/λ), and 73η < 2^-46.

    LN is evaluated lazily: from a logarithm that is proven right to 2^-48 the release is computed
    at both ends of its enclosure; as everything after it is monotone, equal outcomes are that of
    LN, and unequal ones (about once in 2^45 releases) go to a correctly rounded logarithm. So the
    release is that of the formula above, bit for bit.

    Threat model: every bit of the release is seen; the stream's key is secret. Not claimed:
    constant time; accuracy beyond B, where values are clamped (an error of their own, not a leak);
    the query's own rounding. ``claim`` names the Laplace law with the standard deviation of the
    released error, rounding included; the support is a lattice. Rounding keeps no law that an audit
    of noise could test, so ``instead`` names the audit of releases.
    """

    dim = None

    def __init__(
        self, *, epsilon: float = 1.0, sensitivity: float = 1.0, bound: float = 2.0**20
    ) -> None:
        """ε per coordinate (rounding included), sensitivity Δ, and the ``bound`` B on |value|.

        Δ and B are in the query's unit.

        Raises:
            UsageError: one of them not a finite number > 0, or a bound below Λ or above 2^40·λ.
        """
        for name, value in (("epsilon", epsilon), ("sensitivity", sensitivity), ("bound", bound)):
            if isinstance(value, (str, bool)) or not 0 < value < math.inf:
                raise UsageError(f"{name}={value}: must be a finite number > 0")
        epsilon, sensitivity, self.bound = float(epsilon), float(sensitivity), float(bound)
        self._stated = epsilon, sensitivity
        self.scale = (sensitivity + _EXTRA * self.bound) / epsilon * (1 + 2.0**-50)
        mantissa, exponent = math.frexp(self.scale)
        if not (math.isfinite(self.scale) and -900 <= exponent <= 900):
            raise UsageError(
                f"epsilon={epsilon}: noise of scale {self.scale:.3g} is out of range; "
                "change the query's unit"
            )
        self.granularity = math.ldexp(1.0, exponent - (mantissa == 0.5))
        if not self.granularity <= self.bound <= _WIDEST * self.scale:
            raise UsageError(
                f"bound={bound}: must lie between {self.granularity!r} and "
                f"{_WIDEST * self.scale:.4g} at noise of scale "
                f"{self.scale:.4g}; take one that holds nearly all values"
            )

    @property
    def sigma(self) -> float:
        """Standard deviation of a release of 0 far from the bound, in real arithmetic."""
        c = self.granularity / self.scale / 2
        return self.granularity * math.sqrt(math.cosh(c) / 2) / math.sinh(c)

    @property
    def claim(self) -> str:
        return f"laplace:scale={self.sigma / math.sqrt(2)!r}"

    @property
    def instead(self) -> str:
        """Options of ``dpaudit mechanism`` that audit its releases."""
        epsilon, sensitivity = (repr(x).removesuffix(".0") for x in self._stated)
        return f"--neighbours 0,{sensitivity} --claim-epsilon {epsilon}"

    @cpu_sample(exact=True, floating=True)
    def sample(self, n: int, d: int, *, stream: Stream) -> Floats:
        """Releases of zeros, shape (n, d): there is no noise apart from the value.

        Added to a value it protects nothing.
        """
        return np.asarray(self.release(np.zeros((n, d)), stream=stream))

    def release(self, query: Array, *, stream: Stream) -> Array:
        """Snapped releases of ``query`` (n, d), values beyond the bound clamped.

        Same shape, dtype and device back. In float64 multiples of Λ, or ±bound; a narrower dtype
        gets that rounded (post-processing). −0.0 is 0.

        Raises:
            UsageError: not floating-point of shape (n, d); NaN or infinite; or a release that the
                dtype cannot hold.
        """
        n, d = check_query(query)
        values = to_numpy(double(query)).reshape(-1)
        out = np.empty(n * d)
        for at in range(0, len(out), _CHUNK):  # in cache
            part = np.clip(values[at : at + _CHUNK], -self.bound, self.bound)
            out[at : at + _CHUNK] = self._released(part, stream)
        return in_dtype(out.reshape(n, d), query.dtype, device_of(query))

    def _released(self, x: Floats, stream: Stream) -> Floats:
        uniform, sign = _uniform(len(x), stream)
        log = log_near(uniform)
        out = self._snapped(x, sign, log * (1 - _SLACK))
        for i in np.flatnonzero(out != self._snapped(x, sign, log * (1 + _SLACK))):
            exact = np.array([log_rounded(float(uniform[i]))])
            out[i] = self._snapped(x[i : i + 1], sign[i : i + 1], exact)[0]
        return out

    def _snapped(self, x: Floats, sign: Floats, log: Floats) -> Floats:
        """Everything after the logarithm, monotone in it. Never −0.0: a sum with a zero is 0."""
        steps = (x + sign * (self.scale * log)) / self.granularity
        whole = np.floor(steps)
        whole += steps - whole >= 0.5
        return np.clip(whole * self.granularity, -self.bound, self.bound)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Δ₁/λ + d·2^-46·B/λ, Δ₁ = √d·Δ the L1 sensitivity that the host's L2 sensitivity allows.

        At every δ above d·(1 + e^ε)·2^-1022.
        """
        probability(delta)
        high = (
            math.sqrt(host.dim) * host.sensitivity + host.dim * _EXTRA * self.bound
        ) / self.scale
        return EpsilonBounds(
            low=0.0, high=high, says="snapping (Mironov 2012, Theorem 1, with a wider correction)"
        )


def _uniform(n: int, stream: Stream) -> tuple[Floats, Floats]:
    """``n`` doubles of (0, 1), each with probability its distance to the next, and fair signs ±1.

    The exponent is the number of trailing zeros of a stream of bits, the mantissa 52 others. What
    would be below 2^-1022, probability 2^-1022, is put into the binade above it.
    """
    words = (
        np.frombuffer(stream.bytes(16 * n), dtype="<u8").astype(np.uint64, copy=False).reshape(n, 2)
    )
    first = words[:, 0]
    # of the lowest bit that is set
    zeros = np.frexp((first & (~first + np.uint64(1))).astype(np.float64))[1] - 1
    for i in np.flatnonzero(first == 0):
        count, word = 64, int.from_bytes(stream.bytes(8), "little")
        while word == 0 and count < 1021:
            count, word = count + 64, int.from_bytes(stream.bytes(8), "little")
        zeros[i] = min(1021, count + max(0, (word & -word).bit_length() - 1))
    mantissa = 1 + (words[:, 1] >> np.uint64(12)).astype(np.float64) * 2.0**-52
    sign = np.where(words[:, 1] & np.uint64(1), -1.0, 1.0)
    return np.ldexp(mantissa, -1 - zeros), sign
