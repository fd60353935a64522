"""One step of an Opacus optimizer, audited in one line: its noise, its clipping, its ε."""

from __future__ import annotations

import dataclasses
import math
import textwrap
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpaudit import wording
from dpaudit.accounting import gaussian_epsilon
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.request import MechanismRequest
from dpaudit.audit.mechanism.run import audit_subject as audit_mechanism_subject
from dpaudit.audit.options import (
    MINIMUM_SAMPLES,
    AuditOptions,
    DataOptions,
    MechanismOptions,
    Progress,
    check_alpha,
    count_of,
    fresh_seed,
)
from dpaudit.audit.progress import notebook_bar
from dpaudit.audit.request import NoiseRequest
from dpaudit.audit.result import AuditResult, MechanismResult, with_command
from dpaudit.audit.run import SEARCH_SECONDS, audit_subject
from dpaudit.codec import to_dict
from dpaudit.errors import UsageError
from dpaudit.options import Option, from_keywords, takes
from dpaudit.report import Check, Column, Described, Report, Section, Table
from dpaudit.targets.callables import Subject
from dpaudit.types import BlindSpot, Verdict

if TYPE_CHECKING:
    import torch

    from dpaudit.queries.opacus.dry_run import DryRun
    from dpaudit.step_audit.result import StepResult

__all__ = [
    "ClippingResult",
    "OptimizerOptions",
    "OptimizerResult",
    "assert_private_step",
    "audit_optimizer",
    "describe",
]

Array = npt.NDArray[np.float64]

_MOST_COORDINATES = 65_536
_LEAST_STEPS = 64
_RELEASES = 20_000
_RELEASE_SECONDS = 30.0
_MOST_BLOCKS = 16
_MOST_NUMBERS = 1 << 27  # of per-sample gradients: 512 MiB
_ROUNDING = 0.01
"""By which part of the bound a clipped gradient may exceed it, for rounding.

Opacus sums squares in the parameters' dtype: in float32 a norm of 9 million numbers is 0.4 % off.
"""
_FACTORS = (0.5, 1.0, 10.0, 1e4)
"""Norms of the added gradient, in clipping bounds."""
_MOST_DIRECTIONS = 32
_FAR = 100.0
"""Norm of the added gradient in clipping bounds, where ε is looked at."""
_WRAP = textwrap.TextWrapper(90, subsequent_indent=4 * " ", break_long_words=False)
_SEVERITY: tuple[Verdict, ...] = ("no-finding", "inconclusive", "finding")

