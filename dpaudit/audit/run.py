"""The audit of noise: plan the calls, draw the noise, judge it once."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from dpaudit.audit.battery import CERTAIN, LOOKS, Battery
from dpaudit.audit.betting.noise import Betting
from dpaudit.audit.block import BitWriter
from dpaudit.audit.options import DEFAULT_SAMPLES, MINIMUM_SAMPLES, AuditOptions, Progress
from dpaudit.audit.plan import Plan, drawing_seconds, plan_audit
from dpaudit.audit.progress import notebook_bar
from dpaudit.audit.request import NoiseRequest
from dpaudit.audit.result import AuditResult, MechanismResult
from dpaudit.audit.sampling import Sampling
from dpaudit.audit.verdict import cause_of, excluded_by, judge, predictable, too_slow, verdict_of
from dpaudit.claims import EXAMPLES, Claim
from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.options import from_keywords, takes
from dpaudit.protocols import Facts, Reply, Request, Session, Target, Test
from dpaudit.provenance import collect, with_identity
from dpaudit.results.text import one_line
from dpaudit.targets import open_sampler
from dpaudit.targets.callables import (
    ONE_PROCESS,
    CallableTarget,
    Subject,
    reproducible,
    same_search_path,
    subject,
)
from dpaudit.targets.endpoints.worker import SourceTarget
from dpaudit.targets.identity import Identity, identify
from dpaudit.targets.sandbox.policy import joined
from dpaudit.types import BlindSpot, Evidence, TestResult

__all__ = [
    "SEARCH_SECONDS",
    "DrawnNoise",
    "ValuesSampler",
    "audit_sampler",
    "audit_subject",
    "audit_values",
    "conclude",
    "draw",
    "result_in_process",
    "run_audit",
    "search_deadline",
    "search_seconds",
]

R = TypeVar("R", AuditResult, MechanismResult)

EARLY_END = 100  # what an end before the plan's may add to α is 1/this; see run_audit
CAUSE_SECONDS = 3.0
_GIVE_ONE = f"give one of {EXAMPLES}"
SEARCH_SECONDS = 15.0  # after the last value, without a time limit; less for a smaller audit


@takes(AuditOptions)
def audit_sampler(
    sampler: str | Callable[..., Any],
    *,
    claim: str | None = None,
    in_process: bool | None = None,
    options: AuditOptions | None = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> AuditResult:
    """Audit a closed sampler: one named as on the command line, or a Python callable.

    A name is ``python:MODULE:FUNCTION``, ``library:./libnoise.so:SYMBOL``, ``numpy:laplace``, ….
    A callable is ``f(n, d)`` or ``f(size=(n, d))`` and returns an array (n, d), ``f(n)``, which
    returns n values, or ``f()`` or ``f(value)``, which return one. Its parameters tell which, or
    ``call`` does: ``call="f(value, epsilon=1.0)"``. A module-level function runs in a sandboxed
    process of its own; a lambda, a closure, a method or a function of a notebook is called in this
    process, without a sandbox, and a pass says so. ``in_process`` True keeps any callable here,
    False refuses what could only run here.

    ``claim`` may be left out if the sampler states it (libraries, nearly all registered sources).
    Keywords come before ``options``. Without a time limit the values have 10 minutes, and a search
    for hidden directions 15 seconds after them (less below 1e7 values, 5 at 1e6). Without ``seed``
    a fresh one is drawn and reported. ``progress`` is called with the number drawn and the total;
    without it a notebook shows a bar.

    Formal guarantee: see :class:`~dpaudit.audit.result.AuditResult`.

    Raises:
        UsageError: an unknown name, or a claim, α, time limit or sample size out of range.
        SamplerError: the sampler died, did not respond, or answered with something that is not
            noise.

    >>> result = audit_sampler(
    ...     "python:numpy.random:standard_cauchy", claim="gaussian:sigma=1", samples=10_000, seed=1
    ... )
    >>> result.verdict
    'finding'
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> audit_sampler(
    ...     lambda n, d: rng.normal(0, 2.2, (n, d)), claim="gaussian:sigma=2", samples=1e4, seed=1
    ... ).verdict
    'finding'
    """
    options = from_keywords(AuditOptions, keywords, options)
    what = subject(sampler, in_process=in_process)
    with notebook_bar(progress, unit="values") as bar:
        return audit_subject(what, NoiseRequest(claim=claim, options=options), progress=bar)


def audit_subject(
    subject: Subject,
    request: NoiseRequest,
    *,
    identity: Identity | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit noise where it can be called: in a process of its own, opened by name, or in this one.

    ``identity`` is the result of :func:`~dpaudit.targets.identity.identify` for the target, if the
    caller has it. Errors are those of :func:`audit_sampler`.
    """
    claim, options = request.claim, request.options
    if subject.target is None:
        return _audit_here(subject, claim=claim, options=options, progress=progress)
    law = None if claim is None else Claim.parse(claim)
    with same_search_path() if subject.ours else contextlib.nullcontext(), joined() as sandbox:
        identity = identify(subject.target) if identity is None else identity
        closed = open_sampler(
            subject.target,
            seed=options.seed,
            dtype=options.dtype,
            text_mode=options.text,
            mitigation=options.mitigation,
            call=options.call,
        )
        mitigated = options.mitigation is not None
        if law is None and (mitigated or not isinstance(closed, SourceTarget)):
            law = _own_claim(closed, mitigated=mitigated)
        with closed.open(timeout=drawing_seconds(options)) as opened:
            law = _own_claim(opened, mitigated=False) if law is None else law
            result = _audit(opened, law, options, progress)
    files, versions = identity
    provenance_of_run = with_identity(
        result.provenance, by=options.by, files=files, versions=versions
    )
    result = dataclasses.replace(result, sandbox=sandbox.reached, provenance=provenance_of_run)
    return reproducible(result, subject)


