"""Import and hash everything that judges and reports before a third-party program starts.

Files that the program changes later then have no effect. In a full sandbox it cannot write to these
files at all; this is for the levels below.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len

from dpaudit import registry
from dpaudit.audit.power import read_table
from dpaudit.errors import MissingExtraError
from dpaudit.registry import source_hash

__all__ = ["be_ready"]

_SANDBOX = "dpaudit.targets.sandbox"
_JUDGES = ("dpaudit.audit", _SANDBOX, "dpaudit.results", "dpaudit.accounting")
# scikit-learn, which an audit of noise does not need
_RELEASES = ("dpaudit.audit.mechanism", "dpaudit.audit.training")
_ATTACKS = ("reach", "bit-features")  # which the audit of a mechanism uses by default


@functools.cache
def be_ready(*, writes: bool, releases: bool = False, tests: tuple[str, ...] | None = None) -> None:
    """Import the audit, its tests and, if it ``writes`` a report, that code; hash our sources.

    ``releases``: an audit of a mechanism, which trains classifiers and runs none of the ``tests``
    (all by default).
    """
    source_hash("dpaudit")
    for name in _JUDGES:
        # Windows runs no foreign programs
        if name != _SANDBOX or importlib.util.find_spec("fcntl"):
            _all_of(name, but=() if releases else _RELEASES)
    if releases:
        _train_once()
    loops = set()  # modules; numba imports much of itself, and may compile, on first use
    for group, names in (("tests", registry.plugins("tests")), ("attacks", _ATTACKS)):
        for name in names:
            try:
                plugin = registry.load(group, name)
            except MissingExtraError:  # the audit reports it if the user asked for this one
                continue
            if not releases and group == "tests" and (tests is None or name in tests):
                loops.add(getattr(plugin, "loops", None))
    for module in sorted(filter(None, loops)):
        importlib.import_module(module).use_once()
    _all_of("dpaudit.render")
    read_table()
    cell_len("…")  # rich then imports its table of widths
    if writes:
        _draw_once()


def _draw_once() -> None:
    """Draw a page with a chart once: the libraries import much of themselves on first use."""
    from dpaudit.render.page import render_page
    from dpaudit.report import Axis, Chart, Mark, Panel, Report, Section, Series

    marks = tuple(Mark(x=x, y=x) for x in (1.0, 2.0))
    series = tuple(Series(marks=marks, look="line", group=k, legend=f"{k}") for k in (0, 1))
    chart = Chart(
        kind="plot", title="", caption="", alt="", panels=(Panel(series=series),),
        x=Axis(), y=Axis(log=True),
    )  # fmt: skip
    section = Section(title="x", blocks=(chart,))
    render_page(
        Report(
            kind="x", label="", subject="", title="", verdict="inconclusive", headline="",
            sections=(section,),
        )
    )  # fmt: skip


def _train_once() -> None:
    """Train classifiers once: scikit-learn imports much of itself on first use."""
    from dpaudit.audit.mechanism.learned_scores import learned_scores

    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 500, 2))
    for score in learned_scores(*x, rng=rng, seconds=1e-9):
        score.of(x[0])


def _all_of(name: str, *, but: Sequence[str] = ()) -> None:
    for module in pkgutil.iter_modules(importlib.import_module(name).__path__, f"{name}."):
        if module.name.endswith(".supervisor") or module.name in but:  # a program of its own
            continue
        importlib.import_module(module.name)
        if module.ispkg:
            _all_of(module.name, but=but)
