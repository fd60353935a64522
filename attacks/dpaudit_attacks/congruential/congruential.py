"""Noise made of a linear recurrence: each uniform follows from few before it.

From its neighbours, or, as a sum or difference modulo 1, from two at a distance: lagged Fibonacci
generators, subtract-with-borrow, glibc's ``random``, Knuth's ``ran_array``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni
from dpaudit.types import BlindSpot, Evidence
from dpaudit_attacks.congruential.held_out import NOTHING, HeldOut, held_out
from dpaudit_attacks.congruential.known import (
    LinearGenerator,
    generator_name,
    published_generators,
)
from dpaudit_attacks.congruential.peaks import Peak, replay_peak, replay_polar_peak
from dpaudit_attacks.congruential.relations import (
    DEEPER,
    RISE,
    SEARCH,
    SHORTEST,
    Recurrence,
    Relations,
    Search,
    constancy,
    model_of,
    predict,
    predict_pairs,
    recurrence,
    reordered,
)
from dpaudit_attacks.congruential.uniforms import (
    Sequence,
    Stretches,
    polar_sequences,
    sequences,
)

__all__ = ["Congruential", "lag_pairs"]

_Detail = tuple[str, Any]

_VALUES_PER_SEARCH = 1 << 11  # so that small audits stay cheap
_FEW = 4  # searches of the smallest audit
_DEEPER = 3  # sequences that large moduli are searched in
_CERTAIN = 1e-12  # a relation whose values are then predicted
_UNUSUAL = 1e-6  # p-value below which a relation must need the order of the values
_ERRORS = 4.0  # standard errors that are allowed for the hits in another order
_REORDERED = 32  # relations that are counted in another order
_ORDERS = 256  # at most, until so many held-out numbers are counted
_ENOUGH = 1 << 10
_KNOWN = "known generators"
_PREDICTIONS = ("values", "lags", "states")  # parts whose held-out numbers are values
_NEEDED = (("values needed", SEARCH.width),)  # once the generator is known
_COARSE = 24  # coefficients of a relation that shows through coarse values


@dataclass(frozen=True, slots=True)
class _Hypothesis:
    """One hypothesis, and how often held-out values fit it."""

    part: str
    counts: HeldOut
    cause: str = ""
    details: tuple[_Detail, ...] = ()
    sequence: Sequence | None = None
    recount: Callable[[Sequence], HeldOut] | None = None
    """The counts of another sequence; None for states, which follow from one value."""

    @property
    def needs_order(self) -> bool:
        """Whether far more held-out numbers are hits than of the same values in other orders."""
        if self.sequence is None or self.recount is None:
            return True
        hits = of = 0
        for order in range(_ORDERS):
            other = self.recount(reordered(self.sequence, order))
            hits, of = hits + other.hits, of + other.of
            if of >= _ENOUGH or not of:
                break
        chance = self.counts.chance
        if of:
            rate = (hits + _ERRORS * math.sqrt(hits + 1)) / of
            chance = max(chance, min(1.0, rate))
        return float(scipy.special.bdtrc(self.counts.hits - 1, self.counts.of, chance)) < _UNUSUAL


class Congruential:
    """Recovers uniforms from values, and looks for linear recurrences modulo 1 among them.

    Two stretches of up to 16,384 consecutive values (of a long call read by rows, and of one read
    by columns; of small audits the first values) are mapped back to uniforms: by the claimed
    distribution function, by that of magnitudes, and for Gaussian claims by the lengths and angles
    of pairs (Box and Muller; neighbours, 8 apart, or the halves of a call or row), by the polar
    method and as sums of 12 uniforms. One half of a stretch gives a hypothesis, the other tests it:

    *planes*: in windows of 8 uniforms some Σ c_i·u_i with small whole c_i hardly changes modulo 1
    (Marsaglia 1968), found by lattice reduction whatever multiplier, modulus up to 2^64 (2^128 for
    uniforms of 28 bits) and increment; *known generators*: the same for published ones, with
    vectors of 8 and of 24 coefficients fixed beforehand; *values*: modulus and multiplier that
    follow from the planes predict all uniforms from the first window on; *lags*: u_t is a sum or
    difference of u_(t − r) and u_(t − s), all r, s up to 8,000; *states*: for transforms of two
    uniforms that lose one (the polar method included), all states of 32 bits that could have made
    the largest value, against the values after it.

    Null: an image of an honest value, given all before, is a uniform number but for a blur of
    2^-18 on average ("at least as fine as float32 with uniforms of 20 bits", as in
    ``granularity``), so Σ c_i·u_i lies in an arc of width w, chosen on the first half, with
    probability at most w + |c_i|·2^-16 for each of its c_i. The number of held-out windows that
    do is at most binomial: exact at any sample size. Bonferroni over all hypotheses, whether they
    were tried or not.

    Values of another law fulfil relations in any order: those far beyond the claimed law all have
    uniforms near 0, 1 or 1/2. Then p still counts against the claim, but a relation is named, and
    the noise called predictable, only if it has far more hits than the same values (of pairs: the
    same pairs) in other orders, of which 256 are tried where windows are few.

    Not claimed: generators whose output is permuted, shuffled or decimated (PCG, ranlux), products
    at a distance, transforms that reject by other rules (ziggurat), linear ones over bits.
    """

    looks_at = "noise that follows from a congruential or lagged generator"
    harm = "predictable"
    causal_order = 2
    costly = True
    predictability = True
    loops = "dpaudit_attacks.congruential.relations"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        self._claim = claim
        self._family = claim.family
        self._peak = Peak(claim)
        self._stream = stream
        self._stretches = Stretches()
        self._draws = 0

    def update(self, block: Block) -> None:
        if block.process == 0:
            self._draws += block.z.size
            self._stretches.add(block)
            self._peak.add(block)

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        stretches = self._stretches.selection()
        if not stretches:
            return Evidence(p=1.0, statistic=0.0, effect="too few different values")
        inverted = [list(sequences(stretch, family=self._family)) for stretch in stretches]
        hypotheses = [
            *self._from_lattices(inverted),
            *(one for sequence in chain(*inverted[:1]) for one in _from_lags(sequence)),
            *(one for sequence in chain(*inverted) for one in _from_published(sequence)),
        ]
        if self._family == "gaussian":
            pairs = [sequence for stretch in stretches for sequence in polar_sequences(stretch)]
            hypotheses += [one for sequence in pairs for one in _from_published_pairs(sequence)]
        states = list(replay_peak(self._peak.values, self._claim, draws=self._draws))
        if self._family == "gaussian":
            states += replay_polar_peak(self._peak.values, draws=self._draws)
        hypotheses += [_Hypothesis("states", counts, cause) for cause, counts in states]
        by_part: dict[str, list[float]] = {}
        for one in hypotheses:
            by_part.setdefault(one.part, []).append(one.counts.p)
        parts = {part: bonferroni(ps) for part, ps in by_part.items()}
        first, *others = sorted(hypotheses, key=_rank)
        best: _Hypothesis | None = first
        effect = f"no recurrence fits: {len(hypotheses):,} hypotheses"
        details: dict[str, Any] = {"hypotheses": len(hypotheses)}
        cause = harm = ""
        if first.counts.p < _UNUSUAL and not first.needs_order:
            certain = [one for one in others if one.counts.p < _CERTAIN]
            certain.sort(key=lambda one: -one.counts.hits / one.counts.of)
            best = next((one for one in certain[:_REORDERED] if one.needs_order), None)
        if best is None:
            harm = "law"
            effect = (
                "no generator: these values fulfil linear relations in any order, "
                "which values of the claimed law do not"
            )
        elif best.counts.p < _CERTAIN:
            cause = best.cause.partition(": ")[0]
            effect = f"{best.cause}: {best.counts.text} {_HELD_OUT[best.part]}"
            key = "predicted" if best.part in _PREDICTIONS else "windows"
            counts = f"{best.counts.hits} of {best.counts.of}"
            details |= {key: counts, "chance": best.counts.chance, **dict(best.details)}
        return Evidence(
            p=bonferroni([one.counts.p for one in hypotheses]),
            statistic=first.counts.hits / max(first.counts.of, 1),
            effect=effect,
            parts=parts,
            cause=cause,
            cause_rank=3,
            harm=harm,
            blind_spots=(_BLIND,),
            details=details,
        )

    def _from_lattices(self, inverted: list[list[Sequence]]) -> Iterator[_Hypothesis]:
        """Lattice reduction: as many as the audit is large."""
        rng = self._stream.child("windows").numpy()
        all_of_them = [(sequence, SEARCH) for sequence in chain(*inverted[:1])]
        all_of_them += [(sequence, DEEPER) for sequence in chain(*inverted[:1])][:_DEEPER]
        all_of_them += [(sequence, SEARCH) for sequence in chain(*inverted[1:])]
        most = max(_FEW, self._draws // _VALUES_PER_SEARCH)
        for sequence, search in all_of_them[:most]:
            if search.fits(sequence):
                yield from _planes(sequence, search, Relations.among(sequence, search, rng))


def _planes(sequence: Sequence, search: Search, relations: Relations) -> Iterator[_Hypothesis]:
    cause = (
        f"a congruential generator and {sequence.transform}: "
        f"sums of {search.width} neighbouring uniforms stay the same modulo 1"
    )
    vector = relations.testable()
    coefficients = ("coefficients", vector.tolist())
    count = partial(constancy, vector=vector)
    yield _Hypothesis("planes", count(sequence), cause, (coefficients,), sequence, count)
    # beyond it the next window's first uniform is not in this one
    short = sequence.step < search.width
    model = recurrence(relations) if short and relations.hold(sequence) else None
    if model is None:
        yield _Hypothesis("values", NOTHING)
        return
    factors = model.factors[1 : sequence.step + 1]
    published = next(
        filter(None, (generator_name(model.modulus, factor) for factor in factors)), None
    )
    name = published or _describe_model(model, sequence.step)
    yield _Hypothesis(
        "values",
        predict(sequence, model),
        f"{name} and {sequence.transform}",
        (
            ("generator", name),
            ("modulus", str(model.modulus)),
            ("multiplier", str(factors[-1])),
            *(_NEEDED if published else ()),
        ),
        sequence,
        partial(predict, sequence, model),
    )


def _describe_model(model: Recurrence, step: int) -> str:
    """What is known of a generator without a name."""
    apart = "" if step == 1 else " from pair to pair"
    modulus = _as_power(model.modulus)
    return f"a congruential generator (multiplier {model.factors[step]}{apart}, modulus {modulus})"


def _as_power(modulus: int) -> str:
    """2^31 - 1 rather than 2147483647.

    >>> _as_power(2**31 - 1), _as_power(2**64), _as_power(714_025)
    ('2^31 - 1', '2^64', '714025')
    """
    bits = modulus.bit_length()
    for exponent in (bits, bits - 1):
        rest = modulus - (1 << exponent)
        if abs(rest) < 1 << exponent // 2:
            return f"2^{exponent}" + (f" {'+-'[rest < 0]} {abs(rest)}" if rest else "")
    return str(modulus)


def _from_lags(sequence: Sequence) -> Iterator[_Hypothesis]:
    if sequence.step > 2:
        return
    unused = CANDIDATES
    for one in lag_pairs(sequence):
        unused -= 1
        cause = f"{one.recurrence}, by {sequence.transform}"
        details = (("lags", list(one.lags)), ("values needed", max(one.lags)))
        count = partial(count_lags, lags=one)
        yield _Hypothesis("lags", count(sequence), cause, details, sequence, count)
    yield from [_Hypothesis("lags", NOTHING)] * unused


def _from_published(sequence: Sequence) -> Iterator[_Hypothesis]:
    """Only where a uniform is one value: coarse values give no lengths and angles."""
    if sequence.step > 1:
        return
    for one in published_generators():
        if len(one.vector) >= _COARSE:
            related = partial(constancy, vector=one.vector)
            counts = related(sequence)
            yield _Hypothesis(_KNOWN, counts, *_cause(one, sequence), sequence, related)
            model = model_of(one) if counts.p < _CERTAIN else None
            following = partial(predict, sequence, model) if model else _nothing
            yield _Hypothesis(
                "values", following(sequence), *_cause(one, sequence, *_NEEDED), sequence, following
            )


def _from_published_pairs(sequence: Sequence) -> Iterator[_Hypothesis]:
    for one in published_generators():
        if len(one.vector) < _COARSE and abs(one.vector).max() >= SHORTEST:
            related = partial(constancy, vector=one.vector, rise=RISE)
            counts = related(sequence)
            yield _Hypothesis(_KNOWN, counts, *_cause(one, sequence), sequence, related)
            sure = counts.p < _CERTAIN
            following = partial(predict_pairs, generator=one) if sure else _nothing
            yield _Hypothesis(
                "values", following(sequence), *_cause(one, sequence, *_NEEDED), sequence, following
            )


def _nothing(sequence: Sequence) -> HeldOut:
    del sequence
    return NOTHING


def _cause(
    one: LinearGenerator, sequence: Sequence, *more: _Detail
) -> tuple[str, tuple[_Detail, ...]]:
    return f"{one.name} and {sequence.transform}", (("generator", one.name), *more)


def _rank(one: _Hypothesis) -> tuple[float, bool]:
    """Predicted values before relations that are as certain."""
    return max(one.counts.p, 1e-100), one.part not in _PREDICTIONS


_HELD_OUT = {
    "planes": "held-out windows",
    _KNOWN: "held-out windows obey its relation",
    **dict.fromkeys(_PREDICTIONS, "held-out values predicted"),
}

_BLIND = BlindSpot(
    test="congruential",
    flaw="a linear recurrence behind the noise",
    size=64.0,
    unit="bits of modulus",
    says="congruential generators with a larger modulus (128 bits where uniforms have 28) and lags "
    "above 8,000; outputs that are permuted, shuffled or decimated (PCG, ranlux), products at a "
    "distance, transforms that reject by a table (ziggurat)",
)

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

LONGEST = 8_000
CANDIDATES = 4
"""At most so many of a sequence are counted on held-out values."""
_ERROR = 2.0**-10  # of a sum of six uniforms: each is right to 13 bits
_CHECKS = 12
_AGREEING = 1 << 20  # pairs that agree with the first two places; honest noise has 8,000^2·2^-9
_COUNTED = 2_000
_FORMS = ((-1, -1), (-1, 1), (1, 1))


@dataclass(frozen=True, slots=True)
class Lags:
    """u_t + Σ sign·u_(t − lag) is constant modulo 1, where t has this parity (None: any)."""

    lags: tuple[int, int]
    signs: tuple[int, int]
    parity: int | None = None

    @property
    def recurrence(self) -> str:
        """The recurrence, without its constant."""
        terms = zip(self.lags, self.signs, strict=True)
        right = " ".join(f"{'-' if sign > 0 else '+'} u(t - {lag})" for lag, sign in terms)
        return f"u(t) = {right.removeprefix('+ ')} modulo 1"


def lag_pairs(sequence: Sequence) -> Iterator[Lags]:
    """Candidates among all pairs of lags up to 8,000, or as many as the first half has.

    From 14 places of the first half. The differences w_i = u_(t − i) − u_(t' − i) between two of
    them fulfil w_0 + σ·w_r + σ'·w_s = 0: two of a sorted list that add up to a number.
    """
    u = sequence.u
    half = len(u) // 2
    longest = min(LONGEST, half - 4 * _CHECKS - 4)
    if longest < 2:
        return
    count = 0
    for parity in range(sequence.step):
        places = np.arange(half - 1, half - 4 * _CHECKS, -1)
        places = places[places % sequence.step == parity][: _CHECKS + 2]
        back = np.arange(longest + 1)
        earlier = u[places[:, None] - back]
        apart = earlier[1:] - earlier[0]
        for signs in _FORMS:
            for r, s in _pairs(apart, signs).tolist():
                if count == CANDIDATES:
                    return
                count += 1
                yield Lags((r, s), signs, parity if sequence.step > 1 else None)


def _pairs(apart: Floats, signs: tuple[int, int]) -> Places:
    """Lags (n, 2) that every row of differences agrees with.

    None where values are so often alike that all would do.
    """
    one, two = signs
    first = apart[0]
    values = first[1:] % 1.0
    order = np.argsort(values)
    ordered = values[order]
    ordered = np.concatenate([ordered - 1, ordered, ordered + 1])
    wanted = (-two * (first[0] + one * first[1:])) % 1.0
    low = np.searchsorted(ordered, wanted - _ERROR)
    many = np.searchsorted(ordered, wanted + _ERROR) - low
    if many.sum() > _AGREEING:
        return np.empty((0, 2), np.int64)
    r = np.repeat(np.arange(len(values)), many)
    nth = np.arange(len(r)) - np.repeat(np.cumsum(many) - many, many)
    s = order[(np.repeat(low, many) + nth) % len(order)]
    keep = r < s if one == two else r != s
    r, s = r[keep] + 1, s[keep] + 1
    for row in apart[1:]:
        rest = row[0] + one * row[r] + two * row[s]
        keep = np.abs(rest - np.rint(rest)) <= _ERROR
        r, s = r[keep], s[keep]
    return np.stack([r, s], axis=1)


def count_lags(sequence: Sequence, lags: Lags) -> HeldOut:
    """Values of the second half that the recurrence predicts."""
    u = sequence.u
    half, (r, s), (one, two) = len(u) // 2, lags.lags, lags.signs
    t = np.arange(max(r, s), len(u))
    if lags.parity is not None:
        t = t[t % 2 == lags.parity]
    rest = u[t] + one * u[t - r] + two * u[t - s]
    return held_out(rest[t < half], rest[t >= half][:_COUNTED])
