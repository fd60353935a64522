"""The audit of a user's own training function: plan canaries and coins, train, judge, conclude."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.judge import Aim, judge, learn
from dpaudit.audit.mechanism.one_run import Ranked, trials
from dpaudit.audit.mechanism.one_run_audits import CanaryAudit, CoinCount, one_run_result
from dpaudit.audit.mechanism.request import MechanismRequest
from dpaudit.audit.mechanism.verdict import CEILING, two_neighbour_blind_spots, verdict_of
from dpaudit.audit.options import (
    ClaimOptions,
    DataOptions,
    MechanismOptions,
    Progress,
    TrainingOptions,
)
from dpaudit.audit.request import Failure
from dpaudit.audit.result import MechanismResult, at_least, with_command
from dpaudit.audit.training import records
from dpaudit.errors import SamplerCrashError, UsageError
from dpaudit.options import command_of, from_keywords, keywords_of, split_keywords, takes
from dpaudit.randomness import KeyedStream
from dpaudit.ranks import ALONE, Ranks, world_size
from dpaudit.results.text import error_text
from dpaudit.types import BlindSpot

__all__ = [
    "Pool",
    "Scoring",
    "TrainingPlan",
    "TrainingRequest",
    "audit_training",
    "audit_with",
    "conclude",
    "draw_scores",
    "judge_runs",
    "judge_scores",
    "plan_training",
]

FEWEST_RUNS = 400
"""Below so many runs the guesses of :mod:`~dpaudit.audit.mechanism.one_run` show more."""
_MANY_RUNS = "one canary in many runs"

_CANARIES = 1000
_LEAST = 8
_CENTRED = 4
"""Least number of runs at which a canary's scores are compared with their mean over all runs."""

Array = npt.NDArray[np.float64]
Coins = npt.NDArray[np.bool_]
Train = Callable[[Any, int], Any]
Score = Callable[[Any, Any], float]

_OUTSIDE = (
    BlindSpot(
        test="one run",
        flaw="what the training shows to someone who sees more than the scores",
        size=None,
        unit="",
        says="the scores are of the model that train returned: gradients, logs and checkpoints "
        "on the way were not looked at; dpaudit.audit_optimizer looks at each step",
    ),
)


@dataclass(frozen=True)
class Scoring:
    """How canaries are scored: one by one, by their loss, all at once, or by ``train`` itself."""

    score: Score | None = None
    loss: Score | None = None
    scores: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        names = [name for name, value in vars(self).items() if value is not None]
        if len(names) > 1:
            raise UsageError(f"{names[0]}: not together with {names[1]}; give one of them")
        for name in names:
            if not callable(getattr(self, name)):
                raise UsageError(f"{name}={getattr(self, name)!r}: must be a function")

    def of(self, model: Any, canaries: Any, m: int) -> Array:
        """Scores (m,), higher meaning likelier in."""
        if self.scores is not None:
            return records.values(self.scores(model, canaries), of=m)
        one, sign = (self.loss, -1.0) if self.loss is not None else (self.score, 1.0)
        if one is None and not _is_module(model):
            return records.values(model, of=m)
        if one is None:
            one, sign = _cross_entropy, -1.0
        losses = [float(records.whole(one(model, records.record(canaries, i)))) for i in range(m)]
        return sign * records.values(losses, of=m)


