"""From evidence to a verdict: α split once, by Holm, over the whole battery."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from dpaudit.audit.options import MINIMUM_SAMPLES
from dpaudit.audit.plan import Call, special_shapes
from dpaudit.audit.power import blind_spots, frontier, measured_curves, read_table
from dpaudit.audit.sampling import Sampling
from dpaudit.claims import Claim
from dpaudit.protocols import Test
from dpaudit.stats import holm
from dpaudit.types import LAST_CAUSE, BlindSpot, Evidence, PowerPoint, TestResult, Verdict

__all__ = [
    "cause_of",
    "excluded_by",
    "judge",
    "never_excluded",
    "predictable",
    "too_slow",
    "verdict_of",
]

LEAST_SHARE = 0.1  # of the values requested: a pass on less is inconclusive
MAP_ALPHA = 0.01  # at which the detectability map was measured; a larger α finds more
_COMPUTED = "the noise can be computed: whoever sees some of it, or guesses a seed, knows the rest"

_TABLE = tomllib.loads(Path(__file__).with_name("always_blind.toml").read_text(encoding="utf-8"))
ALWAYS_BLIND = tuple(BlindSpot(size=None, unit="", **texts) for texts in _TABLE["spot"])

COMPUTED = 4  # the last rank of causes by which the noise can be computed
_SCALE = 9  # the rank of a wrong scale, which may be named with another cause
_CERTAIN = 1e-100  # p-values below this are alike


def judge(
    evidence: Mapping[str, tuple[Test, Evidence]],
    *,
    alpha: float,
    advisory: Set[str] = frozenset(),
    weight: float = 1.0,
) -> tuple[tuple[TestResult, ...], tuple[BlindSpot, ...]]:
    """Adjust all p-values by Holm; return the tests' results and the blind spots of a pass.

    Results are in order of p; equal ones have the likelier cause first. ``evidence`` maps a test's
    name to (the test, its evidence). ``weight`` ≥ 1 multiplies the adjusted p-values where these
    tests have only 1/weight of α. Tests named in ``advisory`` come last and take no part.

    Formal guarantee: P(any finding) ≤ ``alpha``/``weight`` if every claim of the sampler holds and
    every test's p is valid.
    """
    names = [name for name in evidence if name not in advisory]
    adjusted = dict(zip(names, holm([evidence[n][1].p for n in names]), strict=True))
    results = []
    for name, (test, one) in evidence.items():
        own = min(1.0, weight * adjusted.get(name, 1.0))
        results.append(
            TestResult(
                name=name,
                p=one.p,
                p_adjusted=own,
                statistic=one.statistic,
                looks_at=test.looks_at,
                effect=one.effect,
                finding=name in adjusted and own <= alpha,
                parts=one.parts,
                advisory=name not in adjusted,
                interval=one.interval,
                unit=one.unit,
                details=one.details,
                harm=one.harm or getattr(test, "harm", "other"),
                topic=name,
                cause=one.cause,
                cause_rank=one.cause_rank,
            )
        )
    order = {
        name: getattr(test, "causal_order", LAST_CAUSE) for name, (test, _) in evidence.items()
    }
    results.sort(key=lambda t: (t.advisory, max(t.p, _CERTAIN), order[t.name], t.name))
    return tuple(results), tuple(b for name in names for b in evidence[name][1].blind_spots)


def never_excluded(claim: Claim, dims: tuple[int, ...]) -> tuple[BlindSpot, ...]:
    """What no pass excludes for this claim at any sample size."""
    d = max(dims, default=1)
    if claim.family != "gaussian" or d <= 1:
        return ALWAYS_BLIND[1:]
    flaw = f"Gaussian pancake with γ ≥ 2√d (≥ {2 * math.sqrt(d):.4g} at d = {d})"
    return (replace(ALWAYS_BLIND[0], flaw=flaw), *ALWAYS_BLIND[1:])


def cause_of(tests: Iterable[TestResult]) -> str:
    """What the findings among ``tests`` come from, in a few words; "" where no test names a cause.

    The cause of the lowest rank, and a wrong scale with noise that can be computed. Not claimed:
    that it is the only cause, or a proof.
    """
    causes = [t for t in tests if t.finding and t.cause]
    first = min(causes, key=lambda t: t.cause_rank, default=None)
    if first is None:
        return ""
    scale = next((t.cause for t in causes if t.cause_rank == _SCALE), "")
    if scale and first.cause_rank <= COMPUTED:
        return f"{first.cause}; {scale}"
    return first.cause


def excluded_by(
    calls: Sequence[Call],
    *,
    claim: Claim,
    drawn: int,
    dims: tuple[int, ...],
    blind: Sequence[BlindSpot],
    mapped: bool,
    alpha: float,
) -> tuple[tuple[BlindSpot, ...], tuple[PowerPoint, ...]]:
    """Return what a pass does not exclude, and the detectability map that this comes from.

    First what no audit excludes, then sizes measured for this law, then each test's own limits.
    The map was measured for the whole battery on a continuous claim at α = 0.01 (``mapped``);
    elsewhere only the tests' own blind spots hold. Where the map covers a flaw, it replaces a
    test's own estimate.
    """
    *always, guessable = never_excluded(claim, dims)
    rest = (guessable, *special_shapes(calls), *blind)
    if not mapped or alpha < MAP_ALPHA:
        return (*always, *rest), ()
    main = {call.d for call in calls}
    dim = main.pop() if len(main) == 1 else None
    measured = frontier(dim=dim, samples=drawn)
    flaws = {p.flaw for p in measured}
    curves = [
        p
        for flaw, curve in measured_curves(read_table(), dim=dim).items()
        if flaw in flaws
        for p in curve
    ]
    own = [b for b in rest if b.flaw not in flaws]
    return (*always, *blind_spots(measured), *own), (*curves, *measured)


def verdict_of(
    tests: Sequence[TestResult], sampling: Sampling, stop: str, *, limit: float
) -> tuple[Verdict, str]:
    """The verdict and its reason; ``stop`` says where a finding ended the audit."""
    findings = [t.name for t in tests if t.finding]
    of = f"{sampling.drawn:,} of {sampling.planned:,} values"
    if findings:
        early = stop.format(of=of)
        ended = f"; {of} were drawn, then {sampling.ended}" if sampling.ended is not None else ""
        verb = "contradicts" if len(findings) == 1 else "contradict"
        return "finding", f"{', '.join(findings)}: {verb} the claim{early}{ended}"
    if sampling.ended is not None:
        return "inconclusive", f"{sampling.ended}; {of} were drawn and show nothing"
    if not sampling.shortened:
        return "no-finding", "nothing that was looked at contradicts the claim"
    slow = too_slow(sampling, limit)
    if sampling.drawn < LEAST_SHARE * sampling.planned:
        least = max(MINIMUM_SAMPLES, _rounded(sampling.drawn))
        hint = f"ask for --samples {least}, or more time"
        return "inconclusive", f"{slow} and show nothing; {hint}"
    return "no-finding", f"nothing that was looked at contradicts the claim; {slow}"


def too_slow(sampling: Sampling, limit: float) -> str:
    """How many values fitted into the time limit; '' if all did."""
    if sampling.ended is not None or not sampling.shortened:
        return ""
    speed = f"about {_rounded(round(sampling.speed)):,} values per second"
    of = f"{sampling.drawn:,} of {sampling.planned:,} values"
    return f"{of} fit into the time limit of {limit:g} s at the sampler's speed ({speed})"


def predictable(tests: Sequence[TestResult], predicting: Set[str], alpha: float) -> str:
    """A sentence about noise that can be computed, if a test found it; "" otherwise."""
    predicting_findings = [t for t in tests if t.name in predicting and (t.finding or t.p <= alpha)]
    if any(t.finding for t in predicting_findings):
        return _COMPUTED
    return f"{_COMPUTED}, which --allow-predictable permits" if predicting_findings else ""


def _rounded(count: int) -> int:
    """``count`` rounded down to two digits."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return int(count // unit * unit)
