"""What attacks show of libraries, and how often they show more than a sound mechanism claims."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dpaudit.audit.mechanism import (
    MechanismOptions,
    PrivacyClaim,
    parse_neighbours,
    run_mechanism_audit,
)
from dpaudit.audit.result import MechanismResult
from dpaudit.errors import MissingExtraError, SamplerError, UsageError
from dpaudit.experiments.measure import Cell, Grid, Measure
from dpaudit.experiments.trials import interval
from dpaudit.protocols import Session
from dpaudit.targets.resolve import open_mechanism
from dpaudit.types import TestResult
from dpaudit_studies.libraries.cases import Case, case

__all__ = [
    "CONTROLS",
    "LIBRARIES",
    "controls",
    "controls_summary",
    "libraries",
    "libraries_summary",
]

_VERDICTS = {"finding": "broken", "no-finding": "not broken", "inconclusive": "inconclusive"}
_LEAKS = "leaks by its time"


class LibrariesGrid(Grid, frozen=True):
    """A case by name (``dpaudit_studies.libraries.CASES``); ``samples`` replaces the case's own."""

    case: str
    samples: int | None = None
    alpha: float = 0.01


def libraries(cell: Cell, arm: None) -> dict[str, Any]:
    """One audit of a case (:class:`LibrariesGrid`) by its attack.

    A library that is not installed gets a row with the fix in ``failed``; so does one that cannot
    be imported or refuses its input. Internal errors are not caught.
    """
    del arm
    grid = cell.grid(LibrariesGrid)
    subject = case(grid.case)
    row: dict[str, Any] = {
        "library": subject.library,
        "mechanism": subject.mechanism.removeprefix(f"{subject.library}:").removeprefix(
            "python:dpaudit.noise."
        ),
        "attack": subject.attack,
        "kind": subject.attack.partition(":")[0],
        "neighbours": _short(subject.neighbours),
        "promise": subject.promise,
        "epsilon_claimed": subject.epsilon,
        "delta_claimed": subject.delta,
        "claimed": f"{subject.epsilon:.3g}"
        + (f" at δ = {subject.delta:g}" if subject.delta else ""),
        "draft": subject.draft or None,
        "reproduce": subject.command,
    }
    began, seed = time.monotonic(), f"{cell.settings['seed']}/{cell.id}"
    samples = subject.samples if grid.samples is None else grid.samples
    try:
        with open_mechanism(subject.mechanism, seed=seed).open(timeout=60) as mechanism:
            result = _audit(subject, mechanism, samples=samples, alpha=grid.alpha, seed=seed)
            version = mechanism.facts.version
    except MissingExtraError as error:
        return {**row, "verdict": "not installed", "failed": str(error)}
    except (SamplerError, UsageError) as error:
        return {**row, "verdict": "failed", "failed": str(error)}
    return {
        **row,
        "library": " ".join(filter(None, (subject.library, version))),
        **_outcome(result),
        "seconds": time.monotonic() - began,
        "failed": None,
    }


def _audit(
    subject: Case, mechanism: Session, *, samples: int, alpha: float, seed: str
) -> MechanismResult:
    return run_mechanism_audit(
        mechanism,
        neighbours=None if subject.neighbours is None else parse_neighbours(subject.neighbours),
        claim=PrivacyClaim(subject.epsilon, subject.delta),
        attack=subject.attack,
        options=MechanismOptions(samples=samples, alpha=alpha, seed=seed),
    )


def _short(neighbours: str | None) -> str:
    if neighbours is None:
        return "the attack's"
    if len(neighbours) < 12:
        return neighbours
    return " and ".join(map(_ends, neighbours.split(";")))


def _ends(vector: str) -> str:
    numbers = vector.split(",")
    ones = [str(i) for i, x in enumerate(numbers) if float(x)]
    return f"0 of {len(numbers)}" if not ones else f"1 at {'+'.join(ones)}"


def _outcome(result: MechanismResult) -> dict[str, Any]:
    bounds = (test for test in result.tests if test.unit == "ε")
    best = max(bounds, key=lambda test: (test.statistic, -test.p), default=None)
    p0, p1 = _probabilities(best)
    timed = result.verdict == "finding" and result.attack.partition(":")[0] == "timing"
    return {
        "verdict": _LEAKS if timed else _VERDICTS[result.verdict],
        "p0": p0,
        "p1": p1,
        "epsilon": None if result.epsilon is None else result.epsilon.low,
        "delta": None if result.delta is None else result.delta.low,
        "p": None if best is None else best.p_adjusted,
        "event": None if best is None else best.effect,
        "success": _success(result),
        "releases": result.samples,
        "advice": "; ".join(result.advice) or None,
    }


