"""From evidence to a verdict: α split once, by Holm, over the whole battery."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dpaudit.claims import Claim
from dpaudit.stats import holm
from dpaudit.types import BlindSpot, Evidence, TestResult

__all__ = ["ALWAYS_BLIND", "judge", "never_excluded"]

ALWAYS_BLIND = (
    BlindSpot(
        test="every black-box test",
        flaw="Gaussian pancake with γ ≥ 2√d",
        size=None,
        unit="",
        says="noise with a hidden direction that only a secret key reveals: no sample size excludes it if continuous "
        "LWE is hard (arXiv 2509.23834, Theorem 3.4); use a mitigation where that matters",
    ),
    BlindSpot(
        test="every black-box test",
        flaw="a cryptographic or replayable generator under somebody's seed",
        size=None,
        unit="",
        says="whoever knows the seed can subtract the noise; samples cannot show who knows it",
    ),
    BlindSpot(
        test="not in this battery yet",
        flaw="floating-point leaks, behaviour that depends on the value or changes when not watched",
        size=None,
        unit="",
        says="low bits after adding noise to a value, timing, and rare triggers are not looked at",
    ),
)


def judge(
    evidence: Mapping[str, tuple[str, Evidence]], *, alpha: float
) -> tuple[tuple[TestResult, ...], tuple[BlindSpot, ...]]:
    """Adjust all p-values by Holm; return the tests (smallest p first) and what a pass does not exclude.

    ``evidence`` maps a test's name to (what it looks at, its evidence).

    Formal guarantee: P(any finding) ≤ ``alpha`` if every claim of the sampler holds and every test's p is valid.
    """
    names = list(evidence)
    adjusted = holm([evidence[n][1].p for n in names])
    results = [
        TestResult(
            name=name,
            p=evidence[name][1].p,
            p_adjusted=adj,
            statistic=evidence[name][1].statistic,
            looks_at=evidence[name][0],
            effect=evidence[name][1].effect,
            finding=adj <= alpha,
            parts=evidence[name][1].parts,
        )
        for name, adj in zip(names, adjusted, strict=True)
    ]
    results.sort(key=lambda t: (t.p, t.name))
    return tuple(results), tuple(b for name in names for b in evidence[name][1].blind_spots)


def never_excluded(claim: Claim, dims: tuple[int, ...]) -> tuple[BlindSpot, ...]:
    """What no pass excludes for this claim, whatever the sample size."""
    pancake_possible = claim.family == "gaussian" and max(dims, default=1) > 1
    spots = ALWAYS_BLIND if pancake_possible else ALWAYS_BLIND[1:]
    if not pancake_possible:
        return spots
    d = max(dims)
    first = spots[0]
    exact = BlindSpot(
        test=first.test,
        flaw=f"Gaussian pancake with γ ≥ 2√d (≥ {2 * math.sqrt(d):.4g} at d = {d})",
        size=None,
        unit="",
        says=first.says,
    )
    return (exact, *spots[1:])
