"""All checks of one release, in an environment that is made for it; one cell of a history."""

from __future__ import annotations

import time
from typing import Any

from dpaudit.audit.epsilon import PrivacyClaim, parse_neighbours, run_mechanism_audit
from dpaudit.audit.result import AuditResult, MechanismResult
from dpaudit.audit.run import run_audit
from dpaudit.claims import Claim
from dpaudit.errors import MissingExtraError, SamplerError, UsageError
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid
from dpaudit.experiments.measure import Measure
from dpaudit.results.text import one_line
from dpaudit.samplers.adapters.elsewhere import Elsewhere
from dpaudit_studies.history.check import BATTERY, EVENTS, Check
from dpaudit_studies.history.installing import NotInstallableError, built, environment
from dpaudit_studies.history.options import HistoryOptions
from dpaudit_studies.history.subjects import subject
from dpaudit_studies.history.table import rows_of, summary

__all__ = ["MEASURE", "HistoryGrid", "measure"]

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
            audits = [
                _audited(where, Check.parse(text), grid, f"{cell.settings['seed']}/{cell.id}")
                for text in grid.check
            ]
            return {
                "built": built(release),
                "installed": where.installed(),
                "seconds_to_install": installed,
                "audits": audits,
            }
    except NotInstallableError as error:
        return {"built": None, "installed": "", "audits": [], "failed": str(error)}


def _audited(where: Elsewhere, check: Check, grid: HistoryGrid, seed: str) -> dict[str, Any]:
    began = time.monotonic()
    try:
        shown = (_by_battery if check.method == BATTERY else _by_attack)(
            where, check, grid, f"{seed}/{check}"
        )
    except MissingExtraError:
        lacks = f"the release has no {where.library.module}, or lacks what it imports"
        shown = {"verdict": "cannot run", "failed": lacks}
    except (SamplerError, UsageError) as error:
        shown = {"verdict": "cannot run", "failed": one_line(error, limit=_LONG)}
    return {
        "mechanism": check.mechanism,
        "method": check.method,
        **shown,
        "seconds": time.monotonic() - began,
    }


def _by_battery(where: Elsewhere, check: Check, grid: HistoryGrid, seed: str) -> dict[str, Any]:
    with where.sampler(check.mechanism) as sampler:
        if sampler.claim is None:
            raise UsageError(
                f"check={check}: the adapter states no law of this noise; audit the mechanism"
            )
        result = run_audit(
            sampler,
            claim=Claim.parse(sampler.claim),
            options=grid.options.noise(seed, share=grid.pairs),
        )
        return {"claim": sampler.claim, **_verdict(result, grid)}


def _by_attack(where: Elsewhere, check: Check, grid: HistoryGrid, seed: str) -> dict[str, Any]:
    assert check.epsilon is not None  # noqa: S101 such a check has a claim
    events, options = check.method == EVENTS, grid.options
    with where.mechanism(check.mechanism) as mechanism:
        result = run_mechanism_audit(
            mechanism,
            neighbours=parse_neighbours("0,1"),
            claim=PrivacyClaim(check.epsilon, check.delta),
            attack=None if events else check.method,
            options=options.mechanism(
                seed, share=grid.pairs, samples=options.samples // 2 if events else options.releases
            ),
        )
    low = None if result.epsilon is None else result.epsilon.low
    delta = f", δ = {check.delta:g}" if check.delta else ""
    return {
        "claim": f"ε = {check.epsilon:g}{delta}",
        "epsilon": low,
        **_verdict(result, grid),
    }


def _verdict(result: AuditResult | MechanismResult, grid: HistoryGrid) -> dict[str, Any]:
    counted = [test for test in result.tests if not test.advisory]
    worst = min(counted, key=lambda test: test.p_adjusted, default=None)
    found = next((test for test in counted if test.finding), worst)
    return {
        "verdict": result.verdict,
        "finding": found.name if found is not None and result.verdict == "finding" else None,
        "effect": one_line(found.effect, limit=_LONG)
        if found is not None and result.verdict == "finding"
        else None,
        "p": None if worst is None else min(1.0, worst.p_adjusted * grid.pairs),
        "values": result.samples,
    }


MEASURE = Measure(run=measure, grid=HistoryGrid, needs_arm=False, gather=rows_of, summary=summary)
