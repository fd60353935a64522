"""The generator's whole state from some noise, and from that the noise that follows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.types import BlindSpot, Evidence
from dpaudit_attacks.state_recovery.inversions import (
    BLOCK,
    DOUBLE,
    INVERSIONS,
    SINGLE_PRECISION,
    TORCH_NORMAL,
    Inversion,
    Layout,
    Uniforms,
)
from dpaudit_attacks.state_recovery.mersenne_state import (
    follows,
    recover_state,
    top_bits_relation,
)
from dpaudit_attacks.state_recovery.polar import WAYS, polar_fits
from dpaudit_attacks.state_recovery.seeds import Found, Noise, find_seed

__all__ = ["Prediction", "StateRecovery", "predictions"]

_FEWEST = 8  # values of a first call whose seed is looked for
_LOG_SHARE = -30 * math.log(2)  # of α, spent on seeds: seeds that fit have far smaller p-values
KEPT = 24_576  # values in a row: the slow check of one bit needs 19,937
_SIZES = (640, 800, 1_000, 1_250, 1_500, 1_750, 2_000, 2_500, 3_000, 4_000, 6_000)
"""Values from which a state is solved."""
_ENOUGH = 0.99  # of the held-out values: no more values are needed
_HELD_OUT = 128  # at least
_LEAST = _SIZES[0] + _HELD_OUT  # values worth trying
_FARTHEST = 1e6  # in units of the scale: beyond anything of the claimed law
_TOLERANCE = 2.0**-19  # times the number, above 1: float32 is finer
_ALIKE = 2.0**-16  # an honest value lies within the tolerance of a number at most so often

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one recovered state predicts of values that it was not recovered from."""

    transform: str
    used: int
    predicted: int
    compared: int

    @property
    def log_p(self) -> float:
        """The logarithm of a bound on P(so many right | honest): C(n, k) q^k, 0 at most."""
        n, k = self.compared, self.predicted
        choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        return min(0.0, float(choose) + k * math.log(_ALIKE))


@dataclass(slots=True)
class _Run:
    """Values in a row, and where they stand."""

    values: Floats = field(default_factory=lambda: np.empty(0))
    call: int = 0


