"""Bits of the noise that follow from earlier bits by a linear recurrence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery.predictable.berlekamp_massey import Recurrence, shortest_recurrence
from dpaudit.audit.battery.predictable.bit_streams import BitStream, Stretches, bit_streams
from dpaudit.audit.battery.predictable.rejected import Replay, find_replay
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.types import BlindSpot, Evidence

__all__ = ["LinearComplexity", "known_as"]

_SHORT = 4_096  # bits that a recurrence is learned from, of every stream
_LONG = 40_960  # of a few
_HELD_OUT = 1_000
_LEAST = 256  # bits of a stream that is used
_SHORTER = 32  # so many less than half the bits: a recurrence that random bits do not have
_CERTAIN = 1e-12

Bits = npt.NDArray[np.uint8]


class LinearComplexity:
    """Learns a linear recurrence over GF(2) from bits of the noise, and predicts later bits.

    Shift registers, Mersenne Twisters, xorshift, Tausworthe and WELL generators have a state of L
    bits, and every bit of their numbers at a fixed place follows a recurrence of length L. 2 L such
    bits give it, by the algorithm of Berlekamp and Massey. The bits: signs; the
    uniform behind a value, its second, third, fourth, 8th, 16th, 24th, 31st and 32nd bit; the last
    digits of significands and of lattices; of pairs (neighbours, 8 apart, two halves of a call) the
    length and the angle that Box and Muller's transform made of uniforms; parities of whole
    numbers. Every value or each 2nd, 3rd, 4th, 8th, 16th; by rows, by columns; the first values of
    rows and of calls. From every stream up to 4,096 bits are learned from (recurrences up to
    2,016), from signs and some others up to 40,960 (up to 20,448).

    Null: the values are independent with one law, whatever it is and however coarse. Then a fixed
    function of one value, or of each of disjoint groups of values, gives exchangeable bits. The
    recurrence is learned from a stream's first bits, and run on without looking at the next n. Of
    those k are ones; given k and all earlier bits each order is equally likely, so the number of
    ones at the m places where a one is predicted is hypergeometric (n, k, m), exactly. Its upper
    tail is the p-value, times the number of streams and lengths tried (Bonferroni). Constant bits
    have p = 1.

    Behind the polar method the number of uniforms per value varies by chance, and a recurrence has
    no fixed places. For Gaussian claims the states of eight known generators (TW223, xorshift,
    taus88, lfsr113, WELL512a, V8's) are computed from a few pairs instead, and give the next 1,000
    values. Null: an honest value lies within 2^-19 (times it, above 1) of a number made of earlier
    ones with probability at most 2^-16 (see ``predictable``): the hits are at most binomial, times
    the generators, layouts and places tried. Each of the two parts has half of the level.

    Not claimed: ziggurats, and other generators behind the polar method; generators whose bits all
    depend on carries (PCG, the high bits of congruential ones); longer recurrences (WELL44497).
    """

    looks_at = "bits that follow from earlier ones by a linear recurrence"
    harm = "predictable"
    causal_order = 4
    costly = True
    loops = "dpaudit.audit.battery.predictable.rejected"
    predictability = True

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del stream
        self._claim = claim
        self._stretches = Stretches()

    def update(self, block: Block) -> None:
        self._stretches.add(block)

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        replay = None
        if self._claim.family == "gaussian":
            replay = find_replay(self._stretches.beginning / self._claim.scale)
        if replay is not None and 2 * replay.p <= _CERTAIN:
            return _of_replay(replay)
        streams = list(bit_streams(self._stretches, self._claim))
        predictions = [_predict(stream, most=_SHORT) for stream in streams]
        longer = [s for s, bits in zip(streams, predictions, strict=True) if s.long and bits.cut]
        tries = 2 * (len(streams) + len(longer))  # half of the test's level is the replays'
        for stream in longer:
            if min(one.p for one in predictions) * tries <= _CERTAIN:
                break
            predictions.append(_predict(stream, most=_LONG))
        bits = _of_bits(predictions, tries)
        return bits if replay is None or bits.p <= 2 * replay.p else _of_replay(replay)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prediction:
    """What was learned from one stream, and how many held-out bits it predicted."""

    stream: BitStream
    learned_from: int = 0
    cut: bool = False  # whether the stream has more bits than it was learned from
    recurrence: Recurrence | None = None
    hits: int = 0
    held_out: int = 0
    p: float = 1.0


def _predict(stream: BitStream, *, most: int) -> _Prediction:
    with np.errstate(all="ignore"):  # values far beyond the claimed law
        bits = stream.read(most + _HELD_OUT)
    if len(bits) < _LEAST:
        return _Prediction(stream=stream)
    cut = len(bits) == most + _HELD_OUT
    held_out = _HELD_OUT if cut else min(_HELD_OUT, len(bits) // 8)
    learned_from = len(bits) - held_out
    recurrence = shortest_recurrence(bits[:learned_from])
    if 2 * (recurrence.length + _SHORTER) > learned_from:
        return _Prediction(stream=stream, learned_from=learned_from, cut=cut)
    actual, predicted = bits[learned_from:], recurrence.following(held_out)
    return _Prediction(
        stream=stream,
        learned_from=learned_from,
        cut=cut,
        recurrence=recurrence,
        hits=int(np.count_nonzero(actual == predicted)),
        held_out=held_out,
        p=_chance(actual, predicted),
    )


def _chance(actual: Bits, predicted: Bits) -> float:
    """P(at least so many ones at the places predicted), each order of ``actual`` equally likely."""
    n, k, m = len(actual), int(actual.sum()), int(predicted.sum())
    both = int((actual & predicted).sum())
    return math.fsum(
        math.comb(m, i) * math.comb(n - m, k - i) / math.comb(n, k)
        for i in range(both, min(k, m) + 1)
    )


def _of_replay(replay: Replay) -> Evidence:
    return Evidence(
        p=min(1.0, 2 * replay.p),
        statistic=float(replay.hits),
        effect=f"{replay.generator} behind the polar method: its state follows from a few pairs, "
        f"and {replay.hits:,} of {replay.held_out:,} held-out values are predicted",
        cause=f"{replay.generator} and polar",
        cause_rank=1,
        details={
            "generator": replay.generator,
            "predicted": f"{replay.hits} of {replay.held_out}",
            "values needed": replay.learned_from,
        },
    )


def _of_bits(predictions: list[_Prediction], tries: int) -> Evidence:
    longest = max((one.learned_from for one in predictions), default=0) // 2
    blind = BlindSpot(
        test="linear-complexity",
        flaw="a linear generator",
        size=float(max(0, longest - _SHORTER)),
        unit="bits of recurrence",
        says="longer recurrences over GF(2), those of other bits, and linear "
        "generators behind a sampler that rejects some of their numbers (ziggurats; the polar "
        "method, but for the small generators that dpaudit explain linear-complexity lists)",
    )
    best = min(predictions, key=_likelihood, default=None)
    if best is None or best.recurrence is None or best.p >= 1:
        text = f"no recurrence shorter than {longest:,} in {len(predictions)} streams of bits"
        return Evidence(p=1.0, statistic=float(longest), effect=text, blind_spots=(blind,))
    stream, length = best.stream, best.recurrence.length
    predicted = f"{best.hits:,} of {best.held_out:,}"
    generator = known_as(best.recurrence, stride=stream.stride)
    details: dict[str, Any] = {
        "bits": stream.name,
        "recurrence": length,
        "predicted": predicted.replace(",", ""),
        "values needed": 2 * length * stream.stride,
        "streams predicted": sum(one.p * tries <= _CERTAIN for one in predictions),
    }
    like, state = "", f" with a state of {length:,} bits"
    if generator is not None:
        details["generator"] = generator
        like, state = f"like {generator}: ", f": {generator}"
    where = " in the last digits" if stream.name.startswith("last digits") else ""
    return Evidence(
        p=min(1.0, best.p * tries),
        statistic=float(length),
        effect=f"{like}{stream.name} follow a linear recurrence of length {length:,}, {predicted} "
        "held-out bits predicted",
        cause=f"a linear generator{where}{state}",
        cause_rank=4,
        blind_spots=(blind,),
        details=details,
    )


def _likelihood(one: _Prediction) -> tuple[float, int, int]:
    """Certain predictions first, and of these the ones that need the fewest values."""
    length = one.recurrence.length if one.recurrence else 0
    return max(one.p, _CERTAIN), length * one.stream.stride, one.stream.stride


_KNOWN = {
    23: "a shift register of 23 bits (PRBS23)",
    31: "a shift register of 31 bits (PRBS31)",
    32: "xorshift32",
    64: "xorshift64",
    88: "taus88",
    96: "xorshift96",
    113: "lfsr113",
    128: "xorshift128, xorshift128+ or xoroshiro128",
    160: "xorwow",
    223: "the combined Tausworthe generator of LuaJIT",
    250: "R250",
    256: "xoshiro256",
    258: "lfsr258",
    512: "WELL512 or xoshiro512",
    521: "a shift register of 521 places",
    607: "a Mersenne Twister or shift register of 607 bits",
    800: "TT800",
    1024: "WELL1024 or xorshift1024",
    1279: "a shift register of 1,279 places",
    9689: "a shift register of 9,689 places",
    11213: "a Mersenne Twister of 11,213 bits",
    19937: "the Mersenne Twister MT19937, or WELL19937",
}

_V8 = 64, 128  # numbers per block, length of the recurrence


def known_as(recurrence: Recurrence, *, stride: int) -> str | None:
    """The best known linear generators with this recurrence of every ``stride``-th value."""
    turns, length = recurrence.registers
    if (turns * stride, length) == _V8 and turns > 1:
        return "xorshift128+ in blocks of 64, the last first, as V8 (Node, Chrome) gives them"
    name = _KNOWN.get(length)
    return name if name is None or turns == 1 else f"{name}, {turns} in turn"
