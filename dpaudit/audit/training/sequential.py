"""An audit of training by bets, run after run, or step after step within one run.

A fair coin per canary and per unit (a run, or a step) decides whether the canary is in the data.
What is bet on is learned from the units before, so that the capital is a test martingale under the
claim, and the audit may stop as soon as it is large enough.
"""

from __future__ import annotations

import dis
import inspect
import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpaudit.audit.betting.releases import ReleaseBets, View
from dpaudit.audit.betting.shown import (
    Look,
    look_at,
    needed,
    row_of,
    sequential_details,
    stated_by,
)
from dpaudit.audit.claims import PrivacyClaim, Steps
from dpaudit.audit.mechanism.one_run_audits import CanaryAudit
from dpaudit.audit.mechanism.verdict import verdict_of
from dpaudit.audit.mechanism.views import Learner
from dpaudit.audit.options import Progress
from dpaudit.audit.result import MechanismResult, at_least
from dpaudit.errors import SamplerCrashError, UsageError
from dpaudit.ranks import world_size
from dpaudit.results.text import error_text
from dpaudit.types import BlindSpot, TestResult

if TYPE_CHECKING:
    from dpaudit.audit.training.run import Scoring, TrainingPlan

__all__ = ["audit_in_sequence"]

Array = npt.NDArray[np.float64]
Coins = npt.NDArray[np.bool_]
Train = Callable[[Any, int], Any]

METHOD = "bets on canaries, valid at every moment"
_SWITCH = 0.002
"""Units are few, and what leads early mostly stays ahead."""
_CELLS = "/16"
_LOOKED_AT = ("x", "x[", "linear", "one by one")
_REMEMBERED = 256
"""Earlier units."""
_SHRINK = 4
"""Units of score 0 in a canary's mean."""


class _Unit(NamedTuple):
    """A run, or a ``step`` of one, counted from 1: the scores (m,) after it, its coins (m,)."""

    scores: Array
    coins: Coins
    run: int
    step: int = 0