def _audit_here(
    subject: Subject, *, claim: str | None, options: AuditOptions, progress: Progress | None
) -> AuditResult:
    """Audit a callable of this process."""
    if claim is None:
        raise UsageError(f"claim=None: a callable states no claim; {_GIVE_ONE}")
    if options.mitigation is not None:
        raise UsageError(
            f"mitigation={options.mitigation}: works on a registered source only; leave it out"
        )
    target = CallableTarget(subject.called, name=subject.name, call=options.call)
    with target.open(timeout=drawing_seconds(options)) as closed:
        opened = dataclasses.replace(options, call=None)
        result = run_audit(closed, claim=Claim.parse(claim), options=opened, progress=progress)
    how = "" if options.call is None else f"call={options.call!r}, "
    again = f"dpaudit.audit_sampler(…, claim={claim!r}, {how}seed={options.seed!r})"
    return result_in_process(result, subject, again=again, by=options.by, unseen=ONE_PROCESS)


def result_in_process(result: R, subject: Subject, *, again: str, by: str, unseen: BlindSpot) -> R:
    """The result for a callable of this process; a pass also lists ``unseen``."""
    result = reproducible(result, subject, again=again)
    result = dataclasses.replace(result, provenance=with_identity(result.provenance, by=by))
    if result.verdict != "no-finding":
        return result
    return dataclasses.replace(result, cannot_rule_out=(*result.cannot_rule_out, unseen))


def _own_claim(closed: Target | Session, *, mitigated: bool) -> Claim:
    """The claim that a library's mechanism, or an open source, states of itself."""
    facts = closed.facts
    own, instead = facts.claim, facts.instead
    if own is None and instead is not None and not mitigated:
        raise UsageError(
            f"claim=None: {closed.name} releases values, and its noise has no law apart from them; "
            f"audit its releases: dpaudit mechanism {shlex.quote(closed.name)} "
            f"{one_line(instead, limit=200)}"
        )
    if own is None:
        raise UsageError(
            f"claim=None: {closed.name} states no claim"
            f"{' behind a mitigation' if mitigated else ''}; {_GIVE_ONE}"
        )
    return Claim.parse(own)


