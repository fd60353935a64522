"""A history as an experiment: a cell per release, a row per check, first and last bad releases."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.version import Version

from dpaudit.audit.mechanism import PrivacyClaim, parse_neighbours, run_mechanism_audit
from dpaudit.audit.result import AuditResult, MechanismResult
from dpaudit.audit.run import run_audit
from dpaudit.claims import Claim
from dpaudit.errors import MissingExtraError, SamplerError, UsageError
from dpaudit.experiments.measure import Cell, Grid, Measure
from dpaudit.experiments.spec import Spec
from dpaudit.experiments.spec_file import spec_of
from dpaudit.results.text import one_line
from dpaudit_studies.history.elsewhere import Elsewhere
from dpaudit_studies.history.installing import NotInstallableError, built, environment
from dpaudit_studies.history.options import HistoryOptions
from dpaudit_studies.history.subjects import BATTERY, EVENTS, Check, subject

__all__ = ["MEASURE", "HistoryGrid", "history_spec", "measure", "rows_of", "summary"]

Row = Mapping[str, Any]
_DONE = ("finding", "no-finding", "inconclusive")
_LEVELS = {"finding": 1.0, "no-finding": 0.0}


def rows_of(cells: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per release and check, oldest release first; releases that have none have one row.

    A row with a finding has the ``first`` and ``last`` release in which this check found
    something, and the first audited release ``after`` that without a finding, if there is one.
    """
    rows: list[dict[str, Any]] = []
    for cell in sorted(cells, key=lambda cell: Version(cell["version"])):
        about = {key: cell.get(key) for key in ("library", "version", "built", "installed")}
        if not cell["audits"]:
            lacking = {"verdict": "not installed", "failed": cell["failed"]}
            rows.append({**about, **lacking, "check": None, "found": None})
        for audit in cell["audits"]:
            row = {"failed": None, **about, **audit}
            level = _LEVELS.get(audit["verdict"])
            rows.append({**row, "check": _check(row), "found": level, "versions": None})
    for key in dict.fromkeys(row["check"] for row in rows):
        _mark([row for row in rows if key is not None and row["check"] == key])
    return rows


def _check(row: Row) -> str:
    return f"{row['mechanism']} by {row['method']}"


def _mark(rows: Sequence[dict[str, Any]]) -> None:
    """Write into the rows of one check which releases are bad."""
    bad = [i for i, row in enumerate(rows) if row["verdict"] == "finding"]
    if not bad:
        return
    first, last = rows[bad[0]]["version"], rows[bad[-1]]["version"]
    clean = [row["version"] for row in rows[bad[-1] + 1 :] if row["verdict"] == "no-finding"]
    between = sum(row["verdict"] == "no-finding" for row in rows[bad[0] : bad[-1]])
    span = first if first == last else f"{first} to {last}"
    span += f" ({between} of them without)" if between else ""
    for i in bad:
        after = clean[0] if clean else None
        rows[i] |= {"first": first, "last": last, "after": after, "versions": span}


def summary(rows: Sequence[Row]) -> str:
    """First and last bad release of each finding, and what could not be audited."""
    findings = {row["check"]: row for row in rows if row["verdict"] == "finding"}
    releases = dict.fromkeys(row["version"] for row in rows)
    lacking = [row["version"] for row in rows if row["verdict"] == "not installed"]
    audited = len(releases) - len(lacking)
    library = rows[0]["library"]
    text = f"{audited} of {len(releases)} releases of {library} audited. "
    if findings:
        text += "; ".join(_finding_text(check, row) for check, row in findings.items()) + "."
    elif audited:
        text += "No finding in any of them."
    text += f" Not installed: {', '.join(lacking)}." if lacking else ""
    failed = sum(row["verdict"] == "cannot run" for row in rows)
    return text + (f" {failed} checks cannot run." if failed else "")


def _finding_text(check: str, row: Row) -> str:
    then = f"no finding from {row['after']}" if row["after"] else "to the newest that was audited"
    return f"{check}: {row['finding']} in {row['versions']}, {then}"


_LONG = 400


class HistoryGrid(Grid, frozen=True):
    """A ``version`` of a ``library``, and each ``check`` of it (:class:`.check.Check`).

    α is shared equally by all ``pairs`` of a release and a check.
    """

    library: str
    version: str
    check: tuple[str, ...]
    options: HistoryOptions
    pairs: int


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """All checks of a release (:class:`HistoryGrid`), or why it cannot be installed.

    A check that the release cannot answer (a mechanism that it lacks, an import that fails) says
    so in its row. Not caught: an index that cannot be reached, and internal errors.
    """
    del arm
    grid = cell.grid(HistoryGrid)
    about = subject(grid.library)
    release = f"{about.library.distribution}=={grid.version}"
    began = time.monotonic()
    try:
        with environment(release, about.requirements) as folder:
            installed = time.monotonic() - began
            where = Elsewhere(
                folder=folder, library=about.library, adapter=about.adapter, empty=about.empty
            )
            seed = f"{cell.settings['seed']}/{cell.id}"
            audits = [_run_check(where, Check.parse(text), grid, seed) for text in grid.check]
            return {
                "built": built(release),
                "installed": where.installed(),
                "seconds_to_install": installed,
                "audits": audits,
            }
    except NotInstallableError as error:
        return {"built": None, "installed": "", "audits": [], "failed": str(error)}