class StateRecovery:
    """Recovers the whole state of a Mersenne Twister from noise, and predicts the noise after it.

    For continuous claims only. The longest call's first 24,576 values are inverted in each of the
    ways listed in :mod:`.inversions`: to the uniform numbers, each with an error bound, and to
    those bits of the generator's words that are certain. The bits are linear over GF(2) in the
    state's 19,968. A sparse relation of them is checked first; then the state is solved from the
    first part of the values, and the generator runs on through the rest. The polar method drops
    words that no value shows: :mod:`.polar` finds where. The first call's first 4,096 values are
    also compared with those of torch (CPU and CUDA) and jax under the seeds of
    :func:`.seeds.usual`.

    Null: each held-out value is compared with a number that depends on earlier values alone. An
    honest value lies within 2^-19 of it (times the number, above 1) with probability q = 2^-16 at
    most, whatever came before: with 2^-18 for the exact laws, and whatever is no coarser than
    ``granularity`` allows. So k of n agree with probability at most C(n, k) q^k, times the number
    of ways tried. Valid at any sample size and however the ways are chosen by earlier values; the
    check before it only takes chances away. Seeds: the bound of :class:`.seeds.Found` over a share
    of 2^-30.

    Not claimed: any other generator (of PCG64 and ziggurats nothing is recovered), other seeds
    of Philox and Threefry, and a Mersenne Twister's from fewer than 768 values in a row.
    """

    looks_at = "noise that follows from the generator's state, recovered from earlier noise"
    harm = "predictable"
    causal_order = 3
    costly = True
    predictability = True
    loops = "dpaudit_attacks.state_recovery.seeds"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del stream
        self._claim = claim
        self._run = _Run()
        self._first: Noise | None = None

    def update(self, block: Block) -> None:
        if self._first is None and not self._claim.discrete and block.calls == 1:
            size = block.values.size
            self._first = Noise.of(block.values, std=self._claim.scale, size=size)
        length = len(self._run.values)
        if self._claim.discrete or block.calls > 1 or min(block.values.size, KEPT) <= length:
            return
        values = np.ascontiguousarray(block.values).ravel()[:KEPT] / self._claim.scale
        self._run = _Run(np.clip(values, -_FARTHEST, _FARTHEST), block.call)

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        if self._claim.discrete:
            effect = "not applicable: the claimed law is discrete"
            return Evidence(p=1.0, statistic=0.0, effect=effect)
        state, seed = self._state_evidence(), self._seed_evidence()
        return state if seed is None or state.p <= seed.p else seed

    def _seed_evidence(self) -> Evidence | None:
        """A common seed behind the first call; None where none fits."""
        if self._first is None or len(self._first.values) < _FEWEST:
            return None
        family = self._claim.family
        found, tries = find_seed(self._first, family=family, ahead=0)
        if found is None or found.log_p - _LOG_SHARE >= 0:
            return None
        share = f"{found.agreeing} of {found.compared}"
        return Evidence(
            p=math.exp(max(found.log_p - _LOG_SHARE, -700.0)),
            statistic=float(found.agreeing),
            effect=f"{found.generator} with seed {found.seed}, at start {found.start} of {tries:,} "
            f"tried, gives the noise: {share} values",
            cause=f"{found.generator}, seeded with {found.seed}",
            cause_rank=0,
            details={"generator": found.generator, "seed": str(found.seed), "predicted": share},
        )

    def _state_evidence(self) -> Evidence:
        values = self._run.values
        best, tried = None, 0
        if len(values) >= _LEAST:
            tried = count_ways(self._claim.family)
            best = max(
                predictions(values, family=self._claim.family),
                key=lambda one: -one.log_p,
                default=None,
            )
        blind = BlindSpot(
            test="state-recovery",
            flaw="a generator whose state could be recovered",
            size=float(len(values)),
            unit="values in a row",
            says="generators other than the Mersenne Twister; transforms that are not inverted "
            "(ziggurats, sums, ratios); calls that draw fewer than 768 values in a row",
        )
        if best is None or best.predicted == 0:
            effect = f"no state fits: {tried} ways to invert {len(values):,} values"
            return Evidence(p=1.0, statistic=0.0, effect=effect, blind_spots=(blind,))
        share = f"{best.predicted:,} of {best.compared:,}"
        effect = (
            f"{best.transform}: its state, recovered from {best.used:,} values, gives the noise "
            f"that follows: {share} held-out values predicted"
        )
        return Evidence(
            p=math.exp(max(min(0.0, best.log_p + math.log(tried)), -700.0)),
            statistic=float(best.predicted),
            effect=effect,
            cause=best.transform.removesuffix(", first value first"),
            cause_rank=0,
            blind_spots=(blind,),
            details={
                "generator": best.transform,
                "call": self._run.call,
                "values needed": best.used,
                "predicted": share.replace(",", ""),
            },
        )

    @staticmethod
    def torch_state(
        noise: Floats, *, std: float, errors: Floats | None = None
    ) -> np.random.MT19937 | None:
        """The generator just before ``torch.normal(0, std, (n,))`` gave ``noise`` (n,) on the CPU.

        ``noise`` is float32's, known up to absolute ``errors`` (n,). About 2,000 values are enough
        at full precision. None if no state fits. Of n that 16 does not divide the last 16 values
        are made anew by torch, and are not used.
        """
        whole = len(noise) // BLOCK * BLOCK - (BLOCK if len(noise) % BLOCK else 0)
        some = None if errors is None else errors[:whole] / std
        uniforms = TORCH_NORMAL.back(noise[:whole] / std, some)
        return recover_state(*TORCH_NORMAL.layouts[0].certain_bits(uniforms))

    @staticmethod
    def seed_of(
        noise: Floats, *, std: float, errors: Floats | None = None, **how: Any
    ) -> tuple[Found | None, int]:
        """The seed behind a whole tensor of Gaussian ``noise`` (n,); see :func:`.find_seed`."""
        return find_seed(Noise.of(noise, std=std, errors=errors), **how)

    @staticmethod
    def torch_noise(words: npt.NDArray[np.uint32], *, std: float) -> Floats:
        """What ``torch.normal(0, std, (n,))`` makes of n words, n a multiple of 16."""
        return std * TORCH_NORMAL.forth(TORCH_NORMAL.layouts[0].numbers(words))


