"""Resolution of the noise: equal values, short uniforms, lattices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.parts import DISCRETE, no_evidence
from dpaudit.audit.battery.resolution import (
    FINEST,
    Bulk,
    Largest,
    Precision,
    lengths_and_angles,
    nonzero,
    on_a_grid,
    repeats_p,
    significand_bits,
    single_values,
    strip_edges,
)
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Granularity"]

_VALUE_BITS = 20  # an honest |value| is no likelier than 2^-20
_PAIR_BITS = 24  # an honest length or angle of a pair, to 9 digits, is no likelier than 2^-24
_SAMPLE = 1 << 17
_STRETCH = 1 << 13
_STRIPS = 16
_DIGITS = 1e9
_LATTICE = 2.0**-24  # coarsest step that passes, in claimed standard deviations
_LATTICE_VALUES = 1 << 15
# values per block that are compared with earlier ones (previous, second previous, previous row)
_NEIGHBOURS = 1 << 16
_CERTAIN = 1e-3  # p-value below which the deciding part is reported
_ZERO = 0.75  # a last digit is 0 no likelier than this
_BINADES = 3
_FARTHEST = 1e8  # beyond anything of the claimed law; squares stay finite

Array = npt.NDArray[np.float64]
Bins = npt.NDArray[np.int64]
_SINGLE = (23, 24)  # bits of uniforms made as float32


class Granularity:
    """Duplicates among magnitudes, and among lengths and angles of pairs; lattices; grids.

    For continuous claims only. Tests all values and the 2,000 largest for duplicates
    (:mod:`~dpaudit.audit.battery.resolution`), and closely at up to 2^17, in stretches of at most
    2^13 at keyed places over the whole run: half from the first half of a call, half from the same
    places of its second half, so that both layouts of Box and Muller's pairs (neighbours; two
    halves) can be rebuilt.

    Composite null: the claimed law, computed and rounded in the format that the values' own digits
    show (double, float32, float32 times the scale, or a grid). So no magnitude is likelier than
    twice its density times the weight of its last digit, or than 2^-40 (in float32, the tail apart:
    2^-22). Whatever the format, no |value| has probability above 2^-20, and no squared length or
    angle of a pair (to 9 digits, Gaussian claims) above 2^-24. Given the values before, the i-th
    repeats one of them with probability at most (i − 1)/M, so the number of repeats is at most a
    sum of independent Bernoulli((i − 1)/M), and as Bernoulli(q) is stochastically at most
    Poisson(−ln(1 − q)), at most Poisson(−Σ ln(1 − (i − 1)/M)): exact at any sample size and in any
    tail. The same in 16 strips of equal claimed probability, where a porous support shows, and
    beyond the 2,001st largest magnitude. A lattice: with uniforms of float32, the last of its 24
    digits is 0 at most half the time, so all m values below σ/2 are multiples of a step above
    2^-24 σ with probability at most 2^-m. The last digit, of the largest magnitudes and of a
    significand that is neither single nor double, is 0 with probability at most 3/4. Of a block's
    first 2^16 values, how many are in magnitude the one before, the second before or the one a row
    before: binomial. Uniforms behind values and pairs have no grid of 2^-48 or coarser that
    rounding does not hide (:func:`~dpaudit.audit.battery.resolution.on_a_grid`). Combined by
    Bonferroni.

    So single precision may be allowed where double is not: an inverse CDF of 24 or 32 bits is a
    finding, and so is a float32 tail that is coarser than float32. Not claimed: pairs in other
    layouts than these two (torch's float32 ``randn`` has its pairs 8 places apart, with lengths
    from uniforms of 24 bits), and what a sum of several short uniforms hides.
    """

    looks_at = "coarse values: short uniforms, rounding, lattices, gaps"
    harm = "values"
    causal_order = 6

    def __init__(self, claim: Claim, stream: Stream) -> None:
        self._claim = claim
        self._rng = stream.numpy()
        # (calls, w) of the first halves, and of the second
        self._stretches: list[tuple[Array, Array]] = []
        self._size = self._blocks = 0
        self._stride = 1
        # pairs compared, and equal: 1 apart, 2 apart, a row apart
        self._near, self._equal = [0, 0, 0], [0, 0, 0]
        self._bulk, self._largest = Bulk(stream.child("all values").numpy()), Largest()

    def update(self, block: Block) -> None:
        if self._claim.discrete:
            return
        flat = np.ascontiguousarray(block.values).ravel()
        self._bulk.add(flat)
        self._largest.add(flat)
        near = np.abs(flat[:_NEIGHBOURS])
        d = block.values.shape[1]
        for kind, apart in enumerate((1, 2, *([d] if d > 2 else []))):
            if len(near) > apart:
                self._near[kind] += len(near) - apart
                self._equal[kind] += int(np.count_nonzero(near[apart:] == near[:-apart]))
        self._blocks += 1
        if self._blocks % self._stride:
            return
        calls = block.values.reshape(block.calls, -1)[: _STRETCH // 2]
        half = calls.shape[1] // 2
        if not half:
            return
        width = min(half, max(1, _STRETCH // 2 // len(calls)))
        # even, so that neighbours stay pairs
        start = int(self._rng.integers((half - width) // 2 + 1)) * 2
        start = min(start, half - width)
        other = calls.shape[1] - half + start
        self._stretches.append(
            (calls[:, start : start + width].copy(), calls[:, other : other + width].copy())
        )
        self._size += 2 * self._stretches[-1][0].size
        # drop every second stretch, and take half as many from now on
        while self._size > _SAMPLE:
            self._stretches = self._stretches[1::2]
            self._size = 2 * sum(a.size for a, _ in self._stretches)
            self._stride *= 2

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        if self._claim.discrete:
            return no_evidence(DISCRETE)
        if not self._stretches:
            return no_evidence("too few values")
        x = np.concatenate([half.ravel() for pair in self._stretches for half in pair])
        looks = self._looks(x)
        worst = min(looks, key=lambda name: looks[name].p)
        finest = min(look.bits for look in looks.values())
        details: dict[str, Any] = {
            f"bits, {name}": round(look.bits, 2)
            for name, look in looks.items()
            if math.isfinite(look.bits)
        }
        details["significand bits"] = significand_bits(x)
        details |= looks["all values"].details
        if looks["lattice"].effect:
            decisive = looks["lattice"]
        elif min(looks["grid"].p, looks[worst].p) >= _CERTAIN:
            decisive = _Look(1.0, effect=f"finer than {math.floor(finest)} bits in every part")
        else:
            decisive = looks["grid" if looks["grid"].p < _CERTAIN else worst]
        blind = BlindSpot(
            test="granularity",
            flaw="coarse noise",
            size=float(_VALUE_BITS),
            unit="bits of resolution",
            says="noise of more bits per value than this, unless single uniforms of up to "
            f"{FINEST} bits lie behind values or neighbouring pairs, or values repeat more often "
            "than their digits say",
        )
        parts = {name: look.p for name, look in looks.items()}
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=finest,
            effect=decisive.effect,
            parts=parts,
            cause=decisive.cause,
            cause_rank=7,
            blind_spots=(blind,),
            details={**details, **decisive.details},
        )

    def _looks(self, x: Array) -> dict[str, _Look]:
        """All of them, by name; ``x`` are the values of the stretches."""
        claim, ordered = self._claim, np.sort(np.abs(x))
        _, top = self._largest.values()
        precision = Precision.of(np.concatenate([x, top]), claim.scale)
        pairs = self._pairs() if claim.family == "gaussian" else {}
        p, bits, distinct = self._bulk.repeats(claim, precision)
        p_top, distinct_top = self._largest.repeats(claim, precision)
        return {
            "magnitudes": _look_at_repeats("magnitudes", *_duplicates(ordered, 2.0**_VALUE_BITS)),
            "equal neighbours": self._equal_neighbours(),
            "strips": _strips(ordered, claim),
            **_equal_pairs(pairs),
            "lattice": _lattice(x, claim.standard_deviation),
            "all values": _Look(
                p,
                bits,
                f"{distinct}: {bits:.1f} bits",
                _few_bits(bits),
                {"all values": distinct} if distinct else {},
            ),
            "largest values": _Look(p_top, effect=distinct_top),
            "digits": _zero_digits(x, top, precision),
            "grid": _grid(x, pairs, claim, precision),
        }

    def _equal_neighbours(self) -> _Look:
        """Values that equal in magnitude a fixed one of those before: each with P ≤ 2^-20."""
        near = list(zip(self._equal, self._near, strict=True))
        tails = [
            float(scipy.special.bdtrc(equal - 1, pairs, 2.0**-_VALUE_BITS)) if equal else 1.0
            for equal, pairs in near
        ]
        # calls of one value have no neighbours
        bits = [math.log2(pairs / max(equal, 1)) for equal, pairs in near if pairs]
        return _look_at_repeats("equal neighbours", bonferroni(tails), min(bits, default=math.inf))

    def _pairs(self) -> dict[str, tuple[Array, Array]]:
        """First and second values of pairs, in claimed standard deviations, by their layout."""
        near = [h for pair in self._stretches for h in pair if h.shape[1] > 1]
        layouts = {
            "neighbours": [
                (h[:, 0 : h.shape[1] // 2 * 2 : 2].ravel(), h[:, 1::2].ravel()) for h in near
            ],
            "halves": [(a.ravel(), b.ravel()) for a, b in self._stretches],
        }
        pairs = {}
        for name, stretches in layouts.items():
            if stretches:
                a, b = (
                    np.clip(np.concatenate(side) / self._claim.scale, -_FARTHEST, _FARTHEST)
                    for side in zip(*stretches, strict=True)
                )
                pairs[name] = a, b
        return pairs


@dataclass(frozen=True, slots=True)
class _Look:
    """A p-value and bits of resolution, with the effect and cause if this look decides."""

    p: float
    bits: float = math.inf
    effect: str = ""
    cause: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


def _few_bits(bits: float) -> str:
    return f"noise of {bits:.1f} bits only"


def _look_at_repeats(name: str, p: float, bits: float) -> _Look:
    return _Look(p, bits, f"about {bits:.1f} effective bits in {name}", _few_bits(bits))


def _duplicates(ordered: Array | Bins, atoms: float) -> tuple[float, float]:
    """p-value of the number of repeats, atoms being at most 1/``atoms``; −log2 of equal pairs.

    The second value is −log2 of the share of equal pairs.
    """
    n = len(ordered)
    if n < 2 or n > atoms / 2:  # so many in one strip are left to the tests of the distribution
        return 1.0, math.log2(atoms)
    new = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
    runs = np.diff(new).astype(np.float64)
    pairs = float((runs * (runs - 1)).sum()) / 2
    bits = math.log2(n * (n - 1) / 2 / max(pairs, 1.0))
    return repeats_p(n - len(runs), n, atoms), bits


def _strips(ordered: Array, claim: Claim) -> _Look:
    """Duplicates in each of 16 strips of |value| that the claimed law hits equally often.

    Given how many values fall into a strip, they are independent, with atoms of at most 2^-20 over
    its probability.
    """
    strips = np.split(ordered, np.searchsorted(ordered, strip_edges(claim, _STRIPS)))
    p, bits = zip(*(_duplicates(x, 2.0**_VALUE_BITS / _STRIPS) for x in strips), strict=True)
    return _look_at_repeats("strips", bonferroni(p), min(bits) + math.log2(_STRIPS))


def _equal_pairs(pairs: Mapping[str, tuple[Array, Array]]) -> dict[str, _Look]:
    """Equal squared lengths and equal angles, to 9 digits."""
    looks = {}
    for layout, (a, b) in pairs.items():
        for name, x in (
            (f"lengths of {layout}", np.log(np.maximum(a * a + b * b, 1e-300))),
            (f"angles of {layout}", np.arctan2(b, a)),
        ):
            bins = np.sort(np.floor(x * _DIGITS).astype(np.int64))
            looks[name] = _look_at_repeats(name, *_duplicates(bins, 2.0**_PAIR_BITS))
    return looks


def _lattice(x: Array, deviation: float) -> _Look:
    """The coarsest step 2^-k or 10^-k above 2^-24 σ that divides all values."""
    x = x[:: max(1, len(x) // _LATTICE_VALUES)]
    m = int(np.count_nonzero((np.abs(x) < deviation / 2) & (x != 0)))
    for base in (10.0, 2.0) if m else ():
        # base^-k is the finest step above the limit
        k = math.ceil(-math.log(_LATTICE * deviation, base)) - 1
        if _multiples(x, base**-k):
            while _multiples(x, base ** (1 - k)) and base ** (1 - k) < deviation:
                k -= 1
            step, p = base**-k, min(1.0, 2 * 2.0 ** -min(m, 1000))
            effect, details = f"all values are multiples of {step:g}", {"lattice step": step}
            return _Look(p, effect=effect, cause=f"rounded to {step:g}", details=details)
    return _Look(1.0)


def _multiples(x: Array, step: float) -> bool:
    scaled = x / step
    return bool((np.abs(scaled - np.rint(scaled)) <= 1e-6).all())


def _zero_digits(x: Array, top: Array, precision: Precision) -> _Look:
    """Last digits that are always 0: of the largest magnitudes, or of a longer format."""
    zeros = int(np.count_nonzero(precision.last_digits(top) % 2 == 0))
    p = float(scipy.special.bdtrc(zeros - 1, len(top), _ZERO)) if zeros else 1.0
    effect = f"the last of {precision.bits} digits is 0 in {zeros:,} of the {len(top):,} largest"
    cause = ""
    if 24 < precision.bits < 53 and _relative(nonzero(x), precision):
        short = _ZERO ** min(len(x), 1000)
        if short < p:
            p, spare = short, 53 - precision.bits
            effect = f"zero bits at the end of every double: {spare}"
            cause = f"a shorter number format: the last {spare} binary digits are always 0"
    return _Look(min(1.0, 2 * p), effect=effect, cause=cause)


def _relative(x: Array, precision: Precision) -> bool:
    """Whether values of three binades or more have all these digits: no grid, which has fewer."""
    _, exponent = np.frexp(np.abs(x))
    odd = precision.last_digits(x) % 2 == 1
    ends = np.ldexp(1.0, exponent - precision.bits) >= precision.step
    return len(np.unique(exponent[odd & ends])) >= _BINADES


def _grid(
    x: Array, pairs: Mapping[str, tuple[Array, Array]], claim: Claim, precision: Precision
) -> _Look:
    """Grids behind single values, and behind lengths and angles of pairs."""
    grids = {name: on_a_grid(*sides) for name, sides in single_values(x, claim, precision).items()}
    for layout, (a, b) in pairs.items():
        for name, sides in lengths_and_angles(a, b, claim, precision).items():
            grids[f"{name} of {layout}"] = on_a_grid(*sides)
    quantity = min(grids, key=lambda name: grids[name].p)
    grid, law = grids[quantity], grids[quantity].describe(quantity)
    return _Look(
        min(1.0, len(grids) * grid.p),
        effect=f"uniforms of {grid.bits} bits: {law}",
        cause=_cause_of_grid(grid.bits, law),
        details={"uniforms": grid.bits},
    )


def _cause_of_grid(bits: int, law: str) -> str:
    """Which transform of which uniforms gives such values."""
    transform = "Box–Muller" if "r²" in law else "inverse CDF" if "F(x)" in law else "a transform"
    single = ", as in float32" if bits in _SINGLE else ""
    return f"{transform} of {bits}-bit uniforms{single}"