def _run_check(where: Elsewhere, check: Check, grid: HistoryGrid, seed: str) -> dict[str, Any]:
    began = time.monotonic()
    try:
        audit = _by_battery if check.method == BATTERY else _by_attack
        outcome = audit(where, check, grid, f"{seed}/{check}")
    except MissingExtraError:
        lacks = f"the release has no {where.library.module}, or lacks what it imports"
        outcome = {"verdict": "cannot run", "failed": lacks}
    except (SamplerError, UsageError) as error:
        outcome = {"verdict": "cannot run", "failed": one_line(error, limit=_LONG)}
    about = {"mechanism": check.mechanism, "method": check.method}
    return {**about, **outcome, "seconds": time.monotonic() - began}


def _by_battery(where: Elsewhere, check: Check, grid: HistoryGrid, seed: str) -> dict[str, Any]:
    with where.sampler(check.mechanism).open(timeout=60) as sampler:
        claim = sampler.facts.claim
        if claim is None:
            raise UsageError(f"check={check}: its adapter states no law; audit the mechanism")
        options = grid.options.noise(seed, share=grid.pairs)
        result = run_audit(sampler, claim=Claim.parse(claim), options=options)
        return {"claim": claim, **_verdict(result, grid)}


def _by_attack(where: Elsewhere, check: Check, grid: HistoryGrid, seed: str) -> dict[str, Any]:
    assert check.epsilon is not None  # noqa: S101 such a check has a claim
    events, options = check.method == EVENTS, grid.options
    samples = options.samples // 2 if events else options.releases
    with where.mechanism(check.mechanism).open(timeout=60) as mechanism:
        result = run_mechanism_audit(
            mechanism,
            neighbours=parse_neighbours("0,1"),
            claim=PrivacyClaim(check.epsilon, check.delta),
            attack=None if events else check.method,
            options=options.mechanism(seed, share=grid.pairs, samples=samples),
        )
    low = None if result.epsilon is None else result.epsilon.low
    claim = f"ε = {check.epsilon:g}" + (f", δ = {check.delta:g}" if check.delta else "")
    return {"claim": claim, "epsilon": low, **_verdict(result, grid)}


def _verdict(result: AuditResult | MechanismResult, grid: HistoryGrid) -> dict[str, Any]:
    counted = [test for test in result.tests if not test.advisory]
    worst = min(counted, key=lambda test: test.p_adjusted, default=None)
    leading = next((test for test in counted if test.finding), worst)
    leading = leading if result.verdict == "finding" else None
    return {
        "verdict": result.verdict,
        "finding": leading and leading.name,
        "effect": leading and one_line(leading.effect, limit=_LONG),
        "p": None if worst is None else min(1.0, worst.p_adjusted * grid.pairs),
        "values": result.samples,
    }


MEASURE = Measure(run=measure, grid=HistoryGrid, needs_arm=False, gather=rows_of, summary=summary)

_COLUMNS = {
    "version": ("release", "text"),
    "built": ("built", "text"),
    "mechanism": ("mechanism", "text"),
    "method": ("audited by", "text"),
    "claim": ("claim", "text"),
    "verdict": ("verdict", "text"),
    "finding": ("finding", "text"),
    "p": ("p", "number"),
    "epsilon": ("ε at least", "epsilon"),
    "versions": ("bad releases", "text"),
    "after": ("no finding from", "text"),
    "seconds": ("seconds", "seconds"),
    "failed": ("why not", "text"),
}
_FIGURE = {
    "kind": "map", "x": "version", "y": "check", "value": "found",
    "title": "Findings by release: dark is a finding", "label_y": "check",
}  # fmt: skip
_STORY = """
Each release was installed in an environment of its own and audited from outside it: its noise by \
the battery against the law that the library documents, its mechanisms by attacks against the \
privacy that they claim, at the values 0 and 1. α = {alpha:g} is the probability of any finding \
among all {pairs} pairs of a release and a check if all are honest; p is adjusted for the tests \
and for the pairs, and bounds for ε hold together with confidence 1 − α. "Built" is the date in \
the wheel, where it has one.{note}
"""


def history_spec(
    name: str, *, mechanism: str = "", versions: Sequence[str], options: HistoryOptions
) -> Spec:
    """The experiment that audits these ``versions`` of a library, oldest first.

    With ``mechanism``, only that one. α is shared by all pairs of a release and a check.

    Raises:
        UnknownNameError, UsageError: no such library, mechanism or option.
    """
    about = subject(name)
    checks = about.of(mechanism) if mechanism else about.checks
    pairs = len(checks) * len(versions)
    table: dict[str, Any] = {
        "name": f"history-{name}",
        "title": f"The releases of {about.library.distribution}, audited one by one",
        "story": _STORY.format(alpha=options.alpha, pairs=pairs, note=options.note),
        "seed": options.seed,
        "measure": "history",
        "trials": 1,
        "grid": {
            "library": name,
            "version": list(versions),
            "check": [str(check) for check in checks],
            "options": options.axes,
            "pairs": pairs,
        },
        "column": [
            {"key": key, "label": label, "format": form} for key, (label, form) in _COLUMNS.items()
        ],
        "figure": [_FIGURE],
    }
    return spec_of(table, name=f"history {name}")
