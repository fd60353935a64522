"""A replay as it is asked for, and what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from dpaudit.audit.options import (
    AlphaOfBounds,
    By,
    ClaimOptions,
    Seed,
    check_alpha,
    count_of,
    fresh_seed,
)
from dpaudit.errors import UsageError
from dpaudit.options import Option, command_of
from dpaudit.report import Described, Outcome
from dpaudit.types import Amount, BlindSpot, Count, Interval, Level, Provenance, Verdict, brief

__all__ = ["Divergence", "Form", "Primitive", "ReplayOptions", "ReplayResult"]

Form = Literal["records", "frame", "array", "path"]
HOW = ("search", "add", "remove", "replace")


def _count(name: str, unit: str, example: str) -> Callable[[Any], int]:
    return lambda value: count_of(value, unit=unit, example=example, name=name)


def _names(value: Any) -> tuple[str, ...]:
    return tuple(value.split(",")) if isinstance(value, str) else tuple(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How a pipeline is replayed, apart from its claim.

    Raises:
        UsageError: a number out of range, or an unknown kind of neighbours.
    """

    data: Annotated[
        Any, Option("The data set to begin with: .csv .parquet .json .npy.", "FILE")
    ] = None
    neighbours: Annotated[
        str,
        Option("One record more or less (search, add, remove), or one changed (replace).", "HOW"),
    ] = "search"
    bounds: Annotated[
        Any,
        Option(
            "What values a record may have: 'age=0:120;city=Bonn|Graz' or 0:1; otherwise any.",
            "FIELD=LOW:HIGH;…",
        ),
    ] = None
    pairs: Annotated[
        int, Option("Pairs of neighbours to try.", "N", read=_count("pairs", "pairs", "40"))
    ] = 40
    form: Annotated[
        Form | None,
        Option(
            "The function takes records (a list of dicts), frame (pandas), array, or path (.csv).",
            default="from its annotation; frame if the module imports pandas",
        ),
    ] = None
    cover: Annotated[
        tuple[str, ...],
        Option("Packages whose lines count as the pipeline's too.", "NAME,…", read=_names),
    ] = ()
    python: Annotated[
        Path | None,
        Option("Interpreter with the pipeline's libraries; it needs numpy, not dpaudit.", "PATH"),
    ] = None
    samples: Annotated[
        int,
        Option(
            "Releases per neighbour to confirm an ε with, on new noise.",
            "N",
            read=_count("samples", "releases", "2000"),
        ),
    ] = 2000
    alpha: AlphaOfBounds = 0.01
    time_limit: Annotated[float, Option("Seconds for the whole replay.")] = 120.0
    seed: Seed = field(default_factory=fresh_seed)
    by: By = ""

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if self.neighbours not in HOW:
            raise UsageError(
                f"neighbours={self.neighbours}: must be one of {', '.join(HOW)}; choose one"
            )
        if self.pairs < 1 or self.samples < 1000:
            raise UsageError(
                f"pairs={self.pairs}, samples={self.samples}: at least 1 pair and 1,000 releases"
            )
        if not 0 < self.time_limit <= 1e9:
            raise UsageError(f"time-limit={self.time_limit}: must be above 0 seconds, e.g. 120")

    @property
    def limits(self) -> Any:
        """The bounds as a mapping, or as a pair for all fields; None without."""
        from dpaudit.audit.mechanism.question import read_bounds  # with all of the audit

        return read_bounds(self.bounds) if isinstance(self.bounds, str) else self.bounds

    def command(self, target: str, claim: ClaimOptions) -> str:
        """The command that asks for the same replay."""
        return command_of("replay", target, claim, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """A primitive that one line of the pipeline calls: its law, its scale, what is stated of it."""

    name: str
    law: str
    line: str
    at: str
    calls: Count
    scale: str
    stated: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A place where the data shows though the noise is the same.

    ``outcome`` is finding, advice, or undecided: something may hide it, and no releases could tell.
    ``line`` is the pipeline's own line, ``at`` the one that calls the primitive; ``call`` counts
    calls from 0. ``first`` and ``second`` are the values that differ, ``pair`` the number of the
    pair that shows it best, ``pairs`` how many do. ``epsilon`` is what held-out releases of that
    pair show, None if they were not drawn or show nothing.
    """

    kind: str
    outcome: Outcome
    name: str = ""
    line: str = ""
    at: str = ""
    call: int = -1
    path: str = ""
    first: str
    second: str
    says: str
    pair: Count
    origin: str
    pairs: Count
    epsilon: Interval | None = None
    reproduce: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(Described):
    """What a replay found: a pipeline on pairs of neighbours with its noise frozen.

    Guarantee: a *finding* is a difference of two runs with the same noise that no noise hides, or
    an input that moves further than the library states; one with a number also holds on new
    releases, with probability 1 − ``alpha`` (:class:`~dpaudit.audit.result.MechanismResult`).
    ``epsilon`` is the largest ε that the noised inputs of a tried pair add up to, given the stated
    laws; None if the law of one is not known. Without a finding the verdict is *inconclusive* if
    something could not be judged: a run gave no answer, few of the pairs were run in time, a
    difference is undecided, or there is a claim and the ε is not known. Not claimed: anything of
    pairs that were not tried, of ``unreached`` lines, of noise in native code, and of code that
    means to deceive its auditor, with whom it shares a process: for that there is ``dpaudit
    mechanism``.
    """

    kind: ClassVar[str] = "replay"

    verdict: Verdict
    reason: str
    pipeline: str
    claim: str
    claim_epsilon: Amount | None
    claim_delta: Amount | None
    alpha: Level
    divergences: tuple[Divergence, ...]
    primitives: tuple[Primitive, ...]
    pairs: Count
    pairs_requested: Count
    runs: Count
    epsilon: Amount | None
    epsilon_pair: str
    unknown: tuple[str, ...]
    reached: Count
    lines: Count
    unreached: tuple[str, ...]
    unseen: tuple[str, ...]
    advice: tuple[str, ...]
    sandbox: str
    seconds: Amount
    run_seconds: Amount
    cannot_rule_out: tuple[BlindSpot, ...]
    provenance: Provenance
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def findings(self) -> Sequence[Divergence]:
        """The divergences that are findings."""
        return [d for d in self.divergences if d.outcome == "finding"]

    def __repr__(self) -> str:
        count = f"{self.pairs:,} pairs"
        return brief(self, self.verdict, self.pipeline, count, f"{len(self.findings)} findings")
