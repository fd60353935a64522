"""A history as an experiment: one cell per release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpaudit.experiments.spec import Spec
from dpaudit.experiments.spec_file import spec_of
from dpaudit_studies.history.options import HistoryOptions
from dpaudit_studies.history.subjects import subject

__all__ = ["history_spec"]

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
_STORY = """
Each release was installed in an environment of its own and audited from outside it: its noise by \
the battery against the law that the library documents, its mechanisms by attacks against the \
privacy that they claim, at the values 0 and 1. α = {alpha:g} is the probability of any finding \
among all {pairs} pairs of a release and a check if all are honest; p is adjusted for the tests \
and for the pairs, and bounds for ε hold together with confidence 1 − α. "Built" is the date in \
the wheel, where it has one.{note}
"""


def history_spec(
    name: str,
    *,
    mechanism: str = "",
    versions: Sequence[str],
    options: HistoryOptions,
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
        "figure": [
            {
                "kind": "map",
                "x": "version",
                "y": "check",
                "value": "found",
                "title": "Findings by release: dark is a finding",
                "label_y": "check",
            }
        ],
    }
    return spec_of(table, name=f"history {name}")