def run_audit(
    sampler: Session, *, claim: Claim, options: AuditOptions, progress: Progress | None = None
) -> AuditResult:
    """Audit an opened sampler.

    A recording whose rows are single values is read as rows of ``dim`` values, in the order
    recorded.

    The number of values is fitted to the time limit by the speed of the sampler's first calls; a
    pass on less than a tenth of ``samples`` is *inconclusive*. A sequential audit spends half of α
    on bets while it draws and half on the battery at the end, which a won bet makes unnecessary.

    Otherwise the audit looks at the tests that are quick to evaluate whenever the number of values
    has grown fourfold, at most 20 times, and stops at a look, from the millionth value on, where a
    finding is certain: an adjusted p-value of at most α·10⁻¹²/20. All p-values of that audit then
    count 20·10¹² times. With ``all_values`` or ``bits`` it does not stop.

    Where the sampler dies, hangs or answers with something that is not noise, what was drawn before
    is judged: a finding stands, a pass is *inconclusive*. The battery's p-values then count
    100·t·(t + 1) times, t being the number of blocks drawn.

    Formal guarantee: if the values that the sampler gives, for as long as it gives any, are
    independent draws of the claimed law, and its speed does not depend on them, the verdict is a
    finding with probability at most α where what ends it does not depend on the values either, and
    at most 1.01·α whatever ends it; the looks add at most 10⁻¹²·α to either, by a union bound over
    them. Proof: let p_t be the battery's smallest adjusted p-value after
    t blocks of the endless stream of which the sampler shows a first part, and N the number of
    blocks of a whole audit. For each fixed t, P(p_t ≤ x) ≤ x; so a whole audit is a finding with
    probability at most α, and so is one that ends at a t chosen independently (the factor is above
    1). In general a finding is p_N ≤ α, or 100·t·(t + 1)·p_t ≤ α for the t at which it ended. The
    probability that any t fulfils the latter is at most Σ α/(100·t·(t + 1)) = α/100, however the t
    is chosen: by the values shown, by those of the answer that never came, or by an adversary. A
    sampler that dies only when its values look good has fewer passes, and no more findings.

    Raises:
        UsageError: an option that an opened sampler cannot have, or a dimension that it does not
            serve.
        SamplerError: it failed before 1,000 values were drawn.
    """
    return _audit(sampler, claim, options.for_opened(sampler.name), progress)


def _audit(
    sampler: Session, claim: Claim, options: AuditOptions, progress: Progress | None
) -> AuditResult:
    plan = plan_audit(sampler, claim=claim, options=options)
    return conclude(plan, draw(plan, sampler, progress=progress))


@dataclasses.dataclass(frozen=True)
class DrawnNoise:
    """The noise drawn as planned, the evidence of each test, and a sequential audit's bets."""

    sampling: Sampling
    battery: Battery
    betting: Betting | None
    evidence: Mapping[str, tuple[Test, Evidence]]

    @property
    def won(self) -> bool:
        """Whether a bet made the battery unnecessary."""
        return self.betting is not None and self.betting.won

    @property
    def stopped(self) -> bool:
        """Whether a certain finding ended the drawing."""
        return self.battery.certain and self.sampling.drawn < self.sampling.planned

    @property
    def early(self) -> float:
        """The factor on the battery's p-values where it ended early; see :func:`run_audit`."""
        if self.stopped:
            return LOOKS / CERTAIN
        blocks = self.sampling.blocks
        return 1.0 if self.sampling.ended is None else EARLY_END * blocks * (blocks + 1)


def draw(plan: Plan, sampler: Session, *, progress: Progress | None = None) -> DrawnNoise:
    """Draw as planned, and feed each block to every test; errors as of :func:`run_audit`."""
    options, claim, root = plan.options, plan.claim, plan.root
    alpha = options.alpha / plan.weight
    fail_fast = not (options.all_values or options.sequential or options.bits is not None)
    battery = Battery(options, claim, root, alpha=alpha, fail_fast=fail_fast)
    betting = Betting(claim, root, alpha=alpha) if options.sequential else None
    sampling = Sampling(sampler, plan, progress=progress)
    # BLAS threads do not help on blocks that fit a cache, and compete with the sampler's process
    with threadpool_limits(1), battery, BitWriter(options.bits) as writer:
        for block in sampling:
            battery.update(block, drawn=sampling.drawn)
            # another process may repeat this one's values; a forked child does
            if block.process == 0:
                writer.write(block.z)
            forked = block.process < 0
            if betting is not None and not forked and betting.update(block):
                break
            if battery.certain:
                break
        if sampling.ended is not None and sampling.drawn < MINIMUM_SAMPLES:
            raise sampling.ended
        if betting is not None and betting.won:
            return DrawnNoise(sampling, battery, betting, {})
        if progress is not None:
            progress(plan.planned, plan.planned)
        started = plan.limit.started
        evidence = battery.conclude(lambda sure: search_deadline(started, options, certain=sure))
    return DrawnNoise(sampling, battery, betting, evidence)


