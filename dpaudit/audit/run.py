"""The audit: draw as planned, feed every test, judge once."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
import time
from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dpaudit.audit.battery import CERTAIN, LOOKS, Battery
from dpaudit.audit.betting import Betting
from dpaudit.audit.block import BitWriter
from dpaudit.audit.notebook_bar import notebook_bar
from dpaudit.audit.options import (
    DEFAULT_SAMPLES,
    MINIMUM_SAMPLES,
    AuditOptions,
    Progress,
)
from dpaudit.audit.plan import Call, growing_plan, make_plan, special_shapes
from dpaudit.audit.power import blind_spots, frontier, measured_curves, read_table
from dpaudit.audit.result import AuditResult
from dpaudit.audit.sampling import Sampling
from dpaudit.audit.time_limit import TimeLimit
from dpaudit.audit.verdict import cause_of, judge, never_excluded
from dpaudit.claims import EXAMPLES, Claim
from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.options import from_keywords, takes
from dpaudit.protocols import ClosedSampler, PreparingSampler, StartedSampler, ValueSampler
from dpaudit.provenance import collect, identified
from dpaudit.randomness import KeyedStream
from dpaudit.results.text import one_line
from dpaudit.samplers import open_sampler
from dpaudit.samplers.callables import (
    ONE_PROCESS,
    CallableTarget,
    Subject,
    reproducible,
    same_search_path,
    subject,
)
from dpaudit.samplers.endpoints.worker import SourceTarget
from dpaudit.samplers.identity import Identity, identify
from dpaudit.samplers.sandbox.policy import joined
from dpaudit.types import BlindSpot, PowerPoint, TestResult, Verdict

__all__ = [
    "SEARCH_SECONDS",
    "audit_named",
    "audit_sampler",
    "audit_subject",
    "run_audit",
    "search_deadline",
    "search_seconds",
]

LEAST_SHARE = 0.1  # of the values asked for: a pass on less is inconclusive
EARLY_END = 100  # what an end before the plan's may add to α is 1/this; see run_audit
CAUSE_SECONDS = 3.0
MAP_ALPHA = 0.01  # at which the detectability map was measured; a larger α sees more
DRAWING_SECONDS = 600.0
_COMPUTED = "the noise can be computed: who has seen some of it, or guesses a seed, knows the rest"
_FIT = "fit into the time limit"
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
    **given: Any,
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
    asked = from_keywords(AuditOptions, given, options)
    what = subject(sampler, in_process=in_process)
    with notebook_bar(progress, unit="values") as shown:
        return audit_subject(what, claim=claim, options=asked, progress=shown)


def audit_subject(
    what: Subject,
    *,
    claim: str | None,
    options: AuditOptions,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit noise where it can be called: in a process of its own or in this one."""
    if what.target is not None:
        with same_search_path() if what.ours else contextlib.nullcontext():
            named = audit_named(what.target, claim=claim, options=options, progress=progress)
        return reproducible(named, what)
    if claim is None:
        raise UsageError(f"claim=None: a callable does not say what it claims; {_GIVE_ONE}")
    if options.mitigation is not None:
        raise UsageError(
            f"mitigation={options.mitigation}: works on a registered source only; leave it out"
        )
    with CallableTarget(what.called, name=what.name, call=options.call) as closed:
        opened = dataclasses.replace(options, call=None)
        found = run_audit(closed, claim=Claim.parse(claim), options=opened, progress=progress)
    how = "" if options.call is None else f"call={options.call!r}, "
    again = f"dpaudit.audit_sampler(…, claim={claim!r}, {how}seed={options.seed!r})"
    made = identified(found.provenance, by=options.by)
    found = dataclasses.replace(reproducible(found, what, again=again), provenance=made)
    if found.verdict != "no-finding":
        return found
    return dataclasses.replace(found, cannot_rule_out=(*found.cannot_rule_out, ONE_PROCESS))