_OUTSIDE = tuple(
    BlindSpot(test="an audit of a step", flaw=flaw, size=None, unit="", says=says)
    for flaw, says in (
        (
            "per-sample gradients that mix records",
            "the audit brings its own gradients; whether the model's hooks compute one for each "
            "record alone is not looked at (opacus.validators does)",
        ),
        (
            "batches that are not drawn as the accountant assumes",
            "the accountant's ε counts on Poisson sampling; the data loader is not looked at",
        ),
        (
            "what leaves the training elsewhere",
            "logs, metrics, buffers, a loss that is published: only what the inner optimizer is "
            "handed is looked at",
        ),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippingResult:
    """How far one more record moves the sum of clipped gradients, without noise.

    ``largest`` is the largest distance seen over ``tried`` gradients of up to 10,000 × ``bound``,
    along single parameters and all of them; ``by`` says which gradient it was. Up to 1 % above
    ``bound`` counts as rounding of a norm in float32. Nothing here is random: a finding is certain.
    Not claimed: that no other gradient moves the sum further.
    """

    verdict: Verdict
    bound: float
    largest: float
    tried: int
    by: str

    def __repr__(self) -> str:
        moved = f"moved {self.largest:.4g}, bound {self.bound:.4g}"
        return f"<ClippingResult: {self.verdict}, {moved}, {self.tried} gradients>"

    @property
    def sentence(self) -> str:
        """The result in words."""
        if self.verdict == "finding":
            return (
                f"one record moves the clipped sum by {self.largest:.4g}, "
                f"max_grad_norm is {self.bound:.4g} ({self.by})"
            )
        return (
            f"{self.tried} gradients move the clipped sum by at most {self.largest:.4g} of "
            f"max_grad_norm {self.bound:.4g}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerResult(Described):
    """The verdict on one step of an optimizer.

    ``noise`` audits what a step adds to gradients of zero, ``clipping`` how far one record moves
    the sum, ``step`` the ε of a step between a batch and the same batch with one more record.
    ``step_epsilon`` is the ε of one such step at ``delta`` by the claimed noise; ``run_epsilon`` is
    the accountant's for the whole run so far, None without an engine. ``note`` relates the two.

    Guarantee: for an optimizer that clips and adds Gaussian noise as claimed, in real numbers, the
    verdict is ``finding`` with probability at most ``alpha``. Not claimed: that ``no-finding``
    means private; see ``cannot_rule_out``. Noise with a secret direction, such as a Gaussian
    pancake's, is not found.
    """

    kind: ClassVar[str] = "optimizer"

    verdict: Verdict
    optimizer: str
    alpha: float
    noise: AuditResult
    clipping: ClippingResult
    step: MechanismResult
    delta: float
    step_epsilon: float
    run_epsilon: float | None
    note: str
    seed: str

    @property
    def reproduce(self) -> str:
        """The call that repeats this audit."""
        return f"dpaudit.audit_optimizer(optimizer, alpha={self.alpha:g}, seed={self.seed!r}, …)"

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        named = [name for name, part in self._parts.items() if part.verdict == self.verdict]
        if self.verdict == "no-finding":
            return (
                f"No finding: nothing contradicts the noise, the clipping and the ε of a step of "
                f"{self.optimizer}."
            )
        if self.verdict == "inconclusive":
            reasons = "; ".join(
                f"{name}: {part.reason}"
                for name, part in self._parts.items()
                if name in named and not isinstance(part, ClippingResult)
            )
            return f"Inconclusive: {reasons}; this says nothing about {self.optimizer} either way."
        names = wording.listed(named, word="and")
        return f"Finding: a step of {self.optimizer} is not as claimed: {names}."

    @property
    def _parts(self) -> dict[str, AuditResult | ClippingResult | MechanismResult]:
        return {"noise": self.noise, "clipping": self.clipping, "ε of a step": self.step}

    @property
    def cannot_rule_out(self) -> tuple[BlindSpot, ...]:
        """What a pass does not exclude; empty for a finding."""
        if self.verdict != "no-finding":
            return ()
        spots = (*_OUTSIDE, *self.noise.cannot_rule_out, *self.step.cannot_rule_out)
        return tuple(dict.fromkeys(spots))

    def __repr__(self) -> str:
        low = math.floor(100 * self.step.epsilon.low) / 100
        bound = f"one step: ε {self.step_epsilon:.3g} claimed, ≥ {low:g} shown"
        return f"<OptimizerResult: {self.verdict}, {self.optimizer}, {bound}>"

    def __str__(self) -> str:
        sentence = self.sentence
        if self.cannot_rule_out:
            sentence = f"{sentence.rstrip('.')}; cannot_rule_out lists what this cannot exclude."
        lines = [
            sentence,
            f"  noise: {_sentence_of(self.noise)}",
            f"  clipping: {_sentence_of(self.clipping)}",
            f"  step: {_sentence_of(self.step)}",
            f"  {self.note}",
        ]
        text = "\n".join(_WRAP.fill(line) for line in lines)
        again = f"\nTo see it again: {self.reproduce}" if self.verdict == "finding" else ""
        return text + again


def describe(result: OptimizerResult | StepResult) -> Report:
    """The report of an audit of one step of an optimizer: its three parts, or its tests."""
    if not isinstance(result, OptimizerResult):
        from dpaudit.step_audit.result import describe_step

        return describe_step(result)
    parts = {name: (part.verdict, _sentence_of(part)) for name, part in result._parts.items()}
    table = Table(
        columns=(
            Column("Part", tuple(parts)),
            Column("Verdict", tuple(verdict for verdict, _ in parts.values())),
            Column("In words", tuple(text for _, text in parts.values())),
        ),
        caption="The parts of the audit",
        marked=tuple(verdict == "finding" for verdict, _ in parts.values()),
        terminal="Parts",
    )
    outcomes = {"finding": "finding", "no-finding": "pass", "inconclusive": "error"}
    again = result.reproduce if result.verdict == "finding" else ""
    return Report(
        kind="optimizer",
        label="audit of an optimizer",
        subject=result.optimizer,
        title=f"Audit of a step of {result.optimizer}",
        verdict=result.verdict,
        headline=result.sentence,
        checks=tuple(
            Check(
                name=name,
                outcome=outcomes[verdict],  # type: ignore[arg-type]
                group="parts",
                effect=text,
                reproduce=again if verdict == "finding" else "",
            )
            for name, (verdict, text) in parts.items()
        ),
        sections=(Section(title="What was found", blocks=(table,)),),
        blind_spots=result.cannot_rule_out,
        advice=(result.note, *([f"Again: {again}"] if again else [])),
        data=to_dict(result),
        provenance=to_dict(result.noise.provenance),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerOptions:
    """How a step of an optimizer is audited.

    Raises:
        UsageError: α or the number of releases is out of range.
    """

    noise_multiplier: Annotated[float | None, Option("The claimed one; the optimizer's own.")] = (
        None
    )
    max_grad_norm: Annotated[float | None, Option("The claimed one; the optimizer's own.")] = None
    delta: Annotated[float, Option("δ of the claim about one step.")] = 1e-5
    samples: Annotated[
        int,
        Option("Values of noise.", read=partial(count_of, unit="values", example="1e6")),
    ] = 1_000_000
    releases: Annotated[
        int | None,
        Option(
            "Releases of a step at each batch.",
            read=partial(count_of, name="releases", unit="releases", example="2e4"),
        ),
    ] = None
    alpha: Annotated[float, Option("Probability of a finding against an honest one.")] = 0.01
    time_limit: Annotated[float, Option("Seconds for the noise, and for the step.")] = 300
    seed: Annotated[str, Option("Seed of the audit; random by default.", read=str)] = field(
        default_factory=fresh_seed
    )

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if self.releases is not None and self.releases < MINIMUM_SAMPLES:
            raise UsageError(f"releases={self.releases}: must be at least {MINIMUM_SAMPLES}")


@takes(OptimizerOptions)
def audit_optimizer(
    optimizer: Any,
    *,
    engine: Any = None,
    step: Callable[[Any], object] | None = None,
    batch: Any = None,
    model: Any = None,
    loss: Callable[[Any, Any], Any] | None = None,
    options: OptimizerOptions | None = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> OptimizerResult | StepResult:
    """Audit one step of an Opacus optimizer, or with ``step`` a real step of any training loop.

    **Any loop** (DDP, FSDP2, tensor parallel, LoRA, compiled, your own): ``step(batch)`` takes one
    logical step of your loop, from zeroing gradients to the optimizer's step. Call the audit on all
    processes together, each with its part of the batch; equal batches are the same records.
    ``model`` is what the step trains, ``optimizer`` what it steps with (None: the loop changes
    parameters itself, by ``learning_rate`` × the noisy gradient). ``loss(model, record)`` is the
    loss of a batch of one record, by which a plain copy of the model gives each record's gradient;
    a model that returns ``.loss``, as transformers' do, needs none. ``batch`` is a tensor, or a
    tuple, list or dictionary of tensors, one record in each row. The step runs ``repeats`` times
    from one state, dropout off, and everything is put back. What the torch optimizer is handed on
    each process is compared: repeats differ by the noise alone, their mean is the clipped sum.
    Replicas must be equal bit by bit. ``divisor`` divides the noisy sum over all processes;
    ``data_records`` is the size of the data set, for the accountant's sample rate. The result is
    the same on all processes (:class:`~dpaudit.step_audit.result.StepResult`); the options are
    those of :class:`~dpaudit.step_audit.run.StepOptions`.

    **An Opacus optimizer alone**, in one process:

    ``optimizer`` is what ``PrivacyEngine().make_private(...)`` returned: the optimizer, or all
    that it returned. The claim is N(0, σ²) with σ = ``noise_multiplier`` × ``max_grad_norm``, by
    default the optimizer's own; give what the accountant counts on, if it may be another. Three
    parts:

    - *noise*: steps at gradients of zero, ``samples`` values in all and at least 64 steps, against
      ``gaussian:sigma=σ`` (:func:`~dpaudit.audit_sampler`; of a gradient above 65,536 numbers a
      fixed choice of them, some in every parameter);
    - *clipping*: how far one record with a large gradient moves the clipped sum;
    - *step*: ``releases`` each of a batch and of the same batch with one more record, against
      (ε, ``delta``) of one step and μ = 1/noise multiplier (:func:`~dpaudit.audit_mechanism`,
      without the last bits); by default 20,000, and not below 1,000 fewer where they would take
      more than about 30 seconds. One step gives up to 16 releases, in disjoint coordinates.

    The optimizer's own code takes the steps, up to its inner optimizer, which is not called:
    parameters, gradients, the optimizer's state, the accountant and random states are afterwards as
    before (:func:`dpaudit.queries.opacus.dry_run.dry_run`). ``time_limit`` is in seconds for
    each of noise and step. α is halved between noise and step; clipping needs none. With ``engine``
    the result relates the ε of the run so far to that of one step.

    Formal guarantee: see :class:`~dpaudit.optimizers.OptimizerResult`. The ε of a step is for a
    known batch: the accountant's is for a whole run, with random batches.

    Raises:
        UsageError: not an optimizer that can be audited
            (:func:`~dpaudit.queries.opacus.dry_run.dry_run`), or an option out of range.
        SamplerError: a step raised, or returned something that is not a number.
    """
    try:
        if step is None:
            from dpaudit.queries.opacus.dry_run import dry_run
        else:
            from dpaudit.step_audit.run import audit_step
    except ModuleNotFoundError as error:
        raise UsageError(
            f"optimizer: {error.name} is not installed; pip install 'dpaudit[opacus]'"
        ) from None

    if step is not None:
        chosen = None if optimizer is None else _optimizer_of(optimizer)
        given = {"step": step, "batch": batch, "model": model, "loss": loss, "engine": engine}
        return audit_step(chosen, **given, keywords=keywords)
    options = from_keywords(OptimizerOptions, keywords, options)
    if engine is not None and not hasattr(engine, "accountant"):
        raise UsageError(f"engine={type(engine).__name__}: must be the PrivacyEngine")
    private, delta = _optimizer_of(optimizer), options.delta
    with dry_run(private, seed=options.seed) as dry:
        sigma, bound = _claimed_noise(dry, options.noise_multiplier, options.max_grad_norm)
        one_step = gaussian_epsilon(delta, sigma=sigma, sensitivity=bound)
        began = time.monotonic()
        clipping = _clipping(dry, bound)
        seconds = (time.monotonic() - began) / (clipping.tried + 1)  # of a step
        audit = _StepAudit(dry, type(private).__name__, options, progress)
        noise = audit.noise(sigma)
        claim = PrivacyClaim(one_step, delta, bound / sigma)
        released = audit.releases(claim, bound=bound, seconds=seconds)
    verdicts = {noise.verdict, clipping.verdict, released.verdict}
    run, note = _note(engine, delta=delta, multiplier=sigma / bound, one_step=one_step)
    result = OptimizerResult(
        verdict=max(verdicts, key=_SEVERITY.index),
        optimizer=audit.name,
        alpha=options.alpha,
        noise=noise,
        clipping=clipping,
        step=released,
        delta=delta,
        step_epsilon=one_step,
        run_epsilon=run,
        note=note,
        seed=options.seed,
    )
    again = result.reproduce
    return dataclasses.replace(
        result, noise=with_command(noise, again), step=with_command(released, again)
    )


@dataclass(frozen=True)
class _StepAudit:
    """The audits of a dry run's steps, each at half of α: of their noise, and of their ε."""

    dry: DryRun
    name: str
    options: OptimizerOptions
    progress: Progress | None

    @property
    def _shared(self) -> dict[str, Any]:
        options = self.options
        return {"alpha": options.alpha / 2, "seed": options.seed, "time_limit": options.time_limit}

    def noise(self, sigma: float) -> AuditResult:
        """Audit what a step adds to gradients of zero against N(0, ``sigma``²)."""
        coordinates = _coordinates(self.dry.sizes)
        dim = len(coordinates)
        request = NoiseRequest(
            claim=f"gaussian:sigma={self.dry.added(sigma):.12g}",
            options=AuditOptions(
                dim=dim,
                samples=max(_LEAST_STEPS, self.options.samples // dim) * dim,
                search_limit=SEARCH_SECONDS,
                allow_predictable=True,  # the dry run seeds torch's generator itself
                **self._shared,
            ),
        )
        subject = Subject(f"the noise of {self.name}", function=_noise(self.dry, coordinates))
        with notebook_bar(self.progress, unit="values") as bar:
            return audit_subject(subject, request, progress=bar)

    def releases(self, claim: PrivacyClaim, *, bound: float, seconds: float) -> MechanismResult:
        """Audit a step, which takes ``seconds``, with and without one more record."""
        blocks = _Blocks(self.dry.dim)
        request = MechanismRequest(
            claim=claim,
            data=DataOptions(neighbours="0,1"),
            options=MechanismOptions(
                samples=self.options.releases or _affordable_releases(seconds, blocks.count),
                real_numbers=True,
                **self._shared,
            ),
        )
        subject = Subject(f"a step of {self.name}", function=_step(self.dry, bound, blocks))
        with notebook_bar(self.progress, unit="steps") as bar:
            return audit_mechanism_subject(subject, request, progress=bar)


def assert_private_step(
    optimizer: Any, *, alpha: float = 1e-4, **options: Any
) -> OptimizerResult | StepResult:
    """Fail unless :func:`audit_optimizer` finds nothing; returns its result.

    One line after ``make_private``, or in a test::

        dpaudit.assert_private_step(optimizer)
        dpaudit.assert_private_step(optimizer, model=model, step=step, batch=batch, loss=loss)

    The options are those of :func:`audit_optimizer`. α is smaller here: an honest optimizer fails
    one run in 10,000.

    Raises:
        AssertionError: a finding, or an inconclusive audit: the verdict, and how to see it again.
        UsageError, SamplerError: as in :func:`audit_optimizer`.
    """
    __tracebackhide__ = True
    result = audit_optimizer(optimizer, alpha=alpha, **options)
    if result.verdict != "no-finding":
        raise AssertionError(str(result))
    return result


def _optimizer_of(candidate: Any) -> Any:
    if not isinstance(candidate, tuple):
        return candidate
    optimizers = [part for part in candidate if hasattr(part, "original_optimizer")]
    if len(optimizers) != 1:
        raise UsageError(
            f"optimizer: a tuple with {len(optimizers)} Opacus optimizers; give what make_private "
            "returned, or the optimizer itself"
        )
    return optimizers[0]


def _claimed_noise(
    dry: DryRun, multiplier: float | None, bound: float | None
) -> tuple[float, float]:
    """The σ and the clipping bound that the accountant counts on."""
    for name, value in (("noise_multiplier", multiplier), ("max_grad_norm", bound)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value}: must be a finite number above 0")
    most = dry.max_grad_norm if bound is None else float(bound)
    times = dry.sigma / dry.max_grad_norm if multiplier is None else multiplier
    return times * most, most


def _coordinates(sizes: Iterable[int]) -> Array:
    """Which coordinates of the gradient are looked at: all, or as many as fit, some of each."""
    sizes = tuple(sizes)
    share = min(1.0, _MOST_COORDINATES / sum(sizes))
    starts = np.cumsum((0, *sizes[:-1]))
    each = [max(min(size, 8), int(size * share)) for size in sizes]
    return np.concatenate(
        [
            start + np.linspace(0, size - 1, count).astype(np.int64)
            for start, size, count in zip(starts, sizes, each, strict=True)
        ]
    )


def _noise(dry: DryRun, coordinates: Array) -> Callable[[int, int], Array]:
    def noise(n: int, d: int) -> Array:
        rows = np.empty((n, d))
        for row in rows:
            step = dry.step(dry.zeros(1))
            row[:] = step.released[coordinates].double().cpu().numpy()
            row *= step.scale
        return rows

    return noise


def _batch(dry: DryRun, rows: int, bound: float) -> torch.Tensor:
    """Per-sample gradients (rows, d): the first, of twice the bound, alternates in sign."""
    gradients = dry.zeros(rows)
    gradients[0] = 2 * bound / math.sqrt(dry.dim)
    gradients[0, ::2] *= -1
    return gradients


def _clipping(dry: DryRun, bound: float) -> ClippingResult:
    without = dry.step(_batch(dry, 1, bound)).clipped.double()
    largest, by, tried = 0.0, "", 0
    for factor in _FACTORS:
        for name, direction in _directions(dry):
            batch = _batch(dry, 2, bound)
            batch[1] = factor * bound * direction
            moved = float((dry.step(batch).clipped.double() - without).norm())
            tried += 1
            if not moved <= largest:  # NaN too
                largest, by = moved, f"gradient of {factor:g} × max_grad_norm {name}"
    allowed = bound * (1 + max(_ROUNDING, 64 * dry.precision))
    verdict: Verdict = "no-finding" if largest <= allowed else "finding"
    return ClippingResult(verdict=verdict, bound=bound, largest=largest, tried=tried, by=by)


def _directions(dry: DryRun) -> Iterable[tuple[str, torch.Tensor]]:
    """Unit vectors (d,): along all parameters, and along each of at most 32 of them."""
    whole = dry.zeros(1)[0] + 1 / math.sqrt(dry.dim)
    yield "along all parameters", whole
    starts = np.cumsum((0, *dry.sizes))
    some = np.unique(np.linspace(0, len(dry.sizes) - 1, _MOST_DIRECTIONS).astype(int))
    for i in some:
        one = dry.zeros(1)[0]
        one[starts[i] : starts[i + 1]] = 1 / math.sqrt(dry.sizes[i])
        yield f"along parameter {i}", one


class _Blocks:
    """Disjoint sets of coordinates, each with a unit vector along it: many releases of one step.

    Noise that is independent between coordinates is independent between blocks.
    """

    def __init__(self, dim: int) -> None:
        self.count = max(1, min(_MOST_BLOCKS, dim, _MOST_NUMBERS // dim))
        self._rows = dim // self.count
        self._unit = 1 / math.sqrt(self._rows)

    def records(self, dry: DryRun, norm: float) -> torch.Tensor:
        """Per-sample gradients (count, d) of ``norm``, one along each block."""
        gradients = dry.zeros(self.count)
        for block, gradient in enumerate(gradients):
            gradient[block : self._rows * self.count : self.count] = norm * self._unit
        return gradients

    def along(self, vector: torch.Tensor) -> Array:
        """A vector (d,) along each block, shape (count,)."""
        wide = vector.float() if vector.itemsize < 4 else vector
        grid = wide[: self._rows * self.count].reshape(self._rows, self.count)
        return np.asarray((grid.sum(0) * self._unit).double().cpu())


def _affordable_releases(seconds: float, blocks: int) -> int:
    """Releases at each of two neighbours, if a step takes ``seconds``, or twice that."""
    steps = _RELEASE_SECONDS / seconds / 4
    return max(MINIMUM_SAMPLES, min(_RELEASES, int(steps * blocks)))


def _step(dry: DryRun, bound: float, blocks: _Blocks) -> Callable[[float, int], Array]:
    """Releases of a batch without (0) and with (1) one more record, along the record's gradient.

    A step has one more record for each block, and gives one release for each.
    """
    first = _batch(dry, 1, bound)
    constant = blocks.along(dry.step(first).clipped)
    batches = [first, dry.joined(first, blocks.records(dry, _FAR * bound))]

    def step(value: float, n: int) -> Array:
        released = np.empty((-(-n // blocks.count), blocks.count))
        for row in released:
            outcome = dry.step(batches[int(value)])
            row[:] = blocks.along(outcome.released) * outcome.scale - constant
        return released.reshape(-1)[:n]

    return step


def _note(
    engine: Any, *, delta: float, multiplier: float, one_step: float
) -> tuple[float | None, str]:
    """The accountant's ε of the run so far, and how it relates to one step's."""
    note = (
        f"One step's ε is {one_step:.3g} at δ = {delta:g}, for a batch that is known "
        f"(noise multiplier {multiplier:.4g}). The accountant's ε is of a whole run: it composes "
        "the steps and counts on batches that are drawn at random"
    )
    steps = 0 if engine is None else sum(int(part[2]) for part in engine.accountant.history)
    if not steps:
        return None, f"{note}."
    run = float(engine.get_epsilon(delta))
    return run, f"{note}; the run's ε is {run:.3g} after {steps:,} steps."


def _sentence_of(part: AuditResult | ClippingResult | MechanismResult) -> str:
    """A part's verdict in one sentence."""
    if isinstance(part, ClippingResult):
        return part.sentence
    headline, cut, _ = str(part).splitlines()[0].partition("; what this cannot exclude")
    first = next((t for t in part.tests if t.finding), None)
    if isinstance(part, AuditResult) and first is not None:
        return f"{headline} By {first.name}: {first.effect}."
    return f"{headline}." if cut else headline
