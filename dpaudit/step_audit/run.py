"""The way through an audit of real training steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from dpaudit.audit.options import check_alpha
from dpaudit.errors import UsageError
from dpaudit.options import Option
from dpaudit.provenance import collect
from dpaudit.stats import holm
from dpaudit.step_audit.checks import Outcome, accountant_outcomes, noise_outcomes, sum_outcomes
from dpaudit.step_audit.observe import Observed, Steps, observe
from dpaudit.step_audit.oracle import CLIPPED, Gradients, Oracle, clipped_sums, with_outlier
from dpaudit.step_audit.ranks import Ranks, ranks
from dpaudit.step_audit.result import StepResult
from dpaudit.types import BlindSpot, TestResult, Verdict

__all__ = ["StepOptions", "audit_step"]

_LEAST = 8
_ROUNDING = {False: 0.01, True: 0.05}  # in float32, and where half precision is involved


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How real steps of a training loop are audited.

    Raises:
        UsageError: an option is out of range.
    """

    noise_multiplier: Annotated[float | None, Option("The claimed one; an Opacus optimizer's.")] = (
        None
    )
    max_grad_norm: Annotated[float | None, Option("The claimed one; an Opacus optimizer's.")] = None
    divisor: Annotated[
        float | None,
        Option("Divides the noisy sum over all processes; Opacus' own, or the batch's records."),
    ] = None
    data_records: Annotated[int | None, Option("Records in the data set, for the rate.")] = None
    sample_rate: Annotated[float | None, Option("The accountant's; by default as counted.")] = None
    learning_rate: Annotated[float | None, Option("Of a step without a torch optimizer.")] = None
    repeats: Annotated[int, Option("Steps taken, an even number.")] = 32
    alpha: Annotated[float, Option("Probability of a finding against an honest one.")] = 0.01
    time_limit: Annotated[float, Option("Seconds a process waits for others, in each call.")] = 60

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        for name in ("noise_multiplier", "max_grad_norm", "divisor", "learning_rate", "time_limit"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise UsageError(f"{name}={value}: must be a finite number above 0")
        if self.repeats < _LEAST or self.repeats % 2:
            raise UsageError(f"repeats={self.repeats}: must be an even number, at least {_LEAST}")
        if self.sample_rate is not None and not 0 < self.sample_rate <= 1:
            raise UsageError(f"sample_rate={self.sample_rate}: must lie in (0, 1]")
        if self.data_records is not None and self.data_records < 1:
            raise UsageError(f"data_records={self.data_records}: must be at least 1")


def audit_step(
    optimizer: Any,
    *,
    step: Callable[[Any], object],
    batch: Any,
    model: Any,
    loss: Callable[[Any, Any], Any] | None,
    engine: Any,
    options: StepOptions,
) -> StepResult:
    """Audit real steps; see :func:`dpaudit.audit_optimizer`.

    Raises:
        UsageError: what cannot be audited, or arguments that differ between processes.
        SamplerError: the step raised on a process, or a process did not come or answer in time.
    """
    with ranks(options.time_limit) as them:
        steps = them.together("the audit", lambda: _begin(optimizer, model, step, engine, options))
        mine = (repr(options), {name: tuple(p.shape) for name, p in steps.held.items()})
        if len({repr(one) for one in them.gather(mine)}) > 1:
            raise UsageError(
                "options: differ between processes, or their models do; give all the same"
            )
        with steps.watched() as saved:
            gradients = them.together("the plain model", lambda: Gradients(steps, loss))
            bound = _claim(steps, options)[1]
            batch = them.together("loss", lambda: with_outlier(gradients, batch, bound))
            for _ in range(options.repeats):
                them.together("step", lambda: steps.take(batch, saved))
            saved.put_back()
            seen = them.together("the audit", lambda: observe(steps, them))
            places = [(b.name, b.layout) for b in seen.blocks]
            oracle = them.together(
                "loss",
                lambda: clipped_sums(steps, gradients, batch, bound, places, seen.layouts, them),
            )
        return _conclude(steps, seen, oracle, them, options)


def _begin(optimizer: Any, model: Any, step: Any, engine: Any, options: StepOptions) -> Steps:
    if not hasattr(model, "named_parameters"):
        raise UsageError(f"model={type(model).__name__}: give the torch module that step trains")
    if not callable(step):
        raise UsageError(f"step={type(step).__name__}: give a function that takes one logical step")
    if optimizer is None and options.learning_rate is None:
        raise UsageError("learning_rate=None: needed without an optimizer, for a step's gradient")
    steps = Steps(model, optimizer, step, options.learning_rate or 1.0)
    accountant = getattr(engine, "accountant", None)
    if accountant is not None and not any(a is accountant for a in steps.accountants):
        steps.accountants.insert(0, accountant)
    _claim(steps, options)
    return steps


def _claim(steps: Steps, options: StepOptions) -> tuple[float, float]:
    """The claimed noise multiplier and clipping bound."""
    values = []
    for name in ("noise_multiplier", "max_grad_norm"):
        own = next((getattr(o, name) for o in steps.links if hasattr(o, name)), None)
        value = getattr(options, name) if getattr(options, name) is not None else own
        if value is None or isinstance(value, (list, tuple)) or not float(value) > 0:
            raise UsageError(f"{name}={value}: give the claimed one, a number above 0")
        values.append(float(value))
    return values[0], values[1]


def _conclude(
    steps: Steps, seen: Observed, oracle: Oracle, them: Ranks, options: StepOptions
) -> StepResult:
    multiplier, bound = _claim(steps, options)
    sigma = multiplier * bound
    divisor = options.divisor or seen.divided_by or float(oracle.records)
    tests = [Outcome(name, name, 0.0, effect, cause) for name, effect, cause in seen.certain]
    found, noise = noise_outcomes(
        seen, oracle, sigma=sigma, divisor=divisor, alpha=options.alpha, bound=bound
    )
    tests += found
    tolerance = _ROUNDING[seen.low_precision]
    tests += sum_outcomes(noise, seen, oracle, sigma=sigma, tolerance=tolerance)
    tests += accountant_outcomes(
        seen,
        records=oracle.records,
        data_records=options.data_records,
        rate=options.sample_rate,
        multiplier=multiplier,
        divisor=divisor,
    )
    rows = _rows(tests, options.alpha)
    verdict: Verdict = "finding" if any(row.finding for row in rows) else "no-finding"
    name = type(steps.links[0]).__name__ if steps.links else "a loop without an optimizer"
    return StepResult(
        verdict=verdict,
        optimizer=name,
        alpha=options.alpha,
        tests=rows,
        steps=options.repeats,
        processes=them.size,
        records=oracle.records,
        parameters=sum(p.numel() for p in steps.held.values()),
        sigma=sigma,
        notes=_notes(seen),
        cannot_rule_out=() if verdict == "finding" else _spots(seen, oracle, sigma, bound, options),
        provenance=collect(seed="the user's own random state", plugins=()),
        reproduce="dpaudit.audit_optimizer(optimizer, step=step, batch=batch, model=model, …)",
    )


def _rows(tests: list[Outcome], alpha: float) -> tuple[TestResult, ...]:
    """Tests in their order, α split by Holm's method; what is certain (p = 0) takes no share."""
    adjusted = holm([test.p for test in tests])
    return tuple(
        TestResult(
            name=test.name,
            p=test.p,
            p_adjusted=p,
            statistic=test.statistic,
            looks_at=test.looks_at,
            effect=test.effect if p <= alpha else "",
            finding=p <= alpha,
            parts={},
            cause=test.cause if p <= alpha else "",
        )
        for test, p in zip(tests, adjusted, strict=True)
    )


def _notes(seen: Observed) -> tuple[str, ...]:
    """Seeds that somebody could guess: not findings by themselves."""
    small = [seed for seed in seen.seeds if seed < 2**32 or seed == 67280421310721]
    if not small:
        return ()
    named = ", ".join(f"{seed} (torch's default)" if seed >= 2**32 else str(seed) for seed in small)
    return (
        f"The noise comes from generators seeded with {named}: whoever reads or guesses the seed "
        "can compute the noise. Leave the seed to the operating system.",
    )


def _spots(
    seen: Observed, oracle: Oracle, sigma: float, bound: float, options: StepOptions
) -> tuple[BlindSpot, ...]:
    """What this audit does not look at, or looked at with too little power."""
    spots = [
        ("batches that are not drawn as the accountant assumes", "the data loader is not looked at; see audit_loader"),
        ("what leaves the training elsewhere", "logs, metrics, a loss that is published"),
        ("noise that is predictable from a seed", "only small seeds, freshly set, are tried on CPU noise"),
        ("states other than this one", "one batch, one set of weights and one world size were tried"),
    ]  # fmt: skip
    if oracle.largest <= 2 * bound:
        spots.append(("no clipping", f"the largest gradient has norm {oracle.largest:.3g}, the bound is {bound:.3g}: clipping was not exercised; give a batch with larger gradients"))  # fmt: skip
    power = float((oracle.sums[CLIPPED] ** 2).sum()) ** 0.5 / sigma * options.repeats**0.5
    if power < 6:
        spots.append(("a step that does not use the gradients", f"the clipped sum is {power:.2g} standard errors of its mean release; give more records or repeats"))  # fmt: skip
    if seen.counted is None and options.sample_rate is None or options.data_records is None:
        spots.append(("a sample rate other than the accountant's", "give engine= or sample_rate=, and data_records="))  # fmt: skip
    if seen.low_gradients:
        spots.append(("noise of short precision", "the gradients themselves are of half precision"))
    return tuple(
        BlindSpot(test="an audit of a step", flaw=flaw, size=None, unit="", says=says)
        for flaw, says in spots
    )
