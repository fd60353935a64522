"""The way through an audit of real training steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import numpy as np

from dpaudit.audit.options import check_alpha
from dpaudit.errors import UsageError
from dpaudit.options import Option, from_keywords
from dpaudit.provenance import collect
from dpaudit.ranks import Ranks
from dpaudit.stats import binomial_two_sided, holm
from dpaudit.step_audit.checks import LOOKS_AT, Outcome, Releases
from dpaudit.step_audit.observe import Observed, Steps, observe
from dpaudit.step_audit.oracle import CLIPPED, Oracle
from dpaudit.step_audit.restore import short_waits
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
        for name, value in vars(self).items():
            if name != "alpha" and value is not None and not (value > 0 and math.isfinite(value)):
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

    def begin() -> tuple[Steps, float, float]:
        if not hasattr(model, "named_parameters"):
            raise UsageError(f"model={type(model).__name__}: give the module that the step trains")
        if optimizer is None and options.learning_rate is None:
            raise UsageError("learning_rate=None: give it, or the optimizer")
        steps = Steps(model, optimizer, step, options.learning_rate)
        if engine is not None and not steps.accountants:
            steps.accountants.append(engine.accountant)
        multiplier = steps.claimed("noise_multiplier", options.noise_multiplier)
        return steps, multiplier, steps.claimed("max_grad_norm", options.max_grad_norm)

    limit = keywords.get("time_limit")
    limit = min(limit, 1e8) if isinstance(limit, (int, float)) and limit > 0 else 60
    # whoever waits in vain for a process that failed must still hear why
    them = Ranks.here(limit=timedelta(seconds=2 * limit + 5))
    options = them.together("options", lambda: from_keywords(StepOptions, keywords))
    steps, multiplier, bound = them.together("the audit", begin)
    same = repr((options, multiplier, bound, [(n, p.shape) for n, p in steps.held.items()]))
    if len(set(them.exchange(same.encode))) > 1:
        raise UsageError("options: they, or the models, differ between processes; make equal")
    with short_waits(limit), steps.watched() as saved:
        oracle = them.together("the plain model", lambda: Oracle(steps, loss, bound))
        batch = them.together("loss", lambda: oracle.outlying(batch))
        them.together("step", lambda: steps.repeat(options.repeats, batch, saved))
        seen = observe(steps, them)
        oracle.add_up(batch, seen, them)
    return _Audit(options, multiplier, bound, steps, seen, oracle).result()


@dataclass(frozen=True, eq=False)
class _Audit:
    """What was claimed, and what was seen."""

    options: StepOptions
    multiplier: float
    bound: float
    steps: Steps
    seen: Observed
    oracle: Oracle

    def result(self) -> StepResult:
        """The verdict: α is split by Holm's method; what is certain (p = 0) takes no share."""
        outcomes, rows, alpha = list(self._outcomes()), [], self.options.alpha
        for one, p in zip(outcomes, holm([one.p for one in outcomes]), strict=True):
            finding = p <= alpha
            row = one._asdict() if finding else one._asdict() | {"effect": "", "cause": ""}
            looks = LOOKS_AT[one.name]
            row |= {"p_adjusted": p, "looks_at": looks, "finding": finding, "parts": {}}
            rows.append(TestResult(**row))
        verdict: Verdict = "finding" if any(row.finding for row in rows) else "no-finding"
        seeds = [str(seed) for seed in self.seen.seeds if seed < 2**32 or seed == _DEFAULT_SEED]
        note = (
            f"Generators are seeded with {', '.join(seeds)}: whoever guesses that can compute "
            "noise drawn from them. Leave the seed to the operating system."
        )
        links = self.steps.links
        return StepResult(
            verdict=verdict,
            optimizer=type(links[0]).__name__ if links else "a loop without an optimizer",
            alpha=alpha,
            tests=tuple(rows),
            steps=self.options.repeats,
            processes=len(self.seen.layouts),
            records=self.oracle.records,
            parameters=sum(p.numel() for p in self.steps.held.values()),
            sigma=self.multiplier * self.bound,
            notes=(note,) if seeds else (),
            cannot_rule_out=self._spots() if verdict == "no-finding" else (),
            provenance=collect(seed="the user's own random state", plugins=()),
        )

    def _outcomes(self) -> Iterator[Outcome]:
        steps, seen, oracle, options = self.steps, self.seen, self.oracle, self.options
        sigma, processes = self.multiplier * self.bound, len(seen.layouts)
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
            bound=self.bound,
            same=seen.equal_states,
            seeds=seen.seeds,
            units=() if steps.low_gradients else (1.0, sigma, sigma / divisor),
        )
        yield from releases.sums(tolerance=_ROUNDING[steps.low_precision])
        yield from self._counted(divisor, processes)

    def _counted(self, divisor: float, processes: int) -> Iterator[Outcome]:
        """What the accountant counts on against what happened in one step."""
        rate, data = self.options.sample_rate, self.options.data_records
        records = self.oracle.records
        if self.steps.counted is not None:
            told, own, steps = self.steps.counted
            rate = own if rate is None else rate
            effect = f"noise multiplier {told:.4g} is counted, {self.multiplier:.4g} is claimed"
            p = float(steps and told <= self.multiplier * (1 + 1e-6))
            yield Outcome("accountant", p, effect if steps else "the step is not counted")
        if data is None or rate is None:
            return
        share = (divisor if divisor > 1 else records) / data
        factor = share / rate
        off = divisor > 1 and abs(factor - 1) > 0.1
        p = 0.0 if off else binomial_two_sided(records, data, min(1.0, rate))
        wrong = min(abs(factor / processes - 1), abs(factor * processes - 1)) < 0.1 < processes - 1
        cause = f"the number of processes, {processes}, is left out or counted twice" * wrong
        effect = f"{share:.3g} of the records are in a batch, {rate:.3g} is counted on"
        yield Outcome("sample rate", p, effect, cause, factor)

    def _spots(self) -> tuple[BlindSpot, ...]:
        """What this audit does not look at, or looked at with too little power."""
        options, oracle, bound = self.options, self.oracle, self.bound
        size = float(np.linalg.norm(oracle.sums[CLIPPED]))
        errors = size * options.repeats**0.5 / (self.multiplier * bound)
        no_rate = self.steps.counted is None and options.sample_rate is None
        spots = {
            "no clipping": f"the largest gradient has norm {oracle.largest:.3g}, max_grad_norm is "
            f"{bound:.3g}: give a batch with larger gradients" * (oracle.largest <= 2 * bound),
            "a step that does not use the gradients": f"the clipped sum is {errors:.2g} standard "
            "errors long: give more records or repeats" * (errors < 6),
            "a wrong sample rate": "give data_records=, and engine= or sample_rate="
            * (options.data_records is None or no_rate),
            "noise of short precision": "the gradients themselves are of half precision"
            * self.steps.low_gradients,
        }
        return tuple(
            BlindSpot(test="an audit of a step", flaw=flaw, size=None, unit="", says=says)
            for flaw, says in (_OUTSIDE | spots).items()
            if says
        )
