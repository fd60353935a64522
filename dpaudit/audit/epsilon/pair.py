"""The ε audit of an opened mechanism at one pair of neighbours: draw, learn (or ask an attack), count, judge once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpaudit.audit.epsilon.attacks import Named, origins
from dpaudit.audit.epsilon.blind import two_neighbour_blind_spots
from dpaudit.audit.epsilon.draws import Array, Releases, draw_releases
from dpaudit.audit.epsilon.independence import dependence
from dpaudit.audit.epsilon.judge import EVENT_SHARE, Claimed, Judged, judge, learn
from dpaudit.audit.epsilon.reduction import ATTACK_SHARE, guessed, reduced, support_statistic
from dpaudit.audit.epsilon.shape import shape_advice
from dpaudit.audit.epsilon.verdict import at_least, low_bits_advice, misfit_advice, verdict_of
from dpaudit.audit.plan import LONGEST_SECONDS
from dpaudit.errors import UsageError
from dpaudit.interfaces import LearningAttack, Mechanism, SupportAttack
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.types import MechanismResult

__all__ = ["DEFAULT_SAMPLES", "Progress", "audit_pair", "check"]

DEFAULT_SAMPLES = 200_000
_FEWEST = 1_000
_LARGEST_EPSILON = 500.0

Progress = Callable[[int, int], None]


def check(claimed: Claimed, *, alpha: float, time_limit: float, samples: int) -> None:
    """Refuse what no audit can answer.

    Raises:
        UsageError: a claim, α, a time limit or a number of samples out of range.
    """
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
    if not 0 < time_limit <= LONGEST_SECONDS:
        raise UsageError(f"time-limit={time_limit}: must be above 0 and at most {LONGEST_SECONDS:g} seconds")
    if samples < _FEWEST:
        raise UsageError(f"samples={samples}: this audit needs at least {_FEWEST} releases at each neighbour")


def audit_pair(
    mechanism: Mechanism,
    *,
    neighbours: tuple[Array, Array],
    claimed: Claimed,
    seed: str,
    samples: int = DEFAULT_SAMPLES,
    alpha: float = 0.01,
    time_limit: float = 600.0,
    real_numbers: bool = False,
    attack: Named | None = None,
    reach: Named | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at ``neighbours``, two query results (m,), by learned events or by an ``attack``.

    A support attack's events are fixed, so that all releases are counted; a learning attack's are chosen in the first
    half. ``reach`` is a support attack whose view of a release is one more statistic that events may be learned from.

    Where the time limit comes first, what was counted is judged all the same: a finding stands, a pass is
    *inconclusive*. How much was drawn then depends on the mechanism's speed but not on its releases. Where releases of
    one call depend on each other (:func:`~dpaudit.audit.epsilon.independence.dependence`), or all are the same number, no
    bound holds or says anything: the verdict is *inconclusive*, without tests.

    Formal guarantee: see :class:`~dpaudit.types.MechanismResult`.

    Raises:
        UsageError: options out of range, or an attack that cannot take such releases.
        SamplerError: the mechanism failed, or nothing could be counted in time.
        DpauditError: the attack failed.
    """
    check(claimed, alpha=alpha, time_limit=time_limit, samples=samples)
    if attack is not None and real_numbers:
        raise UsageError("real-numbers: an attack sees releases as it likes; leave --real-numbers or --attack out")
    started = time.monotonic()
    root = KeyedStream.from_seed(seed).child("mechanism")
    timed = attack is not None and bool(getattr(attack.does, "timed", False))
    drawn = draw_releases(
        mechanism,
        neighbours,
        samples=samples,
        deadline=started + time_limit,
        limit=time_limit,
        rng=root.child("turns").numpy(),
        learning=attack is None or not isinstance(attack.does, SupportAttack),
        timed=timed,
        progress=progress,
    )
    unfit = _unfit(drawn)
    details: dict[str, Any] = {}
    if unfit:
        judged = Judged((), 0.0, 0.0, 0.0, ())
    elif attack is None:
        rng = root.child("statistics").numpy()
        looks = reach is not None and _as_long(drawn, neighbours)
        more = [support_statistic(reach, neighbours, learn=drawn.learn)] if reach is not None and looks else []
        learned = learn(
            *drawn.learn,
            neighbours=neighbours,
            delta=claimed.delta,
            alpha=alpha,
            rng=rng,
            real_numbers=real_numbers,
            more=more,
        )
        judged = judge(learned, *drawn.count, claimed=claimed, alpha=alpha)
    else:
        seen = reduced(attack, drawn, neighbours, delta=claimed.delta, alpha=alpha)
        judged = judge(seen.learned, *seen.counted, claimed=claimed, alpha=alpha)
        details = {**seen.details, "success": guessed(seen.guesses, rng=root.child("guesses").numpy())}
    verdict, reason = verdict_of(judged.tests, drawn.late)
    if unfit:
        verdict, reason = "inconclusive", unfit
    counted = sum(map(len, drawn.count))
    advice = [
        "" if unfit else shape_advice(*_untimed(drawn.count, timed), *neighbours),
        low_bits_advice(judged.tests),
        misfit_advice(details),
        str(getattr(mechanism, "advice", "")),
    ]
    events = "learned events" if attack is None or isinstance(attack.does, LearningAttack) else "fixed events"
    return MechanismResult(
        verdict=verdict,
        reason=reason,
        mechanism=mechanism.name,
        method="two neighbours",
        attack="" if attack is None else attack.text,
        neighbours=tuple(tuple(map(float, v)) for v in neighbours),
        claim_epsilon=claimed.epsilon,
        claim_delta=claimed.delta,
        claim_mu=claimed.mu,
        alpha=alpha,
        epsilon=at_least(judged.epsilon, alpha, f"{events} and trade-off curve, Clopper-Pearson"),
        delta=at_least(judged.delta, alpha, "trade-off curve, Clopper-Pearson"),
        mu=at_least(judged.mu, alpha, "trade-off curve, Clopper-Pearson"),
        curve=judged.curve,
        tests=judged.tests,
        samples=counted + sum(map(len, drawn.learn)),
        samples_requested=2 * samples,
        seconds=time.monotonic() - started,
        advice=tuple(filter(None, advice)),
        details=details,
        cannot_rule_out=two_neighbour_blind_spots(
            draws=counted,
            claimed=claimed,
            alpha=(EVENT_SHARE / 2 if attack is None else ATTACK_SHARE) * alpha,
            attack="" if attack is None else attack.text,
        )
        if verdict == "no-finding"
        else (),
        provenance=collect(seed=seed, plugins=origins(attack, reach)),
    )


def _unfit(drawn: Releases) -> str:
    """Why these releases cannot be judged; nothing where they can."""
    rows = [x for half in (drawn.learn, drawn.count) for x in half if len(x)]
    if all((x == rows[0][0]).all() and (np.signbit(x) == np.signbit(rows[0][0])).all() for x in rows):
        number = ", ".join(f"{x:.6g}" for x in rows[0][0][:3]) + (", …" if rows[0].shape[1] > 3 else "")
        return (
            f"every release at both neighbours is {number}: there is nothing to compare; choose neighbours whose releases "
            "vary, and for --attack sensitivity the mechanism's own bounds"
        )
    how = dependence(drawn.calls)
    if not how:
        return ""
    return (
        f"{how}: an audit needs independent releases, so that bounds would mean nothing; draw noise for each of the n "
        "releases of a call, from a generator that goes on from call to call"
    )


def _as_long(drawn: Releases, neighbours: tuple[Array, Array]) -> bool:
    """Whether a release has a number for each of the query's."""
    return bool(drawn.learn[0].shape[1] == len(neighbours[0]))


def _untimed(counted: tuple[Array, Array], timed: bool) -> tuple[Array, Array]:
    first, second = (y[:, :-1] if timed else y for y in counted)
    return first, second
