"""``dpaudit mechanism``: open, draw, learn, count, judge once."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from dpaudit.audit.epsilon.blind import one_run_blind_spots, two_neighbour_blind_spots
from dpaudit.audit.epsilon.draws import Array, draw_releases
from dpaudit.audit.epsilon.judge import EVENT_SHARE, Claimed, judge, learn
from dpaudit.audit.epsilon.neighbours import parse_neighbours
from dpaudit.audit.epsilon.one_run import Guesses, OneRun, one_run
from dpaudit.audit.epsilon.scores import read_scores
from dpaudit.audit.epsilon.shape import shape_advice
from dpaudit.errors import UsageError
from dpaudit.interfaces import Mechanism
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.samplers.mechanism import open_mechanism
from dpaudit.types import Interval, MechanismResult, TestResult, Verdict

__all__ = ["DEFAULT_SAMPLES", "audit_mechanism", "audit_scores", "run_mechanism_audit"]

DEFAULT_SAMPLES = 200_000
_FEWEST = 1_000
_SCORES = "scores:"
_LARGEST_EPSILON = 500.0
_CLEARLY_MORE = 0.5

Progress = Callable[[int, int], None]


def audit_mechanism(
    name: str,
    *,
    claim_epsilon: float,
    claim_delta: float,
    claim_mu: float | None = None,
    neighbours: str | None = None,
    samples: int = DEFAULT_SAMPLES,
    alpha: float = 0.01,
    time_limit: float = 600.0,
    seed: int | str | None = None,
    real_numbers: bool = False,
    guesses: int | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit a whole mechanism, named as on the command line (``numpy:laplace:scale=1``, ``scores:FILE``, …).

    ``samples`` releases are drawn at each of the two ``neighbours`` (see
    :func:`~dpaudit.audit.epsilon.neighbours.parse_neighbours`), half to learn events from, half to count them in.
    ``real_numbers``: what the last bits of releases show is reported, but is no finding. ``scores:FILE`` is a one-run
    audit (:func:`audit_scores`).

    Formal guarantee: see :class:`~dpaudit.types.MechanismResult`.

    Raises:
        UsageError: an unknown name, or a claim, neighbours, α, time limit or sample size out of range.
        SamplerError: the mechanism died, kept silent, or released something that is no number.
    """
    used = secrets.token_hex(8) if seed is None else str(seed)
    claimed = Claimed(claim_epsilon, claim_delta, claim_mu)
    _check(claimed, alpha, time_limit, samples)
    if name.startswith(_SCORES):
        if neighbours is not None:
            raise UsageError(f"neighbours={neighbours}: recorded scores have none; leave --neighbours out")
        path = Path(name.removeprefix(_SCORES))
        return audit_scores(path, claimed=claimed, alpha=alpha, seed=used, guesses=guesses)
    if guesses is not None:
        raise UsageError(f"guesses={guesses}: belongs to a one-run audit of scores:FILE; leave --guesses out")
    if neighbours is None:
        raise UsageError(f"neighbours=None: {name} is compared at two query results; write e.g. --neighbours 0,1")
    pair = parse_neighbours(neighbours)
    with open_mechanism(name, seed=used) as mechanism:
        return run_mechanism_audit(
            mechanism,
            neighbours=pair,
            claimed=claimed,
            samples=samples,
            alpha=alpha,
            time_limit=time_limit,
            seed=used,
            real_numbers=real_numbers,
            progress=progress,
        )


def _check(claimed: Claimed, alpha: float, time_limit: float, samples: int) -> None:
    if not 0 <= claimed.epsilon <= _LARGEST_EPSILON:
        raise UsageError(
            f"claim-epsilon={claimed.epsilon}: must lie in 0…{_LARGEST_EPSILON:g}; a larger one promises nothing"
        )
    if not 0 <= claimed.delta < 1:
        raise UsageError(f"claim-delta={claimed.delta}: must lie in [0, 1), e.g. 1e-5")
    if claimed.mu is not None and not (claimed.mu >= 0 and math.isfinite(claimed.mu)):
        raise UsageError(f"claim-mu={claimed.mu}: must be a finite number ≥ 0")
    if not 0 < alpha < 1:
        raise UsageError(f"alpha={alpha}: must lie strictly between 0 and 1, e.g. 0.01")
    if not (time_limit > 0 and math.isfinite(time_limit)):
        raise UsageError(f"time-limit={time_limit}: must be a finite number of seconds > 0")
    if samples < _FEWEST:
        raise UsageError(f"samples={samples}: this audit needs at least {_FEWEST} releases at each neighbour")