class _Past:
    """Earlier scores, with which a canary's score is compared. No coin enters.

    A row has the score, and for steps its change since the last one; and each of them less the
    canary's own mean so far, and less that of the most similar earlier unit, where noise that
    repeats cancels. ``names`` are those of the columns.
    """

    def __init__(self, *, by_step: bool) -> None:
        self._by_step, self._run = by_step, -1
        self._values: dict[str, deque[Array]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        self.names: list[str] = []

    def rows(self, unit: _Unit) -> Array | None:
        """Rows (m, k) of a unit; None of the first step of a run, which has no change."""
        now, fresh = {"score": unit.scores}, unit.run != self._run
        if self._by_step and not fresh:
            now["change"] = unit.scores - self._values["score"][-1]
        columns: dict[str, Array] = {}
        for name, values in now.items():
            columns |= _compared(name, values, self._values[name])
            self._values[name].append(values)
        self._run, self.names = unit.run, list(columns)
        return None if self._by_step and fresh else np.column_stack(list(columns.values()))


def _compared(name: str, now: Array, past: deque[Array]) -> dict[str, Array]:
    if len(now) == 1:
        return {name: now}
    earlier = np.stack(past) if past else np.zeros((1, len(now)))
    nearest = earlier[np.argmin(np.median(np.abs(now - earlier), axis=1))]
    mean = earlier.sum(axis=0) / (len(earlier) + _SHRINK)
    return {name: now, f"{name} less mean": now - mean, f"{name} less nearest": now - nearest}


def audit_in_sequence(
    plan: TrainingPlan,
    train: Train,
    scoring: Scoring,
    *,
    name: str,
    progress: Progress | None = None,
) -> MechanismResult:
    """Train as planned, and bet on every unit before it comes, until the claim is contradicted.

    ``train`` returns a model: a unit is a run, against the whole claim. Or it is a generator
    function, ``dataset = yield model`` after each step: a unit is a step, against the claim of one
    step of DP-SGD, and more steps than claimed are a finding.

    Formal guarantee: under the claim the verdict is ``finding``, or any bound wrong, with
    probability at most ``alpha``, whenever this stops. A unit's coins are fair and fresh, and given
    the other coins its scores are those of a mechanism as private as claimed for each canary; the
    factor of a unit is the mean of its canaries' factors, so that its expectation is at most 1
    however they depend on each other, and the capital is a supermartingale (Ville 1939). Not
    claimed: anything about what a step shows of the batches before it.

    Raises:
        UsageError: several ranks, guesses, one run of an ordinary function, steps without a claim
            of DP-SGD, or a generator that does not take the next data set.
        SamplerCrashError: ``train`` or a score raised.
    """
    function: Any = inspect.unwrap(train)
    by_step = any(map(inspect.isgeneratorfunction, (function, type(function).__call__)))
    whole = plan.request.claim
    _check(plan, by_step=by_step)
    claim = _claim_of_a_step(whole) if by_step else whole
    steps = whole.stated.dpsgd.steps if by_step and isinstance(whole.stated, Steps) else 1
    past, rng = _Past(by_step=by_step), plan.stream.child("views").numpy()
    learner = Learner(rng, (np.zeros(1), np.ones(1)), low_bits=False, seconds=0.0)
    bets = ReleaseBets(
        claim,
        alpha=plan.request.options.alpha,
        views=lambda x0, x1: _few(learner(x0, x1), past.names),
        averaged=plan.pool.m,
        switch=_SWITCH,
    )
    outcome = _Outcome(bets, "step" if by_step else "run", steps)
    with closing(_units(plan, train, scoring, by_step=by_step)) as units:
        for unit in units:
            if unit.step > steps:
                outcome.beyond = unit.step
                break
            if (rows := past.rows(unit)) is not None:
                bets.update(rows, unit.coins)
            n = len(outcome.looks) + 1
            outcome.looks.append(look_at(bets, n))
            if progress is not None:
                progress(n, len(plan.seeds) * steps)
            if bets.contradicted:
                break
    audit = CanaryAudit(
        name=name,
        claim=claim,
        alpha=plan.request.options.alpha,
        seed=plan.request.options.seed,
        started=plan.started,
    )
    return outcome.result(audit, whole, canaries=plan.pool.m)


def _few(views: list[View], names: list[str]) -> list[View]:
    """The views that are bet on, by the names of the columns."""
    few = [v for v in views if v.name.endswith(_CELLS) and v.name.startswith(_LOOKED_AT)]
    for view in few:
        column = re.match(r"x(?:\[(\d+)\])?/", view.name)
        plain = names[int(column[1] or 0)] if column else view.name.split("/")[0].split(" ⟨")[0]
        view.name = plain + _CELLS
    return few


@dataclass
class _Outcome:
    """What was seen so far of an audit whose ``unit`` is a run or a step.

    ``looks`` has (units, log10 of the capital, bound for ε); ``beyond`` is the first step above the
    claimed number of ``steps``, if any.
    """

    bets: ReleaseBets
    unit: str
    steps: int
    looks: list[Look] = field(default_factory=list)
    beyond: int = 0

    def _tests(self, alpha: float) -> tuple[TestResult, ...]:
        """The bets, and the number of steps if it is too large."""
        bets, n = self.bets, len(self.looks)
        by = "nothing" if bets.leading is None else bets.leading.name.removesuffix(_CELLS)
        test = row_of(
            bets,
            alpha=alpha,
            method=METHOD,
            by=by,
            name=f"one run, bets on {self.unit}s",
            looks_at=f"what the {self.unit}s before taught about canaries' scores",
            effect=f"a capital of 1 grew to 10^{abs(math.log10(bets.p_value)):.1f} in {n:,} "
            f"{self.unit}s (10^{needed(bets):.1f} is needed), mostly by {by}",
            harm="epsilon",
            topic="one-run",
        )
        if not self.beyond:
            return (test,)
        counted = TestResult(
            parts={},
            harm="epsilon",
            topic="one-run",
            name="one run, number of steps",
            p=0.0,
            p_adjusted=0.0,
            statistic=float(self.beyond),
            looks_at="whether train takes more steps than claimed",
            effect=f"step {self.beyond:,} was taken, {self.steps:,} are claimed",
            finding=True,
        )
        return test, counted

    def result(self, audit: CanaryAudit, whole: PrivacyClaim, *, canaries: int) -> MechanismResult:
        """The result, with bounds for a run or for one step."""
        alpha, bounds, n = audit.alpha, self.bets.bounds, len(self.looks)
        tests = self._tests(alpha)
        stated = stated_by(self.bets, whole, alpha=alpha, method=METHOD)
        verdict, reason = verdict_of(tests, "")
        found = verdict == "finding"
        if stated is not None and self.unit == "step":
            worse = f"more than {self.steps:,} steps" if self.beyond else "a worse step"
            text = f"{stated.claim} (bounds of one step)"
            stated = replace(stated, claim=text, says=worse if found else "")
        result = audit.result(
            verdict,
            f"{reason}; stopped after {n:,} {self.unit}s" if found else reason,
            method=METHOD,
            stated=stated,
            epsilon=bounds["ε"],
            delta=at_least(bounds["δ"], alpha, METHOD),
            mu=at_least(bounds.get("μ", 0.0), alpha, METHOD),
            curve=(),
            tests=tests,
            samples=n * canaries,
            blind=_blind_spots(audit.claim, self.bets, n, self.unit),
        )
        stopped = "contradicted" if found else "limit"
        how = sequential_details(self.bets, self.looks, stopped, unit=self.unit)
        return replace(result, details={**result.details, "sequential": how})


def _blind_spots(
    claim: PrivacyClaim, bets: ReleaseBets, n: int, unit: str
) -> tuple[BlindSpot, ...]:
    """What ``n`` units do not exclude.

    Where the best guess of one canary's coin is right with probability (1 + x)/2, and (1 + c)/2 is
    claimed at most, the mean of a unit's factor is at most about (1 + x)/(1 + c).
    """
    claimed = min(math.tanh(e / 2) + 2 * c / (1 + math.exp(e)) for e, c in claim.profile)
    right = (1 + claimed) / 2 * math.exp(bets.needed / max(n, 1))
    few = f"{n:,} {unit}s are too few to refute the claim by any bet; more are needed"
    if right < 1:
        few = (
            f"{n:,} {unit}s whose best guess of one canary's coin is right with probability below "
            f"about {right:.3g} do not refute the claim, by which it is {(1 + claimed) / 2:.3g}"
        )
    spots = {
        "leaks that so few units show by luck only": few,
        "what stronger scores or other canaries would show": "bets are on these scores of these "
        "canaries, averaged",
    }
    if unit == "step":
        spots["what a step shows of earlier batches"] = (
            "each step is compared with its own canaries: gradients kept without noise (momentum) "
            "would pass, and so would a train that does not draw from the data sent last"
        )
    return tuple(
        BlindSpot(test="bets", flaw=flaw, size=None, unit="", says=says)
        for flaw, says in spots.items()
    )


def _units(
    plan: TrainingPlan, train: Train, scoring: Scoring, *, by_step: bool
) -> Generator[_Unit, None, None]:
    """All units, each when it is asked for."""
    pool, fresh = plan.pool, plan.stream.child("steps").numpy()

    scores_of = partial(_call, "score", scoring.of, canaries=pool.canaries, m=pool.m)
    for run, (coins, seed) in enumerate(zip(plan.coins, plan.seeds, strict=True)):
        model = _call("train", train, pool.dataset(coins), int(seed))
        if inspect.isgenerator(model) != by_step:
            raise UsageError(
                f"train: returned a {type(model).__name__}; to be audited step by step it must be "
                "a generator function itself, with dataset = yield model after each step"
            )
        if not by_step:
            yield _Unit(scores_of(model), coins, run)
            continue
        steps, sent = model, None
        _check_takes_data(steps)
        with closing(steps):
            for step in count(1):
                model = _call("train", _send, steps, sent)
                if model is _END:
                    break
                yield _Unit(scores_of(model), coins, run, step)
                coins = fresh.random(pool.m) < 0.5
                sent = pool.dataset(coins)


_END = object()


def _send(steps: Generator[Any, Any, Any], dataset: Any) -> Any:
    try:
        return steps.send(dataset)
    except StopIteration:
        return _END


def _call(function: str, of: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    try:
        return of(*arguments, **keywords)
    except UsageError:
        raise
    except Exception as error:
        raise SamplerCrashError(f"{function} raised {error_text(error)}") from error


def _check_takes_data(steps: Any) -> None:
    """Refuse a generator that drops what it is sent: it would train on old coins for ever."""
    names = [one.opname for one in dis.get_instructions(steps.gi_code) if one.opname != "RESUME"]
    after = [b for a, b in pairwise(names) if a == "YIELD_VALUE"]
    if after and all(name == "POP_TOP" for name in after):
        raise UsageError(
            f"train={steps.__qualname__}: yields without taking the next data set, in which other "
            "canaries are; write dataset = yield model, and draw the next batch from dataset"
        )


def _claim_of_a_step(claim: PrivacyClaim) -> PrivacyClaim:
    stated = claim.stated
    if not isinstance(stated, Steps):
        raise UsageError(
            f"claim={claim.text}: train yields after each step, which is compared with one step "
            "of DP-SGD; claim dpsgd, e.g. 'sigma=1,rate=0.05,steps=80'"
        )
    return PrivacyClaim.of(dpsgd=replace(stated.dpsgd, steps=1), delta=stated.delta)


def _check(plan: TrainingPlan, *, by_step: bool) -> None:
    if (size := world_size()) > 1:
        raise UsageError(
            f"world_size={size}: sequential=True audits one process; audit on one, or leave "
            "sequential out"
        )
    if not by_step and plan.request.options.runs == 1:
        raise UsageError(
            "runs=1: sequential=True trains run after run; give the most runs, e.g. runs=100, or "
            "let train yield after each step"
        )
