"""The audit: draw as planned, feed every test, judge once."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Sequence

from dpaudit import registry
from dpaudit.audit.block import SampleBlock
from dpaudit.audit.plan import DEFAULT_SAMPLES, make_plan
from dpaudit.audit.verdict import judge, never_excluded
from dpaudit.claims import Claim
from dpaudit.errors import SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.interfaces import ClosedSampler, Test
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.samplers import open_sampler
from dpaudit.types import AuditResult, Evidence, PluginOrigin, Verdict

__all__ = ["audit_sampler", "run_audit"]

Progress = Callable[[int, int], None]
MINIMUM_SAMPLES = 1_000


def audit_sampler(
    sampler: str,
    *,
    claim: str,
    dim: int | None = None,
    samples: int = DEFAULT_SAMPLES,
    alpha: float = 0.01,
    time_limit: float = 600.0,
    seed: int | str | None = None,
    dtype: str = "f64",
    text: bool = False,
    mitigation: str | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit a closed sampler, named as on the command line (``python:MODULE:FUNCTION``, ``library:…``, …).

    ``samples`` counts single values; ``time_limit`` is in seconds of wall time; without ``seed`` a fresh one is drawn
    and reported.

    Formal guarantee: see :class:`~dpaudit.types.AuditResult`.

    Raises:
        UsageError: an unknown name, or a claim, α, time limit or sample size out of range.
        SamplerError: the sampler died, kept silent, or answered with something that is not noise.

    >>> audit_sampler("python:numpy.random:standard_cauchy", claim="gaussian:sigma=1", samples=10_000, seed=1).verdict
    'finding'
    """
    used = secrets.token_hex(8) if seed is None else str(seed)
    law = Claim.parse(claim)
    _check(alpha, time_limit, samples)
    with open_sampler(sampler, seed=used, dtype=dtype, text_mode=text, mitigation=mitigation) as opened:
        return run_audit(
            opened,
            claim=law,
            dim=dim,
            samples=samples,
            alpha=alpha,
            time_limit=time_limit,
            seed=used,
            progress=progress,
        )


def _check(alpha: float, time_limit: float, samples: int) -> None:
    if not 0 < alpha < 1:
        raise UsageError(f"alpha={alpha}: must lie strictly between 0 and 1, e.g. 0.01")
    if not (time_limit > 0 and math.isfinite(time_limit)):
        raise UsageError(f"time-limit={time_limit}: must be a finite number of seconds > 0")
    if samples < MINIMUM_SAMPLES:
        raise UsageError(f"samples={samples}: an audit needs at least {MINIMUM_SAMPLES} values")


def run_audit(
    sampler: ClosedSampler,
    *,
    claim: Claim,
    seed: str,
    dim: int | None = None,
    samples: int = DEFAULT_SAMPLES,
    alpha: float = 0.01,
    time_limit: float = 600.0,
    tests: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit an opened sampler with the named ``tests`` (all that are registered by default).

    Where the time limit comes first, what was drawn is judged all the same: a finding stands, a pass is *inconclusive*.
    The number of values then depends on the sampler's speed but not on its values.
    """
    _check(alpha, time_limit, samples)
    started = time.monotonic()
    if sampler.dim is not None and dim not in (None, sampler.dim):
        raise UsageError(f"dim={dim}: {sampler.name} only gives vectors of {sampler.dim}; leave --dim out")
    plan = make_plan(samples, dim=dim if dim is not None else sampler.dim, available=sampler.available)
    planned = sum(call.n * call.d for call in plan)
    if sampler.available is not None and planned < MINIMUM_SAMPLES:
        raise SamplerOutputError(f"{sampler.name} holds {planned} values; an audit needs at least {MINIMUM_SAMPLES}")

    root = KeyedStream.from_seed(seed).child("audit")
    spread = root.child("atoms").numpy()
    names = list(tests) if tests is not None else list(registry.plugins("tests"))
    battery: dict[str, Test] = {n: registry.load("tests", n)(claim, root.child("test", n)) for n in names}
    origins: list[PluginOrigin] = [registry.plugin("tests", n).origin for n in names]

    drawn, dims, late = 0, set[int](), ""
    for index, call in enumerate(plan):
        left = started + time_limit - time.monotonic()
        try:
            if left <= 0:
                raise SamplerTimeoutError(f"{sampler.name}: the time limit of {time_limit:g} s was reached")
            values = sampler.draw(call.n, call.d, timeout=left)
        except SamplerTimeoutError as error:
            if drawn < MINIMUM_SAMPLES:
                raise
            late = str(error)
            break
        block = SampleBlock(index, values, claim=claim, spread=spread)
        for test in battery.values():
            test.update(block)
        drawn += values.size
        dims.add(call.d)
        if progress is not None:
            progress(drawn, planned)

    share = alpha / len(battery)
    evidence: dict[str, tuple[str, Evidence]] = {
        name: (test.looks_at, test.evidence(alpha=share)) for name, test in battery.items()
    }
    results, blind = judge(evidence, alpha=alpha)
    verdict, reason = _verdict([t.name for t in results if t.finding], late, drawn, planned)
    return AuditResult(
        verdict=verdict,
        reason=reason,
        sampler=sampler.name,
        claim=str(claim),
        alpha=alpha,
        tests=results,
        samples=drawn,
        samples_requested=samples,
        dims=tuple(sorted(dims)),
        seconds=time.monotonic() - started,
        cannot_rule_out=(*never_excluded(claim, tuple(dims)), *blind) if verdict == "no-finding" else (),
        provenance=collect(seed=seed, plugins=origins),
    )


def _verdict(found: list[str], late: str, drawn: int, planned: int) -> tuple[Verdict, str]:
    if found:
        return "finding", f"{', '.join(found)}: contradict{'s' if len(found) == 1 else ''} the claim"
    if late:
        return "inconclusive", f"{late}; {drawn:,} of {planned:,} values were drawn and show nothing"
    return "no-finding", "nothing that was looked at contradicts the claim"