@takes(ClaimOptions, TrainingOptions)
def audit_training(
    train: Train,
    data: Any,
    *,
    canaries: Any = None,
    score: Score | None = None,
    loss: Score | None = None,
    scores: Callable[[Any, Any], Any] | None = None,
    options: TrainingOptions | None = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> MechanismResult:
    """Audit a training function of your own: is what it returns as private as claimed?

    ``train(dataset, seed)`` trains on ``dataset`` and returns the model; ``seed`` is a whole number
    that it may use or ignore. ``data`` is what it trains on: an array or tensor, a tuple of arrays
    of one length, a list, a data frame, or a torch data set. ``canaries`` are the records whose
    presence is guessed: a number of records of ``data`` itself (by default half of them, at most
    1,000), or records of the same kind that are added to it, which may be as odd as you like
    (mislabelled ones leak most). A fair coin puts
    each canary into the training set or leaves it out. ``train`` is called ``runs`` times, with new
    coins each time: once with hundreds of canaries, or many times with few. One canary in at least
    400 runs compares two neighbouring data sets, as an audit of any mechanism does.

    A canary's score, higher if the model seems to know it, is one of

    - ``score(model, record)``, a number; ``record`` is one row, as ``data`` holds it;
    - ``loss(model, record)``, a number; the score is minus the loss;
    - ``scores(model, canaries)``, all at once, one number for each;
    - by default minus the cross-entropy of ``(input, label)`` if ``train`` returns a torch module;
      otherwise what it returns must be the scores, one for each canary.

    The claim is (``epsilon``, ``delta``)-DP, or ``mu``-GDP, or both; or ``rho``, ``renyi``,
    ``curve`` or ``f`` as in :func:`~dpaudit.audit_mechanism`; or ``dpsgd``, e.g.
    ``"sigma=1,rate=0.05,steps=80"``: noise multiplier, sampling rate and number of steps, as the
    accountant has them (needs dp-accounting). Each of the latter is compared as a whole curve,
    which shows more than ε at one δ; ε is given at ``delta``, by default 1e-5. Neighbours differ by
    one record that is there or not.

    With ``sequential=True`` the audit stops as soon as the claim is contradicted, and ``runs`` is
    the most. ``train`` may then be a generator function with ``dataset = yield model`` after each
    step: the coins are tossed anew for each step, which is compared with one of ``dpsgd``, so that
    one run is enough and may stop early
    (:func:`~dpaudit.audit.training.sequential.audit_in_sequence`). All bounds are then of a step.

    Under ``torch.distributed``, with the process group initialised before, every rank of the
    default group calls this with the same arguments, and every rank gets the same result: that of
    one process with these scores. Seed and ``by`` are rank 0's; only its ``progress`` is called.
    ``train`` gets the same whole ``dataset`` and the same ``seed`` on every rank, and splits the
    data itself, so that a record is used on one rank only. It returns the model on every rank,
    replicated or sharded: every rank scores every canary, so a score may use collectives, and the
    scores must be equal to the last bit. Or it returns None on all ranks but 0, whose scores then
    count. An error on one rank is raised on all: on the others once their collectives fail, at the
    latest after the group's timeout. Not checked: that ranks whose data are no arrays have the
    same; records on several ranks, each with one coin, would look like a leak.

    Formal guarantee: with probability at least 1 − ``alpha`` all bounds hold and the verdict is
    ``finding`` only if the claim is false, if ``train`` learns of the coins through ``dataset``
    alone, and the score through the model alone
    (:func:`~dpaudit.audit.mechanism.one_run.one_run`), and, for one canary in many runs, if no run
    depends on another. Not claimed: that ``no-finding`` means private; other canaries and other
    scores may show more.

    Raises:
        UsageError: data, canaries, claim or an option that does not fit, or that differ between
            ranks, as scores must not either.
        SamplerCrashError: ``train`` or a score raised, or a rank did not answer within the group's
            timeout.
        MissingExtraError: ``dpsgd`` without dp-accounting.
    """
    claim, how = split_keywords(keywords, ClaimOptions, TrainingOptions)
    return audit_with(
        train,
        data,
        canaries=canaries,
        scoring=Scoring(score, loss, scores),
        request=TrainingRequest(
            claim=from_keywords(ClaimOptions, claim).claim(),
            options=from_keywords(TrainingOptions, how, options),
        ),
        progress=progress,
    )


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """An audit of training against ``claim`` as it is asked for, apart from function and data."""

    claim: PrivacyClaim
    options: TrainingOptions

    def command(self, target: str, **more: str | None) -> str:
        """The command that asks for the same audit of ``target``, with ``more`` options."""
        return command_of("training", target, self.claim.options, self.options, **more)

    def inconclusive(self, failure: Failure) -> MechanismResult:
        """The result if nothing was trained and scored."""
        how = self.options
        options = MechanismOptions(alpha=how.alpha, seed=how.seed, by=how.by)
        request = MechanismRequest(claim=self.claim, data=DataOptions(), options=options)
        return dataclasses.replace(request.inconclusive(failure), samples_requested=0)


def audit_with(
    train: Train,
    data: Any,
    *,
    canaries: Any,
    scoring: Scoring,
    request: TrainingRequest,
    progress: Progress | None = None,
) -> MechanismResult:
    """As :func:`audit_training`, with a request and a scoring that are ready."""
    if not callable(train):
        raise UsageError(f"train={train!r}: must be a function of (dataset, seed)")
    ranks = Ranks.here()
    plan = _plan_together(data, canaries, request, ranks)
    name = f"training:{getattr(train, '__qualname__', type(train).__name__)}"
    if request.options.sequential:
        from dpaudit.audit.training.sequential import audit_in_sequence

        return conclude(plan, audit_in_sequence(plan, train, scoring, name=name, progress=progress))
    scores = draw_scores(plan, train, scoring, progress=progress, ranks=ranks)
    return conclude(plan, judge_scores(plan, scores, name=name))


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What an audit of training does, decided before anything is trained.

    ``coins`` (runs, m) say which of the m canaries of ``pool`` each run gets, and ``seeds`` (runs,)
    are what ``train`` gets. Ties are broken by a stream below ``stream``.
    """

    request: TrainingRequest
    pool: Pool
    coins: Coins
    seeds: npt.NDArray[np.int64]
    stream: KeyedStream
    started: float

    @property
    def compares_neighbours(self) -> bool:
        """Whether there is one canary in so many runs that each is a release of a mechanism."""
        runs, m = self.coins.shape
        return m == 1 and runs >= FEWEST_RUNS and self.request.options.guesses is None


def plan_training(data: Any, *, canaries: Any, request: TrainingRequest) -> TrainingPlan:
    """Choose the canaries of ``data``, and toss a fair coin for each of them in each run.

    Raises:
        UsageError: data or canaries that do not fit, or too few of both runs and canaries.
    """
    started, runs = time.monotonic(), request.options.runs
    stream = KeyedStream.from_seed(request.options.seed).child("training")
    pool = Pool.of(data, canaries, stream.child("canaries").numpy())
    least = 1 if request.options.sequential else _LEAST
    if runs < 1 or runs * pool.m < least:
        raise UsageError(
            f"runs={runs}: {pool.m} canaries in {runs} runs are too few; at least {least} in all"
        )
    return TrainingPlan(
        request=request,
        pool=pool,
        coins=stream.child("coins").numpy().random((runs, pool.m)) < 0.5,
        seeds=stream.child("seeds").numpy().integers(0, 2**31, runs),
        stream=stream,
        started=started,
    )


def _plan_together(
    data: Any, canaries: Any, request: TrainingRequest, ranks: Ranks
) -> TrainingPlan:
    """:func:`plan_training` with the seed of rank 0; all else must be the same on every rank."""
    shared = f"{request.options.seed}\0{request.options.by}".encode()
    seed, by = ranks.exchange(lambda: shared)[0].decode().split("\0")
    options = dataclasses.replace(request.options, seed=seed, by=by)
    request, plans = dataclasses.replace(request, options=options), []

    def contents() -> bytes:
        plans.append(plan_training(data, canaries=canaries, request=request))
        asked = ", ".join(keywords_of(request.claim.options, options))
        return f"{asked}, {plans[0].pool.m} canaries, {records.digest(plans[0].pool.data)}".encode()

    first, *others = (said.decode() for said in ranks.exchange(contents))
    for rank, other in enumerate(others, 1):
        if other != first:
            raise UsageError(
                f"{other} on rank {rank}, {first} on rank 0: give the whole data and the same "
                "options on every rank"
            )
    return plans[0]


def draw_scores(
    plan: TrainingPlan,
    train: Train,
    scoring: Scoring,
    *,
    progress: Progress | None = None,
    ranks: Ranks = ALONE,
) -> Array:
    """Train as planned, and score every canary by each model, (runs, m).

    Each of several ``ranks`` trains and scores. Their scores must be equal; ranks other than 0
    have none where ``train`` returns None.

    Raises:
        UsageError: scores of another number or kind, or that differ between ranks.
        SamplerCrashError: ``train`` or a score raised, on any rank.
    """
    scores = np.empty(plan.coins.shape)
    for i, (coins, seed) in enumerate(zip(plan.coins, plan.seeds, strict=True)):
        work = partial(_train_and_score, train, scoring, plan.pool, coins, int(seed), ranks)
        first, *others = (np.frombuffer(part) for part in ranks.exchange(work))
        for rank, other in enumerate(others, 1):
            if len(other) and (at := np.flatnonzero(other != first)).size:
                raise UsageError(
                    f"score: {other[at[0]]} of canary {at[0]} on rank {rank}, {first[at[0]]} on "
                    f"rank 0: the models or the data differ; if they should, return None from "
                    f"train on all ranks but 0"
                )
        scores[i] = first
        if progress is not None and ranks.rank == 0:
            progress(i + 1, len(scores))
    return scores


def judge_scores(plan: TrainingPlan, scores: Array, *, name: str) -> MechanismResult:
    """Judge the scores (runs, m) of ``name`` against the coins.

    One canary in many runs compares two neighbours; otherwise guesses about all are counted.
    """
    options, coins = plan.request.options, plan.coins
    audit = CanaryAudit(
        name=name,
        claim=plan.request.claim,
        alpha=options.alpha,
        seed=options.seed,
        started=plan.started,
    )
    if plan.compares_neighbours:
        return judge_runs(audit, scores[:, 0], coins[:, 0])
    ties = plan.stream.child("ties").numpy()
    ranked = Ranked.of(_comparable_scores(scores).ravel(), coins.ravel(), ties)
    return one_run_result(
        audit,
        lambda level: trials(ranked, guesses=options.guesses, level=level),
        coins=CoinCount(int(coins.sum()), coins.size, own=True),
    )


def conclude(plan: TrainingPlan, result: MechanismResult) -> MechanismResult:
    """The result with what was audited, what a pass leaves open, and how to see it again."""
    claim, options, canaries = plan.request.claim, plan.request.options, plan.pool.m
    again = f"dpaudit.audit_training(…, {', '.join(keywords_of(claim.options, options))})"
    spots = (*result.cannot_rule_out, *_OUTSIDE) if result.verdict == "no-finding" else ()
    if result.details.get("sequential", {}).get("unit") == "step":
        spots = result.cannot_rule_out
    if claim.stated is not None and canaries > 1:  # its ceiling is not that of ε at δ alone
        spots = tuple(spot for spot in spots if spot.flaw != CEILING)
    return dataclasses.replace(
        with_command(result, again),
        cannot_rule_out=spots,
        details={**result.details, "runs": options.runs, "canaries": canaries},
        provenance=dataclasses.replace(result.provenance, by=options.by),
    )


@dataclass(frozen=True)
class Pool:
    """Data, canaries among them, of which any can be left out."""

    data: Any
    rows: npt.NDArray[np.intp]
    """The canaries' rows of ``data``."""

    @classmethod
    def of(cls, data: Any, canaries: Any, rng: np.random.Generator) -> Pool:
        """The pool of ``data`` and ``canaries``, records to add or the number of its own to choose.

        Raises:
            UsageError: they are of different kinds, or not as many as asked for.
        """
        n = records.count(data, name="data")
        canaries = min(_CANARIES, n // 2) if canaries is None else canaries
        if isinstance(canaries, (int, np.integer)) and not isinstance(canaries, bool):
            if not 1 <= canaries <= n:
                raise UsageError(f"canaries={canaries}: must lie in 1…{n}, the number of records")
            return cls(data, np.sort(rng.choice(n, size=int(canaries), replace=False)))
        m = records.count(canaries, name="canaries")
        if m < 1:
            raise UsageError("canaries: there are none; give some records, or their number")
        return cls(records.join(data, canaries), np.arange(n, n + m))

    @property
    def m(self) -> int:
        """The number of canaries."""
        return len(self.rows)

    @property
    def canaries(self) -> Any:
        """The canaries, of the same kind as the data."""
        return records.take(self.data, self.rows)

    def dataset(self, coins: Coins) -> Any:
        """The data with those canaries whose coin (m,) is true."""
        mask = np.ones(records.count(self.data, name="data"), dtype=bool)
        mask[self.rows[~coins]] = False
        return records.take(self.data, np.flatnonzero(mask))


def _train_and_score(
    train: Train, scoring: Scoring, pool: Pool, coins: Coins, seed: int, ranks: Ranks
) -> bytes:
    """The scores as float64; none on a rank other than 0 where ``train`` returns None."""
    function = "train"
    try:
        model = train(pool.dataset(coins), seed)
        if isinstance(model, Generator):
            raise UsageError(
                "train: yields instead of returning; give sequential=True (--sequential)"
            )
        if (size := world_size()) > ranks.size:
            raise UsageError(
                f"world_size={size}: coins were drawn for {ranks.size} process; call "
                "init_process_group before the audit, not in train"
            )
        if model is None and ranks.rank:
            return b""
        function = "score"
        return scoring.of(model, pool.canaries, pool.m).tobytes()
    except UsageError:
        raise
    except Exception as error:
        raise SamplerCrashError(f"{function} raised {error_text(error)}") from error


def _comparable_scores(scores: Array) -> Array:
    """Scores (runs, m) that compare over runs and canaries; no coin enters.

    With several runs: of few runs normal quantiles of ranks within each run, of more the distance
    from the canary's own mean, as some records are easier than others.
    """
    runs, m = scores.shape
    if runs == 1:
        return scores
    if runs >= _CENTRED:
        return np.asarray(scores - scores.mean(axis=0))
    return np.asarray(scipy.special.ndtri((scipy.stats.rankdata(scores, axis=1) - 0.5) / m))


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _cross_entropy(model: Any, record: Any) -> float:
    torch = sys.modules["torch"]
    try:
        x, label = record
    except (TypeError, ValueError):
        raise UsageError(
            "score: a record is not (input, label); give score=, loss= or scores="
        ) from None
    was = model.training
    model.eval()
    try:
        with torch.no_grad():
            x = torch.as_tensor(x)
            logits = model(x[None])
            target = torch.as_tensor(label, device=logits.device).reshape(1).long()
            return float(torch.nn.functional.cross_entropy(logits, target))
    finally:
        model.train(was)


def judge_runs(
    audit: CanaryAudit, scores: npt.NDArray[np.float64], member: Coins
) -> MechanismResult:
    """The result of independent runs: one score each (n,), and whether the canary was in (n,).

    Events of the score are learned from the first half of the runs and counted in the second, as
    for the releases of any mechanism.

    Formal guarantee: that of :func:`~dpaudit.audit.mechanism.judge.judge`, if the coins were fair
    and no run depends on another. Nothing is lost to other canaries: the bounds approach the truth
    of this score, as the number of runs grows. Not claimed: that the last bits of a score say
    nothing.
    """
    claim, alpha, half = audit.claim, audit.alpha, len(scores) // 2
    parts = slice(0, half), slice(half, None)
    learning, counting = (
        (scores[part][~member[part], None], scores[part][member[part], None]) for part in parts
    )
    learned = learn(
        *learning,
        neighbours=(np.zeros(1), np.ones(1)),
        aim=Aim.of(claim, alpha, real_numbers=True),
        rng=KeyedStream.from_seed(audit.seed).child("training", "statistics").numpy(),
    )
    judgement = judge(learned, *counting, claim=claim, alpha=alpha)
    tests = tuple(test for test in judgement.tests if not test.advisory)
    epsilon, stated = judgement.epsilon, judgement.stated
    if stated is not None and stated.unit == "ε" and stated.shown is not None:
        epsilon = max(epsilon, stated.shown.low)
    least, most = learned.shares
    return audit.result(
        *verdict_of(tests, ""),
        method=_MANY_RUNS,
        stated=stated,
        epsilon=epsilon,
        delta=at_least(judgement.delta, alpha, _MANY_RUNS),
        mu=at_least(judgement.mu, alpha, _MANY_RUNS),
        curve=judgement.curve,
        tests=tests,
        samples=len(scores),
        blind=two_neighbour_blind_spots(
            draws=len(scores) - half,
            drawn=len(scores),
            claim=claim,
            alphas=(least * alpha, most * alpha),
        ),
    )