def run_mechanism_audit(
    mechanism: Mechanism,
    *,
    neighbours: tuple[Array, Array],
    claimed: Claimed,
    seed: str,
    samples: int = DEFAULT_SAMPLES,
    alpha: float = 0.01,
    time_limit: float = 600.0,
    real_numbers: bool = False,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at ``neighbours``, two query results (m,).

    Where the time limit comes first, what was counted is judged all the same: a finding stands, a pass is
    *inconclusive*. How much was drawn then depends on the mechanism's speed but not on its releases.
    """
    _check(claimed, alpha, time_limit, samples)
    started = time.monotonic()
    root = KeyedStream.from_seed(seed).child("mechanism")
    drawn = draw_releases(
        mechanism,
        neighbours,
        samples=samples,
        deadline=started + time_limit,
        limit=time_limit,
        rng=root.child("turns").numpy(),
        progress=progress,
    )
    learned = learn(
        *drawn.learn,
        neighbours=neighbours,
        delta=claimed.delta,
        alpha=alpha,
        rng=root.child("statistics").numpy(),
        real_numbers=real_numbers,
    )
    judged = judge(learned, *drawn.count, claimed=claimed, alpha=alpha)
    verdict, reason = _verdict(judged.tests, drawn.late)
    counted = sum(map(len, drawn.count))
    advice = [shape_advice(*drawn.count, *neighbours), _low_bits_advice(judged.tests)]
    return MechanismResult(
        verdict=verdict,
        reason=reason,
        mechanism=mechanism.name,
        method="two neighbours",
        neighbours=tuple(tuple(map(float, v)) for v in neighbours),
        claim_epsilon=claimed.epsilon,
        claim_delta=claimed.delta,
        claim_mu=claimed.mu,
        alpha=alpha,
        epsilon=_at_least(judged.epsilon, alpha, "learned events and trade-off curve, Clopper-Pearson"),
        delta=_at_least(judged.delta, alpha, "trade-off curve, Clopper-Pearson"),
        mu=_at_least(judged.mu, alpha, "trade-off curve, Clopper-Pearson"),
        curve=judged.curve,
        tests=judged.tests,
        samples=counted + sum(map(len, drawn.learn)),
        samples_requested=2 * samples,
        seconds=time.monotonic() - started,
        advice=tuple(filter(None, advice)),
        cannot_rule_out=two_neighbour_blind_spots(draws=counted, claimed=claimed, alpha=EVENT_SHARE / 2 * alpha)
        if verdict == "no-finding"
        else (),
        provenance=collect(seed=seed, plugins=()),
    )


def _at_least(low: float, alpha: float, method: str) -> Interval:
    return Interval(low=low, high=math.inf, confidence=1 - alpha, method=method)


def _verdict(tests: tuple[TestResult, ...], late: str) -> tuple[Verdict, str]:
    found = [t.name for t in tests if t.finding]
    if found:
        return "finding", f"{'; '.join(found)}: contradict{'s' if len(found) == 1 else ''} the claim"
    if late:
        return "inconclusive", f"{late}; what was counted until then shows nothing"
    return "no-finding", "nothing that was looked at contradicts the claim"


def _low_bits_advice(tests: tuple[TestResult, ...]) -> str:
    bits = [t for t in tests if t.name.startswith("low bits")]
    others = max((t.statistic for t in tests if t not in bits and t.unit == "ε"), default=0.0)
    shown = max((t.statistic for t in bits if t.finding or (t.advisory and t.p <= 1e-6)), default=0.0)
    if shown <= others + _CLEARLY_MORE:
        return ""
    return (
        f"The last bits of a release tell the neighbours apart (ε ≥ {shown:.3g}), as they do where noise is added by "
        "plain floating-point arithmetic: that is not differentially private whatever the noise (Mironov 2012). Round "
        "to a grid or snap; to judge releases as real numbers, use --real-numbers."
    )


def audit_scores(
    path: Path, *, claimed: Claimed, alpha: float = 0.01, seed: str, guesses: int | None = None
) -> MechanismResult:
    """A one-run audit of recorded scores (columns ``score``, ``member``) against the claim.

    Formal guarantee: that of :func:`~dpaudit.audit.epsilon.one_run.one_run`, if the coins were fair and independent and
    a score depends on them only through what the mechanism released.
    """
    started = time.monotonic()
    scores, member = read_scores(path)
    ties = KeyedStream.from_seed(seed).child("mechanism", "ties").numpy()
    found = one_run(
        scores,
        member,
        epsilon=claimed.epsilon,
        delta=claimed.delta,
        mu=claimed.mu,
        alpha=alpha,
        ties=ties,
        guesses=guesses,
    )
    tests = _one_run_tests(found, claimed, alpha)
    verdict, reason = _verdict(tests, "")
    name = f"{_SCORES}{path}"
    return MechanismResult(
        verdict=verdict,
        reason=reason,
        mechanism=name,
        method="one run",
        neighbours=(),
        claim_epsilon=claimed.epsilon,
        claim_delta=claimed.delta,
        claim_mu=claimed.mu,
        alpha=alpha,
        epsilon=_at_least(found.epsilon, alpha, "one run"),
        delta=None,
        mu=_at_least(found.mu, alpha, "one run, trade-off curve"),
        curve=(),
        tests=tests,
        samples=len(scores),
        samples_requested=len(scores),
        seconds=time.monotonic() - started,
        advice=(),
        cannot_rule_out=one_run_blind_spots(canaries=len(scores), claimed=claimed, alpha=alpha / (2 * found.tried))
        if verdict == "no-finding"
        else (),
        provenance=collect(seed=seed, plugins=()),
    )


def _one_run_tests(found: OneRun, claimed: Claimed, alpha: float) -> tuple[TestResult, ...]:
    def line(name: str, p: float, low: float, unit: str, by: Guesses, looks_at: str, finding: bool) -> TestResult:
        return TestResult(
            name=name,
            p=p,
            p_adjusted=p,
            statistic=low,
            looks_at=looks_at,
            effect=f"{unit} ≥ {low:.3g}; {by}",
            finding=finding,
            parts={},
            interval=_at_least(low, alpha, "one run"),
            unit=unit,
            details={"top": by.top, "bottom": by.bottom, "right": by.right, "families_tried": found.tried},
        )

    tests = [
        line(
            "one run, ε at δ", found.p, found.epsilon, "ε", found.by_epsilon,
            "right guesses of which canaries were in", found.p <= alpha,
        )
    ]  # fmt: skip
    if claimed.mu is not None:
        tests.append(
            line(
                "one run, μ", found.p_mu, found.mu, "μ", found.by_mu,
                "right guesses against the Gaussian trade-off curve", found.p_mu <= alpha,
            )
        )  # fmt: skip
    return tuple(tests)
