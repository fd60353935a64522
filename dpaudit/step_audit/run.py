"""The way through an audit of real training steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from dpaudit.audit.options import check_alpha
from dpaudit.errors import UsageError
from dpaudit.options import Option, from_keywords
from dpaudit.provenance import collect
from dpaudit.stats import holm
from dpaudit.step_audit.checks import LOOKS_AT, Outcome, Releases, accountant
from dpaudit.step_audit.observe import Observed, Steps, observe
from dpaudit.step_audit.oracle import CLIPPED, Oracle
from dpaudit.step_audit.ranks import ranks
from dpaudit.step_audit.restore import Saved
from dpaudit.step_audit.result import StepResult
from dpaudit.types import BlindSpot, TestResult, Verdict

__all__ = ["StepOptions", "audit_step"]

_ROUNDING = {False: 0.01, True: 0.05}
"""Rounding of a sum, relative: in float32, and where half precision is involved."""
_DEFAULT_SEED = 67280421310721
_OUTSIDE = {
    "batches that are not drawn as the accountant assumes": "the loader: see audit_loader",
    "what leaves the training elsewhere": "logs, metrics, buffers, a loss that is published",
    "noise that follows from a seed": "only small seeds, freshly set, are tried, on CPU noise",
    "other states": "one batch, one set of weights and one number of processes were looked at",
}


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How real steps of a training loop are audited.

    Raises:
        UsageError: an option is out of range.
    """

    noise_multiplier: Annotated[float | None, Option("The claimed one; Opacus' own.")] = None
    max_grad_norm: Annotated[float | None, Option("The claimed one; Opacus' own.")] = None
    divisor: Annotated[
        float | None, Option("Divides the sum of all processes; Opacus' own, or records.")
    ] = None
    data_records: Annotated[int | None, Option("Records in the data set.")] = None
    sample_rate: Annotated[float | None, Option("The accountant's; by default its own.")] = None
    learning_rate: Annotated[float | None, Option("Of a loop without an optimizer.")] = None
    repeats: Annotated[int, Option("Steps taken, an even number.")] = 32
    alpha: Annotated[float, Option("Probability of a finding against an honest one.")] = 0.01
    time_limit: Annotated[float, Option("Seconds that a process waits for another.")] = 60

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        names = ("noise_multiplier", "max_grad_norm", "divisor", "data_records", "sample_rate",
                 "learning_rate", "time_limit")  # fmt: skip
        for name in names:
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise UsageError(f"{name}={value}: must be a finite number above 0")
        if self.repeats < 8 or self.repeats % 2:
            raise UsageError(f"repeats={self.repeats}: must be an even number, at least 8")


def audit_step(
    optimizer: Any,
    *,
    step: Callable[[Any], object],
    batch: Any,
    model: Any,
    loss: Callable[[Any, Any], Any] | None,
    engine: Any,
    keywords: Mapping[str, Any],
) -> StepResult:
    """Audit real steps; see :func:`dpaudit.audit_optimizer`.

    Raises:
        UsageError: what cannot be audited, or arguments that differ between processes.
        SamplerError: the step raised on a process, or a process did not come or answer in time.
    """

    def begin() -> Steps:
        if not hasattr(model, "named_parameters"):
            raise UsageError(f"model={type(model).__name__}: give the module that the step trains")
        if optimizer is None and options.learning_rate is None:
            raise UsageError("learning_rate=None: give it, or the optimizer")
        steps = Steps(model, optimizer, step, options.learning_rate)
        if engine is not None and not steps.accountants:
            steps.accountants.append(engine.accountant)
        _claim(steps, options)
        return steps

    def repeat(saved: Saved, batch: Any) -> None:
        for _ in range(options.repeats):
            steps.take(batch, saved)
        saved.put_back()

    limit = keywords.get("time_limit") or StepOptions.time_limit
    with ranks(limit if isinstance(limit, (int, float)) and limit > 0 else 60) as them:
        options = them.together("options", lambda: from_keywords(StepOptions, keywords))
        steps = them.together("the audit", begin)
        shapes = {name: tuple(p.shape) for name, p in steps.held.items()}
        if len({repr(one) for one in them.gather((options, shapes))}) > 1:
            raise UsageError("options: they, or the models, differ between processes; make equal")
        bound = _claim(steps, options)[1]
        with steps.watched() as saved:
            oracle = them.together("the plain model", lambda: Oracle(steps, loss, bound))
            batch = them.together("loss", lambda: oracle.outlying(batch))
            them.together("step", lambda: repeat(saved, batch))
            seen = them.together("the audit", lambda: observe(steps, them))
            them.together("loss", lambda: oracle.add_up(batch, seen, them))
        return _conclude(steps, seen, oracle, options)


