"""A probing attack: several pairs of neighbours that it brings itself, one audit each, judged together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from dpaudit.audit.epsilon.attacks import Named, origins, probes
from dpaudit.audit.epsilon.judge import Claimed
from dpaudit.audit.epsilon.pair import Progress, audit_pair, check
from dpaudit.audit.epsilon.verdict import at_least, verdict_of
from dpaudit.errors import SamplerError, UsageError
from dpaudit.interfaces import Mechanism
from dpaudit.provenance import collect
from dpaudit.types import Interval, MechanismResult, TestResult

__all__ = ["run_probes"]


def run_probes(
    mechanism: Mechanism,
    *,
    attack: Named,
    claimed: Claimed,
    seed: str,
    samples: int,
    alpha: float,
    time_limit: float,
    real_numbers: bool = False,
    reach: Named | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at each pair that the ``attack`` brings: ``samples`` releases at each of its values.

    Every pair gets an equal share of α and of what is left of the time limit. The neighbours and the curve are those of
    the pair with the largest ε; the bounds are the largest and the tests all there are, each with what it probes in
    brackets. A pair that the mechanism refuses is told as advice, and a pass is then *inconclusive*.

    Formal guarantee: see :class:`~dpaudit.types.MechanismResult`; over all pairs together.

    Raises:
        UsageError: options out of range, or the mechanism refuses all pairs.
        SamplerError: the mechanism failed at all pairs.
        DpauditError: the attack failed.
    """
    check(claimed, alpha=alpha, time_limit=time_limit, samples=samples)
    started = time.monotonic()
    pairs = probes(attack)
    done: list[tuple[str, MechanismResult]] = []
    refused: list[tuple[str, UsageError | SamplerError]] = []
    for i, (says, first, second) in enumerate(pairs):
        left = started + time_limit - time.monotonic()
        try:
            result = audit_pair(
                mechanism,
                neighbours=(first, second),
                claimed=claimed,
                seed=f"{seed}/probe/{i}",
                samples=samples,
                alpha=alpha / len(pairs),
                time_limit=max(left, 1e-3) / (len(pairs) - i),
                real_numbers=real_numbers,
                reach=reach,
                progress=None if progress is None else _part(progress, i, len(pairs)),
            )
        except (UsageError, SamplerError) as error:
            refused.append((says, error))
        else:
            done.append((says, result))
    if not done:
        raise refused[0][1]
    tests = tuple(
        sorted(
            (_of_probe(test, says, len(pairs)) for says, result in done for test in result.tests),
            key=lambda t: (t.advisory, t.p_adjusted, t.name),
        )
    )
    late = [f"{says}: {result.reason}" for says, result in done if result.verdict == "inconclusive"]
    late += [f"{says}: {error}" for says, error in refused]
    verdict, reason = verdict_of(tests, "; ".join(late))
    own = str(getattr(mechanism, "advice", ""))
    _, best = max(done, key=lambda d: d[1].epsilon.low)
    return replace(
        best,
        verdict=verdict,
        reason=reason,
        method=f"{len(pairs)} pairs of neighbours",
        attack=attack.text,
        alpha=alpha,
        epsilon=at_least(best.epsilon.low, alpha, best.epsilon.method),
        delta=_largest([result.delta for _, result in done], alpha),
        mu=_largest([result.mu for _, result in done], alpha),
        tests=tests,
        samples=sum(result.samples for _, result in done),
        samples_requested=2 * samples * len(pairs),
        seconds=time.monotonic() - started,
        advice=tuple(
            [*filter(None, [own])]
            + [f"{says}: {advice}" for says, result in done for advice in result.advice if advice != own]
            + [f"{says}: not audited ({error})" for says, error in refused]
        ),
        cannot_rule_out=best.cannot_rule_out if verdict == "no-finding" else (),
        provenance=collect(seed=seed, plugins=origins(attack, reach)),
    )


def _of_probe(test: TestResult, says: str, pairs: int) -> TestResult:
    return replace(test, name=f"{test.name} ({says})", p_adjusted=min(1.0, pairs * test.p_adjusted))


def _largest(bounds: Sequence[Interval | None], alpha: float) -> Interval | None:
    known = [bound for bound in bounds if bound is not None]
    best = max(known, key=lambda bound: bound.low, default=None)
    return None if best is None else at_least(best.low, alpha, best.method)


def _part(progress: Progress, i: int, of: int) -> Progress:
    """The progress of the whole, from that of the ``i``-th of equal parts."""
    return lambda done, total: progress(i * total + done, of * total)