def conclude(plan: Plan, noise: DrawnNoise) -> AuditResult:
    """Judge the evidence, with α split once, and state what a pass does not exclude."""
    options, sampling, battery = plan.options, noise.sampling, noise.battery
    alpha, limit = options.alpha, plan.limit.seconds
    results, blind = judge(
        noise.evidence, alpha=alpha, advisory=battery.advisory, weight=plan.weight * noise.early
    )
    bets = noise.betting.results(alpha=alpha) if noise.betting is not None else []
    tests = tuple(
        _add_command(plan, t, battery.seen_after.get(t.name), sampling.drawn) if t.finding else t
        for t in (*sorted(bets, key=lambda t: t.p), *results)
    )
    stop = " (stopped after {of})" if noise.won else ""
    if noise.stopped and not noise.won:
        stop = "; stopped after {of}, certain: --all continues"
    verdict, reason = verdict_of(tests, sampling, stop, limit=limit)
    another_law = {name for name, (_, evidence) in noise.evidence.items() if evidence.harm}
    computed = predictable(tests, battery.predicting - another_law, alpha)
    reason += f"; {computed}" if computed else ""
    remarks = [f"{computed[:1].upper()}{computed[1:]}."] if computed else []
    if verdict == "finding" and noise.stopped and not noise.won:
        of = f"{sampling.drawn:,} of {sampling.planned:,} values"
        remarks.append(f"The audit stopped after {of}, certain: --all continues.")
    spots, curves = excluded_by(
        plan.calls,
        claim=plan.claim,
        drawn=sampling.drawn,
        dims=tuple(sampling.dims),
        blind=blind,
        mapped=battery.complete and not plan.claim.discrete,
        alpha=alpha,
    )
    return AuditResult(
        verdict=verdict,
        reason=reason,
        cause=cause_of(tests),
        remarks=tuple(remarks),
        shortened=too_slow(sampling, limit) if not any(t.finding for t in tests) else "",
        sampler=plan.sampler,
        claim=str(plan.claim),
        alpha=alpha,
        tests=tests,
        samples=sampling.drawn,
        samples_requested=options.samples,
        dims=tuple(sorted(sampling.dims)),
        dims_refused=tuple(sorted(sampling.refused)),
        sequential=options.sequential,
        seconds=time.monotonic() - plan.limit.started,
        cannot_rule_out=spots if verdict == "no-finding" else (),
        power=curves if verdict == "no-finding" else (),
        provenance=collect(seed=options.seed, plugins=battery.origins),
    )


def _add_command(plan: Plan, test: TestResult, seen_after: int | None, drawn: int) -> TestResult:
    """A finding with the command that reproduces it, with as many values as when it first showed.

    A bet may take eight times as many: when it stops depends on the draws.
    """
    bet = test.name.startswith("bet on")
    count = max((seen_after or drawn) * (8 if bet else 1), MINIMUM_SAMPLES)
    again = plan.options.again(tests=None if bet else (test.name,), samples=count)
    command = ["dpaudit", "audit", plan.sampler, "--claim", str(plan.claim), *again]
    return dataclasses.replace(test, seen_after=seen_after, reproduce=shlex.join(command))


def search_seconds(options: AuditOptions) -> float | None:
    """Seconds that searches may take after the last value; None: up to the time limit."""
    if options.search_limit is not None or options.time_limit is not None:
        return options.search_limit
    return SEARCH_SECONDS * min(1.0, math.sqrt(options.samples / DEFAULT_SAMPLES))


def search_deadline(started: float, options: AuditOptions, *, certain: bool) -> float:
    """When searches end, in time.monotonic(); a certain finding needs them for its cause only."""
    now = time.monotonic()
    searches, in_all = search_seconds(options), options.time_limit
    return min(
        math.inf if searches is None else now + searches,
        math.inf if in_all is None else started + in_all,
        now + CAUSE_SECONDS if certain else math.inf,
    )


class ValuesSampler:
    """A session on recorded values (n,), each once, in order."""

    def __init__(self, values: npt.NDArray[Any], *, name: str) -> None:
        self.name, self.facts = name, Facts({"noise"}, dim=1, available=len(values))
        self._values, self._next = np.asarray(values, dtype=np.float64), 0

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """The next rows of values.

        Raises:
            SamplerOutputError: fewer values are left.
        """
        del timeout
        n, d = request.n, request.dim
        values = self._values[self._next : self._next + n * d]
        if len(values) < n * d:
            raise SamplerOutputError(f"{self.name}: {len(values)} values left, {n * d} requested")
        self._next += n * d
        return Reply(values.reshape(n, d))


def audit_values(
    values: npt.NDArray[Any], claim: Claim, alpha: float, seed: str, *, name: str = "values"
) -> AuditResult:
    """Audit at least 1,000 recorded values (n,) with the whole battery.

    Raises:
        SamplerOutputError: fewer than 1,000 values.
    """
    options = AuditOptions(samples=len(values), alpha=alpha, seed=seed)
    return run_audit(ValuesSampler(values, name=name), claim=claim, options=options)