def count_ways(family: str) -> int:
    """How many ways are tried for a claimed family, each from values in all sizes."""
    polar = WAYS if family == "gaussian" else 0
    return len(_SIZES) * (polar + sum(len(one.layouts) * one.each for one in INVERSIONS[family]))


def predictions(values: Floats, *, family: str) -> Iterator[Prediction]:
    """What the ways that fit predict of consecutive ``values`` (n,) of scale 1.

    Each from as few values as are enough.
    """
    for attempts in _attempts(values, family):
        best: Prediction | None = None
        for transform, used, forecast in attempts:
            actual = values[used : used + len(forecast)]
            alike = np.abs(forecast - actual) <= _TOLERANCE * np.maximum(np.abs(forecast), 1.0)
            one = Prediction(f"MT19937 and {transform}", used, int(alike.sum()), len(actual))
            if best is None or one.log_p < best.log_p:
                best = one
            if one.predicted >= _ENOUGH * one.compared:
                break
        if best is not None:
            yield best


Attempt = tuple[str, int, Floats]
"""A way in words, the number of values used, and the values predicted after them."""


def _attempts(values: Floats, family: str) -> Iterator[Iterator[Attempt]]:
    single = bool((values.astype(np.float32) == values).all())
    sizes = [size for size in _SIZES if size <= len(values) - _HELD_OUT]
    if not sizes or 2 * len(np.unique(values)) < len(values):  # repeated values show no words
        return
    for inversion in INVERSIONS[family]:
        for start in range(inversion.each):
            whole = values[start : start + (len(values) - start) // inversion.each * inversion.each]
            uniforms = inversion.back(whole)
            for layout in inversion.layouts:
                few = single and inversion.unit == SINGLE_PRECISION and start == 0
                if _worth_trying(layout, uniforms, few=few):
                    yield _solve_states(inversion, layout, uniforms, start, sizes)
    if family == "gaussian":
        yield from polar_fits(values, sizes)


def _worth_trying(layout: Layout, uniforms: Uniforms, *, few: bool) -> bool:
    """A sparse relation of bits, where there is one: far cheaper than to solve for a state.

    ``few``: what to do where the values are too few to tell.
    """
    if layout.top:
        return top_bits_relation(*layout.certain_bits(uniforms))
    fits = follows((uniforms.values * 2 % 2 >= 1).astype(np.uint8))
    return few if fits is None else fits


def _solve_states(
    inversion: Inversion, layout: Layout, uniforms: Uniforms, start: int, sizes: Sequence[int]
) -> Iterator[Attempt]:
    words, known = layout.certain_bits(uniforms)
    length = sizes[-1] * layout.words
    if recover_state(words[:length], known[:length]) is None:
        return
    for size in sizes:
        used = size // inversion.each * inversion.each
        generator = recover_state(words[: used * layout.words], known[: used * layout.words])
        if generator is not None:
            uniforms_again = layout.numbers(generator.random_raw(len(words)).astype(np.uint32))
            transform = _KNOWN.get((inversion.name, layout), f"{inversion.name}, {layout.name}")
            yield transform, start + used, inversion.forth(uniforms_again)[used:]


_KNOWN = {
    ("Box-Muller, angle first, from 1 - u", DOUBLE): "Box-Muller as in Python's random.gauss",
    ("the inverse distribution function", DOUBLE): "the inverse distribution function of 53-bit "
    "uniforms, as in R's rnorm and numpy.random.laplace",
}