def _claim(steps: Steps, options: StepOptions) -> tuple[float, float]:
    """The claimed noise multiplier and clipping bound."""
    values = []
    for name in ("noise_multiplier", "max_grad_norm"):
        own = [getattr(o, name) for o in steps.links if hasattr(o, name)]
        value = getattr(options, name) or (own[0] if own else None)
        if value is None or isinstance(value, (list, tuple)) or not float(value) > 0:
            raise UsageError(f"{name}={value}: give the claimed one, a number above 0")
        values.append(float(value))
    return values[0], values[1]


def _outcomes(
    steps: Steps, seen: Observed, oracle: Oracle, options: StepOptions
) -> Iterator[Outcome]:
    multiplier, bound = _claim(steps, options)
    sigma, processes = multiplier * bound, len(seen.layouts)
    divisor = options.divisor or steps.divisor(processes) or float(oracle.records)
    yield from (Outcome(name, 0.0, effect, cause) for name, effect, cause in seen.certain)
    releases = Releases(
        seen.parts,
        seen.x * (divisor / sigma),
        {way: s / sigma for way, s in oracle.sums.items()},
        processes=processes,
        micro=max(1, steps.micro_steps),
    )
    yield from releases.noise(
        alpha=options.alpha,
        bound=bound,
        same=seen.equal_states,
        seeds=seen.seeds,
        units=() if steps.low_gradients else (1.0, sigma, sigma / divisor),
    )
    yield from releases.sums(tolerance=_ROUNDING[steps.low_precision])
    yield from accountant(
        steps.counted,
        multiplier=multiplier,
        rate=options.sample_rate,
        records=oracle.records,
        divisor=divisor,
        data_records=options.data_records,
        processes=processes,
    )


def _conclude(steps: Steps, seen: Observed, oracle: Oracle, options: StepOptions) -> StepResult:
    """The verdict: α is split by Holm's method; what is certain (p = 0) takes no share."""
    outcomes, rows = list(_outcomes(steps, seen, oracle, options)), []
    for one, p in zip(outcomes, holm([one.p for one in outcomes]), strict=True):
        finding = p <= options.alpha
        row = TestResult(
            name=one.name,
            p=one.p,
            p_adjusted=p,
            statistic=one.statistic,
            looks_at=LOOKS_AT[one.name],
            effect=one.effect * finding,
            finding=finding,
            parts={},
            cause=one.cause * finding,
        )
        rows.append(row)
    verdict: Verdict = "finding" if any(row.finding for row in rows) else "no-finding"
    multiplier, bound = _claim(steps, options)
    seeds = [str(seed) for seed in seen.seeds if seed < 2**32 or seed == _DEFAULT_SEED]
    note = (
        f"Generators are seeded with {', '.join(seeds)}: whoever guesses that can compute noise "
        "drawn from them. Leave the seed to the operating system."
    )
    return StepResult(
        verdict=verdict,
        optimizer=type(steps.links[0]).__name__ if steps.links else "a loop without an optimizer",
        alpha=options.alpha,
        tests=tuple(rows),
        steps=options.repeats,
        processes=len(seen.layouts),
        records=oracle.records,
        parameters=sum(p.numel() for p in steps.held.values()),
        sigma=multiplier * bound,
        notes=(note,) if seeds else (),
        cannot_rule_out=_spots(steps, oracle, options) if verdict == "no-finding" else (),
        provenance=collect(seed="the user's own random state", plugins=()),
    )


def _spots(steps: Steps, oracle: Oracle, options: StepOptions) -> tuple[BlindSpot, ...]:
    """What this audit does not look at, or looked at with too little power."""
    spots, (multiplier, bound) = dict(_OUTSIDE), _claim(steps, options)
    if oracle.largest <= 2 * bound:
        spots["no clipping"] = (
            f"the largest gradient has norm {oracle.largest:.3g}, max_grad_norm is {bound:.3g}: "
            "give a batch with larger gradients"
        )
    size = float(np.linalg.norm(oracle.sums[CLIPPED])) if oracle.sums else 0.0
    errors = size * options.repeats**0.5 / (multiplier * bound)
    if errors < 6:
        spots["a step that does not use the gradients"] = (
            f"the clipped sum is {errors:.2g} standard errors long: give more records or repeats"
        )
    if options.data_records is None or (steps.counted is None and options.sample_rate is None):
        spots["a wrong sample rate"] = "give data_records=, and engine= or sample_rate="
    if steps.low_gradients:
        spots["noise of short precision"] = "the gradients themselves are of half precision"
    return tuple(
        BlindSpot(test="an audit of a step", flaw=flaw, size=None, unit="", says=says)
        for flaw, says in spots.items()
    )
