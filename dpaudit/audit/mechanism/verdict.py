"""From tests to a verdict, bounds, advice, and what a pass cannot exclude, in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.bounds import band, epsilon_bounds
from dpaudit.stats import rounded_down
from dpaudit.types import BlindSpot, TestResult, Verdict

__all__ = [
    "CEILING",
    "low_bits_advice",
    "misfit_advice",
    "one_run_blind_spots",
    "shape_advice",
    "two_neighbour_blind_spots",
    "verdict_of",
]

CEILING = "how large ε really is"
"""The blind spot of a ceiling on what can be shown."""

_never = partial(BlindSpot, size=None, unit="")  # at no sample size
_CLEARLY_MORE = 0.5


def verdict_of(tests: tuple[TestResult, ...], late: str) -> tuple[Verdict, str]:
    """The verdict and its reason; ``late`` says why less was drawn than asked for, or is empty."""
    findings = [t.name for t in tests if t.finding]
    if findings:
        verb = "contradicts" if len(findings) == 1 else "contradict"
        return "finding", f"{'; '.join(findings)}: {verb} the claim"
    if late:
        return "inconclusive", f"{late}; what was counted until then shows nothing"
    return "no-finding", "nothing that was looked at contradicts the claim"


def low_bits_advice(tests: tuple[TestResult, ...]) -> str:
    """Advice if only the last bits tell the neighbours apart, or empty."""
    bits = [t for t in tests if t.name.startswith("low bits")]
    others = max((t.statistic for t in tests if t not in bits and t.unit == "ε"), default=0.0)
    clear = (t.statistic for t in bits if t.finding or (t.advisory and t.p <= 1e-6))
    bound = max(clear, default=0.0)
    if bound <= others + _CLEARLY_MORE:
        return ""
    if any(t.advisory for t in bits):
        return (
            f"The last bits of a release tell the neighbours apart (ε ≥ {rounded_down(bound)}). "
            "--real-numbers keeps them out of this verdict; they still reach everyone who gets "
            "releases in full precision. Round to a grid or snap before releasing."
        )
    return (
        f"The last bits of a release tell the neighbours apart (ε ≥ {rounded_down(bound)}), as "
        "they do where noise is added by plain floating-point arithmetic: that is not "
        "differentially private whatever the noise (Mironov 2012). Round to a grid or snap; to "
        "judge releases as real numbers, use --real-numbers."
    )


def misfit_advice(details: Mapping[str, Any]) -> str:
    """Advice if a support attack finds releases impossible at their own value, or empty."""
    truth = details.get("feasible_at_truth", {})
    wrong = sum(of - feasible for feasible, of in truth.values())
    if not wrong:
        return ""
    total = sum(of for _, of in truth.values())
    return (
        f"The attack takes {wrong:,} of {total:,} releases for impossible at the very value that "
        "they were made from: it was not made for this mechanism. What it shows is still true; a "
        "pass by it says little."
    )


_WORTH_SAYING = 1e-4
_MOST = 64
"""Number of coordinates compared."""
_FAR = 3.0

Array = npt.NDArray[np.float64]


def shape_advice(y0: Array, y1: Array, v0: Array, v1: Array) -> str:
    """Advice if releases less the query value, (n, k) at each neighbour, differ in law, or empty.

    Two-sample Kolmogorov-Smirnov for each of the first 64 coordinates (asymptotic p-value,
    conservative for discrete laws), Bonferroni over them, reported where p < 1e-4. Additive noise
    of one law passes; clamping, snapping that depends on the value, and randomized response do not.
    Empty where releases are not as long as the query, or in a coordinate where they do not lie
    around the query value (median further away than three median deviations): there the value is a
    name for a data set, and releases less the value are no noise.
    """
    if y0.shape[1] != len(v0):
        return ""
    n = math.sqrt(len(y0) * len(y1) / (len(y0) + len(y1)))
    with np.errstate(over="ignore"):
        noise = [(y0[:, j] - v0[j], y1[:, j] - v1[j]) for j in range(min(len(v0), _MOST))]
        gaps = [_gap(*both) if all(map(_around_zero, both)) else 0.0 for both in noise]
    j = int(np.argmax(gaps))
    p = min(1.0, len(gaps) * float(scipy.special.kolmogorov(n * gaps[j])))
    if p >= _WORTH_SAYING:
        return ""
    where = "" if len(gaps) == 1 else f" (coordinate {j})"
    return (
        f"If a release is the query value plus noise, the noise depends on the value{where}: "
        f"releases less the value differ by {gaps[j]:.3g} in distribution between the neighbours "
        f"(Kolmogorov-Smirnov, p {p:.1e}). That is no fault in itself; for a mechanism that says "
        "it adds noise of one law, it is."
    )


def _around_zero(noise: Array) -> bool:
    middle = float(np.median(noise))
    return abs(middle) <= _FAR * float(np.median(np.abs(noise - middle)))


def _gap(a: Array, b: Array) -> float:
    a, b = np.sort(a), np.sort(b)
    places = np.concatenate([a, b])
    upto = [np.searchsorted(s, places, side="right") / len(s) for s in (a, b)]
    return float(np.abs(upto[0] - upto[1]).max())


_FOUND = 0.9
_NINE_TENTHS = float(scipy.special.ndtri(_FOUND))
_FARTHEST = 50.0
_TO_LEARN = 2
"""A leak must occur so many times as often as would prove it, to be chosen first (simulated)."""


@lru_cache(maxsize=64)  # all pairs of a probing attack have the same
def two_neighbour_blind_spots(
    *,
    draws: int,
    drawn: int,
    claim: PrivacyClaim,
    alphas: tuple[float, float],
    attack: str = "",
    real_numbers: bool = False,
) -> tuple[BlindSpot, ...]:
    """What ``draws`` counted releases, of ``drawn`` in all, do not exclude.

    The event that shows a flaw has an error between ``alphas[0]`` and ``alphas[1]``: what would
    have been found is computed at the first, what can be shown at most at the second. With an
    ``attack``, whatever it does not look at is not excluded either; with ``real_numbers``, the last
    bits are not.

    Sizes are of a flaw found with probability 0.9 if the right event was learned; by normal and
    Poisson approximation.
    """
    least, most = (_Counting(draws, claim, alpha) for alpha in alphas)
    first = _outside_attack(attack) if attack else _ALWAYS[0]
    bits = (_LAST_BITS,) if real_numbers else ()
    always = (_secret_trigger(drawn, max(alphas)), *bits, first, *_ALWAYS[1:])
    ceiling = max(0.0, most.bound(draws / 2, 0))
    spots = [
        _never(
            test="events",
            flaw=CEILING,
            says=f"{draws:,} counted releases can show at most ε = {ceiling:.3g} (about ln n), "
            "however bad the mechanism",
        )
    ]
    stated = claim.stated
    if not least.exceeds(draws / 2, 0):
        can = "are sure to show" if most.exceeds(draws / 2, 0) else "can show"
        spots.append(
            _never(
                test="events",
                flaw="any violation of the claim",
                says=f"{stated.text if stated else f'ε = {claim.epsilon:g}'} is more than so few "
                f"releases {can}: raise --samples",
            )
        )
        return (*spots, *always)
    if (epsilon := least.detectable_epsilon()) is not None:
        spots.append(
            BlindSpot(
                test="events",
                flaw="ε above the claim, on an event of probability 1/2",
                size=epsilon - (claim.epsilon if stated is None else 0.0),
                unit="more ε than claimed" if stated is None else "ε",
                says=f"a mechanism with ε = {epsilon:.3g} on half of its releases "
                "would have been found nine times in ten",
            )
        )
    if (leak := least.detectable_leak()) < 1:
        spots.append(
            BlindSpot(
                test="events",
                flaw="rare releases that give one neighbour away",
                size=leak,
                unit="probability",
                says=f"a release impossible at one neighbour, with probability below {leak:.2g} "
                "at the other, may pass",
            )
        )
    return (*spots, *always)


def _secret_trigger(drawn: int, alpha: float) -> BlindSpot:
    """The share of releases in which a mechanism may cheat, unseen by any audit of so many.

    Releases that give everything away with probability q, by a coin that nobody sees, and are
    private else have a total variation distance of at most 1 − (1 − q)ⁿ from n private ones (couple
    them where no coin falls). An audit that accuses a private mechanism with probability at most α
    finds this one with probability at most α + 1 − (1 − q)ⁿ, whatever it looks at: the curator
    attack of arXiv 2411.16516.

    >>> spot = _secret_trigger(100_000, 0.01)
    >>> f"{spot.size:.3g}"
    '2.21e-05'
    """
    q = -math.expm1(math.log(1 - _FOUND + alpha) / max(drawn, 1))
    return BlindSpot(
        test="every audit of releases",
        flaw="cheating in a secret share of releases",
        size=q,
        unit="probability",
        says=f"a mechanism that gives everything away in a share q of its releases, by a trigger "
        f"that nobody sees, is found nine times in ten by no audit of {drawn:,} releases unless "
        f"q is at least {q:.2g}; at an unseen input it never is",
    )


@dataclass(frozen=True, slots=True)
class _Counting:
    """What counts of one event in ``draws`` releases show of a claim, at ``alpha``."""

    draws: int
    claim: PrivacyClaim
    alpha: float

    def bound(self, inside: float, outside: float) -> float:
        """The lower bound for ε at the claimed δ."""
        delta, alpha = self.claim.delta, self.alpha
        return float(epsilon_bounds(inside, outside, draws=self.draws, delta=delta, alpha=alpha))

    def exceeds(self, inside: float, outside: float) -> bool:
        """Whether such counts contradict the claim."""
        stated, half = self.claim.stated, self.draws // 2
        if stated is None:
            return self.bound(inside, outside) > self.claim.epsilon
        counts = np.array([math.ceil(outside)]), np.array([math.floor(inside)])
        return stated.contradicted(band(counts[0], half, counts[1], half, alpha=self.alpha))

    def _detects(self, epsilon: float) -> bool:
        """Whether ε on an event of probability 1/2 is found nine times in ten."""
        inside, outside = self.draws / 4, self.draws / 4 * math.exp(-epsilon)
        if self.claim.stated is not None:
            apart = _NINE_TENTHS / math.sqrt(2)
            unlucky = outside + apart * math.sqrt(outside)
            return self.exceeds(max(0.0, inside - apart * math.sqrt(inside)), unlucky)
        spread = math.sqrt(1 / inside + 1 / max(outside, 1.0))
        return self.bound(inside, outside) - _NINE_TENTHS * spread > self.claim.epsilon

    def detectable_epsilon(self) -> float | None:
        """The least ε on an event of probability 1/2 that is found nine times in ten, if any is."""
        low = self.claim.epsilon if self.claim.stated is None else 0.0
        high = low + _FARTHEST
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self._detects(middle) else (middle, high)
        return high if self._detects(high) else None

    def detectable_leak(self) -> float:
        """The least probability of a release impossible at the other neighbour that is found so."""
        few, many = 0, self.draws
        while many - few > 1:
            k = (few + many) // 2
            few, many = (few, k) if self.exceeds(k, 0) else (k, many)
        return _TO_LEARN * float(scipy.special.gammaincinv(many, _FOUND)) / (self.draws / 2)


_LAST_BITS = _never(
    test="low bits",
    flaw="what the last bits of a release tell",
    says="--real-numbers keeps them out of the verdict: whoever gets releases in full precision "
    "may tell the neighbours apart by them",
)


def _outside_attack(attack: str) -> BlindSpot:
    return _never(
        test="every audit by an attack",
        flaw="other neighbours, and all that this attack does not look at",
        says=f"only these two query results were compared, and only as {attack} sees releases; "
        "leave --attack out for learned events of statistics and of classifiers' scores",
    )


_ALWAYS = (
    _never(
        test="every audit of releases",
        flaw="other neighbours, and other ways of looking at a release",
        says="only these two query results were compared, by learned events of statistics and of "
        "classifiers' scores; a worse pair, a rare trigger, timing, or a porous set of floats that "
        "none of these sees would pass",
    ),
    _never(
        test="every audit of releases",
        flaw="noise that a secret key or seed takes away",
        says="releases without the key cannot show it (arXiv 2509.23834, Theorem 3.4), nor coins "
        "that carry a nonce of their own seed (seed-in-noise, also in local reports)",
    ),
)


def one_run_blind_spots(
    *, canaries: int, claim: PrivacyClaim, ceiling: float
) -> tuple[BlindSpot, ...]:
    """What ``canaries`` scores do not exclude; ``ceiling`` is the largest ε that they can show."""
    return (
        _never(
            test="one run",
            flaw=CEILING,
            says=f"{canaries:,} canaries can show at most ε = {ceiling:.3g}, "
            "if every guess is right",
        ),
        _never(
            test="one run",
            flaw="what stronger scores or other canaries would show",
            says="the bound is about these scores; one run shows less than the truth where "
            f"canaries disturb each other or m·δ = {canaries * claim.delta:.2g} is not small "
            "(Steinke, Nasr and Jagielski 2023, Section 7)",
        ),
    )