def _success(result: MechanismResult) -> dict[str, Any] | None:
    """How often a guess by this attack is right, ties by a fair coin."""
    guesses = result.details.get("success")
    if not guesses:
        return None
    return {
        "value": guesses["right"] / guesses["of"],
        "low": guesses["interval"].low,
        "high": guesses["interval"].high,
    }


def _probabilities(test: TestResult | None) -> tuple[float | None, float | None]:
    if test is None or "counts" not in test.details:
        return None, None
    counts = test.details["counts"]
    shares = [counts[key][0] / max(1, counts[key][1]) for key in ("likelier", "other")]
    second = test.details.get("likelier_at", 0)
    return shares[second], shares[1 - second]


def libraries_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which mechanisms that promise DP break, or leak by time; what was not run."""
    audited = [row for row in rows if row["verdict"] in (*_VERDICTS.values(), _LEAKS)]
    promised = [row for row in audited if row["promise"] == "DP"]
    tried = {_subject(row) for row in promised}
    broken, leaking = (
        sorted({_subject(row) for row in promised if row["verdict"] == verdict})
        for verdict in ("broken", _LEAKS)
    )
    others = [row for row in audited if row["promise"] != "DP"]
    text = ""
    if tried:
        text = (
            f"Of {len(tried)} mechanisms that promise differential privacy {len(broken)} broke: "
            f"{_listed(broken)}."
        )
        text += f" By their time leaked: {_listed(leaking)}." if leaking else ""
    if others:
        succeeded = sum(row["verdict"] in ("broken", _LEAKS) for row in others)
        text += f" Of {len(others)} attacks on noise that promises nothing {succeeded} succeeded."
    absent = sorted({row["library"] for row in rows if row["verdict"] == "not installed"})
    failed = [_subject(row) for row in rows if row["verdict"] == "failed"]
    text += f" Not installed: {', '.join(absent)}." if absent else ""
    return (text + (f" Failed: {_listed(failed)}." if failed else "")).strip()


def _subject(row: Mapping[str, Any]) -> str:
    return f"{row['library']} {row['mechanism'].partition(':')[0]}"


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) or "none"


LIBRARIES = Measure(run=libraries, grid=LibrariesGrid, needs_arm=False, summary=libraries_summary)


class ControlsGrid(Grid, frozen=True):
    """A case by its name, and ``samples`` releases at each neighbour."""

    case: str
    samples: int
    alpha: float


def controls(cell: Cell, arm: None) -> dict[str, Any]:
    """``trials`` audits of a case (:class:`ControlsGrid`).

    Counted are those whose lower bound for ε is at most the claim. One process of the mechanism
    serves all, so the audits are of one running sampler. A library that is not installed gets a
    row with the fix.
    """
    del arm
    grid, trials = cell.grid(ControlsGrid), cell.settings["trials"]
    subject = case(grid.case)
    assert subject.neighbours is not None  # noqa: S101 (a control's case names its values)
    about = {"library": subject.library, "mechanism": subject.mechanism, "attack": subject.attack}
    bounds, seed = [], f"{cell.settings['seed']}/{cell.id}"
    try:
        with open_mechanism(subject.mechanism, seed=seed).open(timeout=60) as mechanism:
            for i in range(trials):
                result = _audit(
                    subject, mechanism, samples=grid.samples, alpha=grid.alpha, seed=f"{seed}/{i}"
                )
                bounds.append(result.epsilon.low if result.epsilon is not None else 0.0)
    except MissingExtraError as error:
        return {**about, "failed": str(error)}
    within = sum(bound <= subject.epsilon for bound in bounds)
    return {
        **about,
        "epsilon_claimed": subject.epsilon,
        "delta_claimed": subject.delta,
        "repeats": trials,
        "within": interval(within, trials),
        "exceeded": trials - within,
        "largest": max(bounds),
        "median": median(bounds),
        "failed": None,
    }


def controls_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """In how many repeats, of all, no more than the claim was shown; and the worst control."""
    ran = [row for row in rows if row["failed"] is None]
    if not ran:
        return "No control could be run."
    repeats, over = sum(row["repeats"] for row in ran), sum(row["exceeded"] for row in ran)
    worst = max(ran, key=lambda row: row["exceeded"] / row["repeats"])
    return (
        f"In {repeats - over:,} of {repeats:,} audits of sound mechanisms no more ε was shown than "
        f"they claim; worst: {worst['mechanism']} by {worst['attack']}, "
        f"{worst['repeats'] - worst['exceeded']} of {worst['repeats']}."
    )


CONTROLS = Measure(run=controls, grid=ControlsGrid, needs_arm=False, summary=controls_summary)