def audit_named(
    sampler: str,
    *,
    claim: str | None = None,
    options: AuditOptions,
    what: Identity | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Open a sampler by its name, audit it, close it; see :func:`audit_sampler`.

    ``what`` is what :func:`~dpaudit.samplers.identity.identify` said, if it was asked before.

    Raises:
        UsageError: an unknown name or claim, or an option that does not fit.
        SamplerError: as in :func:`run_audit`.
    """
    law = None if claim is None else Claim.parse(claim)
    what = identify(sampler) if what is None else what
    closed = open_sampler(
        sampler,
        seed=options.seed,
        dtype=options.dtype,
        text_mode=options.text,
        mitigation=options.mitigation,
        call=options.call,
    )
    mitigated = options.mitigation is not None
    if law is None and (mitigated or not isinstance(closed, SourceTarget)):
        law = _own_claim(closed, mitigated=mitigated)
    with joined() as sandbox, closed as opened:
        law = _own_claim(opened, mitigated=False) if law is None else law
        result = _audit(opened, law, options, progress)
    made = identified(result.provenance, by=options.by, files=what.files, versions=what.versions)
    return dataclasses.replace(result, sandbox=sandbox.reached, provenance=made)


def _own_claim(closed: ClosedSampler, *, mitigated: bool) -> Claim:
    """What a library's mechanism, or an open source, says of itself."""
    own = getattr(closed, "claim", None)
    instead = getattr(closed, "instead", None)
    if own is None and instead is not None and not mitigated:
        raise UsageError(
            f"claim=None: {closed.name} releases values, and its noise has no law apart from them; "
            f"audit its releases: dpaudit mechanism {shlex.quote(closed.name)} "
            f"{one_line(instead, limit=200)}"
        )
    if own is None:
        raise UsageError(
            f"claim=None: {closed.name} does not say what it claims"
            f"{' behind a mitigation' if mitigated else ''}; {_GIVE_ONE}"
        )
    return Claim.parse(own)


def run_audit(
    sampler: ClosedSampler, *, claim: Claim, options: AuditOptions, progress: Progress | None = None
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
    sampler: ClosedSampler, claim: Claim, options: AuditOptions, progress: Progress | None
) -> AuditResult:
    dim, samples, alpha = options.dim, options.samples, options.alpha
    sequential = options.sequential
    started = time.monotonic()
    limit = DRAWING_SECONDS if options.time_limit is None else options.time_limit
    fixed = dim is not None and 0 < dim <= samples
    if isinstance(sampler, PreparingSampler) and not sequential and fixed:
        planned_calls = make_plan(samples, dim=dim)
        sampler.prepare(sum(call.purpose == "other process" for call in planned_calls))
    if isinstance(sampler, StartedSampler):
        sampler.start(timeout=limit)
    # a recording of single values: rows of the length asked for
    flat = sampler.dim == 1 and sampler.available is not None
    if sampler.dim is not None and dim not in (None, sampler.dim) and not flat:
        raise UsageError(
            f"dim={dim}: {sampler.name} only gives vectors of {sampler.dim}; leave --dim out"
        )
    root = KeyedStream.from_seed(options.seed).child("audit")
    shapes = root.child("shapes").numpy()
    plan = _plan(sampler, samples, dim if dim is not None else sampler.dim, sequential, shapes)
    planned = sum(call.size for call in plan)
    if sampler.available is not None and planned < MINIMUM_SAMPLES:
        raise SamplerOutputError(
            f"{sampler.name} holds {planned} values; an audit needs at least {MINIMUM_SAMPLES}"
        )

    weight = 2.0 if sequential else 1.0
    battery = Battery(
        options,
        claim,
        root,
        alpha=alpha / weight,
        fail_fast=not (options.all_values or sequential or options.bits is not None),
    )
    betting = Betting(claim, root, alpha=alpha / weight) if sequential else None
    sampling = Sampling(
        sampler,
        plan,
        planned=planned,
        claim=claim,
        spread=root.child("atoms").numpy(),
        limit=TimeLimit(limit, started),
        progress=progress,
        flat=flat,
    )
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
        won = betting is not None and betting.won
        evidence = {}
        if not won:
            if progress is not None:
                progress(planned, planned)
            evidence = battery.conclude(
                lambda sure: search_deadline(started, options, certain=sure)
            )
        early = 1.0
        stopped = battery.certain and sampling.drawn < planned
        if stopped:
            early = LOOKS / CERTAIN
        elif sampling.ended is not None:
            early = EARLY_END * sampling.blocks * (sampling.blocks + 1)
        results, blind = judge(
            evidence, alpha=alpha, advisory=battery.advisory, weight=weight * early
        )
    bets = betting.results(alpha=alpha) if betting is not None else []
    words = ["dpaudit", "audit", sampler.name, "--claim", str(claim)]
    found = tuple(
        dataclasses.replace(
            t,
            seen_after=battery.seen_after.get(t.name),
            reproduce=_reproduce(words, t, options, battery.seen_after.get(t.name, sampling.drawn)),
        )
        if t.finding
        else t
        for t in (*sorted(bets, key=lambda t: t.p), *results)
    )
    stop = ""
    if won:
        stop = " (stopped after {of})"
    elif stopped:
        stop = "; stopped after {of}, certain: --all continues"
    verdict, reason = _verdict(found, sampling, stop, limit=limit)
    computed = _predictable(found, battery.predicting, alpha)
    reason += f"; {computed}" if computed else ""
    remarks = [f"{computed[:1].upper()}{computed[1:]}."] if computed else []
    if verdict == "finding" and stopped and not won:
        of = f"{sampling.drawn:,} of {sampling.planned:,} values"
        remarks.append(f"The audit stopped after {of}, certain: --all continues.")
    spots, curves = _excludes_not(claim, battery, sampling, plan, blind, alpha)
    return AuditResult(
        verdict=verdict,
        reason=reason,
        cause=cause_of(found),
        remarks=tuple(remarks),
        shortened=_slow(sampling, limit) if not any(t.finding for t in found) else "",
        sampler=sampler.name,
        claim=str(claim),
        alpha=alpha,
        tests=found,
        samples=sampling.drawn,
        samples_requested=samples,
        dims=tuple(sorted(sampling.dims)),
        dims_refused=tuple(sorted(sampling.refused)),
        sequential=sequential,
        seconds=time.monotonic() - started,
        cannot_rule_out=spots if verdict == "no-finding" else (),
        power=curves if verdict == "no-finding" else (),
        provenance=collect(seed=options.seed, plugins=battery.origins),
    )


def _excludes_not(
    claim: Claim,
    battery: Battery,
    sampling: Sampling,
    plan: Sequence[Call],
    blind: Sequence[BlindSpot],
    alpha: float,
) -> tuple[tuple[BlindSpot, ...], tuple[PowerPoint, ...]]:
    """Return what a pass does not exclude, and the detectability map that this comes from.

    First what no audit excludes, then sizes measured for this law, then each test's own limits.
    The map was measured for the whole battery on a continuous claim at α = 0.01; elsewhere only the
    tests' own blind spots hold. Where the map covers a flaw, it replaces a test's own estimate.
    """
    *always, guessable = never_excluded(claim, tuple(sampling.dims))
    rest = (guessable, *special_shapes(plan), *blind)
    if not battery.complete or claim.discrete or alpha < MAP_ALPHA:
        return (*always, *rest), ()
    main = {call.d for call in plan}
    dim = main.pop() if len(main) == 1 else None
    measured = frontier(dim=dim, samples=sampling.drawn)
    flaws = {p.flaw for p in measured}
    curves = [
        p
        for flaw, curve in measured_curves(read_table(), dim=dim).items()
        if flaw in flaws
        for p in curve
    ]
    own = [b for b in rest if b.flaw not in flaws]
    return (*always, *blind_spots(measured), *own), (*curves, *measured)


def _plan(
    sampler: ClosedSampler,
    samples: int,
    dim: int | None,
    sequential: bool,
    shapes: np.random.Generator,
) -> tuple[Call, ...]:
    takes_value = isinstance(sampler, ValueSampler) and sampler.takes_value
    if sampler.available is not None or not sequential:
        rows = sampler.available
        if rows is not None and dim:
            rows = rows * (sampler.dim or dim) // dim
        return make_plan(samples, dim=dim, available=rows, takes_value=takes_value, shapes=shapes)
    first = growing_plan(samples // 2, dim=dim)
    return (
        *first,
        *make_plan(
            samples - sum(c.size for c in first),
            dim=dim,
            takes_value=takes_value,
            shapes=shapes,
        ),
    )


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


def _reproduce(words: Sequence[str], test: TestResult, options: AuditOptions, drawn: int) -> str:
    """The command that reproduces one finding, with as many values as when it was first seen.

    A bet may take eight times as many: when it stops depends on the draws.
    """
    bet = test.name.startswith("bet on")
    count = max(drawn * (8 if bet else 1), MINIMUM_SAMPLES)
    return shlex.join([*words, *options.again(tests=None if bet else (test.name,), samples=count)])


def _verdict(
    tests: Sequence[TestResult], sampling: Sampling, stop: str, *, limit: float
) -> tuple[Verdict, str]:
    found = [t.name for t in tests if t.finding]
    of = f"{sampling.drawn:,} of {sampling.planned:,} values"
    if found:
        early = stop.format(of=of)
        ended = f"; {of} were drawn, then {sampling.ended}" if sampling.ended is not None else ""
        verb = "contradicts" if len(found) == 1 else "contradict"
        return "finding", f"{', '.join(found)}: {verb} the claim{early}{ended}"
    if sampling.ended is not None:
        return "inconclusive", f"{sampling.ended}; {of} were drawn and show nothing"
    if not sampling.shortened:
        return "no-finding", "nothing that was looked at contradicts the claim"
    slow = _slow(sampling, limit)
    if sampling.drawn < LEAST_SHARE * sampling.planned:
        least = max(MINIMUM_SAMPLES, _rounded(sampling.drawn))
        hint = f"ask for --samples {least}, or more time"
        return "inconclusive", f"{slow} and show nothing; {hint}"
    return "no-finding", f"nothing that was looked at contradicts the claim; {slow}"


def _slow(sampling: Sampling, limit: float) -> str:
    """How many values fitted into the time limit; '' if all did."""
    if sampling.ended is not None or not sampling.shortened:
        return ""
    speed = f"about {_rounded(round(sampling.speed)):,} values per second"
    of = f"{sampling.drawn:,} of {sampling.planned:,} values"
    return f"{of} {_FIT} of {limit:g} s at the sampler's speed ({speed})"


def _predictable(tests: Sequence[TestResult], predicting: Set[str], alpha: float) -> str:
    """What noise that can be computed means, if a test found it; allowed or not."""
    found = [t for t in tests if t.name in predicting and (t.finding or t.p <= alpha)]
    if any(t.finding for t in found):
        return _COMPUTED
    return f"{_COMPUTED}, which --allow-predictable permits" if found else ""


def _rounded(count: int) -> int:
    """``count`` rounded down to two digits."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return int(count // unit * unit)
