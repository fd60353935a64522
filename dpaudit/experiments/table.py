"""From stored cells to the result that people read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.codec import convert_value
from dpaudit.experiments.measure import gather_rows, plugin_options, summary
from dpaudit.experiments.published import LEVEL, beside_published
from dpaudit.experiments.results import (
    Arm,
    ArmAttack,
    Column,
    ExperimentResult,
    Figure,
    MeasurementsResult,
)
from dpaudit.types import CellFailure, CellResult, Reference

__all__ = ["make_result"]


def make_result(
    spec: Mapping[str, Any],
    results: Sequence[CellResult],
    *,
    command: str,
    failures: Sequence[CellFailure] = (),
    cells: bool = True,
) -> ExperimentResult | MeasurementsResult:
    """Arms of an attack experiment, or, if the spec names columns, a table of measurements.

    ``failures`` are the cells that raised; the result and its report list them. With
    ``cells=False`` the list ``cells``, which takes most of the time if there are many, stays empty.

    Deterministic for given results except for the cells' ``seconds`` and ``provenance``; ``rows``
    has neither.

    Raises:
        RefusedError: columns, figures or what the cells hold is not as dpaudit writes it.
    """
    common: dict[str, Any] = {
        "name": spec["name"],
        "title": spec["title"],
        "story": spec["story"],
        "command": command,
        "cells": tuple(results) if cells else (),
        "provenance": dict(results[-1].provenance) if results else {},
        "failures": tuple(failures),
    }
    if not spec["columns"]:
        return ExperimentResult(**common, rows=convert_value(_arm_rows(results), tuple[Arm, ...]))
    measured = gather_rows(spec["measure"], [_row(r) for r in results if r.kind != "audit"])
    rows = tuple(_compare_published(spec["published"], row) for row in measured)
    misses = tuple(row for row in rows if row.get("agrees") is False)
    return MeasurementsResult(
        **common,
        columns=convert_value(spec["columns"], tuple[Column, ...]),
        figures=convert_value(spec["figures"], tuple[Figure, ...]),
        rows=rows,
        misses=misses,
        summary=_summary(spec, rows, misses),
    )


def _row(result: CellResult) -> dict[str, Any]:
    """One flat row: settings, then what was measured."""
    settings, outcome = result.settings, dict(result.outcome)
    if "source" not in settings:
        return {**settings["grid"], "trials": settings["trials"], **outcome}
    key = outcome.pop("key", {})
    row: dict[str, Any] = {
        "d": outcome.pop("dim"),
        "beta": key.get("beta"),
        "gamma": key.get("gamma"),
        "gamma_as": settings["key"].get("gamma"),
        "directions": settings["key"].get("directions", 1),
        "epsilon": settings["epsilon"],
        "delta": settings["delta"],
        "source": settings["source"]["label"],
        "mitigation": settings["mitigation"]["label"],
        "attack": settings.get("attack", {}).get("label"),
        "trials": settings["trials"],
        **settings["grid"],
        **{k: v for k, v in outcome.items() if k not in ("details", "attack")},
    }
    if "interval" in outcome:
        row["success"] = {
            "value": outcome["success"],
            "low": outcome["interval"]["low"],
            "high": outcome["interval"]["high"],
        }
    return row


def _compare_published(published: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    if not published:
        return dict(row)
    theirs, fits = beside_published(published, row)
    return {**row, "published": theirs, "agrees": fits}


def _summary(
    spec: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], misses: Sequence[Mapping[str, Any]]
) -> str:
    """One sentence about the table."""
    published = spec["published"]
    compared = [row for row in rows if row.get("agrees") is not None]
    if compared and "trials" in published:
        level = published.get("level", LEVEL)
        return (
            f"{len(compared) - len(misses)} of {len(compared)} cells agree with the published "
            f"value (Fisher's exact test at {level:g} a cell; "
            f"{level * len(compared):.2g} misses expected by chance)."
        )
    if compared and "within" in published:
        chance = (
            f", chance allowed for (level {published.get('level', LEVEL):g})"
            if "users" in published
            else ""
        )
        return (
            f"{len(compared) - len(misses)} of {len(compared)} cells are within "
            f"{published['within']:g} of the published value{chance}."
        )
    if compared:
        within = 100 * float(published["tolerance"])
        return (
            f"{len(compared) - len(misses)} of {len(compared)} cells are within {within:g} % "
            "of the published value."
        )
    return summary(spec["measure"], rows) or f"{len(rows)} cells measured."


_ATTACK_FIELDS = tuple(field.name for field in dataclasses.fields(ArmAttack))


def _arm_rows(results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """One row per arm, with its audit and its attacks; no times, no provenance."""
    arms: dict[str, dict[str, Any]] = {}
    for result in results:
        row = arms.setdefault(_arm_id(result.settings), _arm_row(result))
        if result.kind == "audit":
            tests = result.outcome["tests"]
            row["audit"] = {
                "verdict": result.outcome["verdict"],
                "samples": result.outcome["samples"],
                "alpha": result.outcome["alpha"],
                "smallest_p": min((t["p_adjusted"] for t in tests), default=1.0),
            }
        else:
            known = (name for name in _ATTACK_FIELDS if name in result.outcome)
            row["attacks"].append({name: result.outcome[name] for name in known})
            row["l2_error"], row["l2_expected"] = (
                result.outcome["l2_error"],
                result.outcome["l2_expected"],
            )
    return list(arms.values())


def _arm_id(settings: Mapping[str, Any]) -> str:
    return json.dumps(
        {k: v for k, v in settings.items() if k not in ("attack", "audit", "trials")},
        sort_keys=True,
    )


def _arm_row(result: CellResult) -> dict[str, Any]:
    settings, outcome = result.settings, result.outcome
    source, mitigation = settings["source"]["label"], settings["mitigation"]["label"]
    return {
        "label": source if settings["mitigation"]["name"] == "none" else f"{source}, {mitigation}",
        "source": source,
        "mitigation": mitigation,
        "settings": {
            "epsilon": settings["epsilon"],
            "delta": settings["delta"],
            "sigma": outcome["sigma"],
            **{k: v for k, v in outcome.get("key", {}).items() if k != "fingerprint"},
            **_options(settings, reserved=("epsilon", "delta", "sigma", "beta", "gamma")),
        },
        "audit": None,
        "attacks": [],
        "epsilon_claimed": settings["epsilon"],
        "epsilon_key_holder": outcome["epsilon_key_holder"],
        "l2_error": None,
        "l2_expected": None,
    }


def _options(settings: Mapping[str, Any], *, reserved: Sequence[str]) -> dict[str, Any]:
    """The host, and the options of the source and the mitigation: they tell arms apart.

    An option whose name is ``reserved``, or another's, has its plug-in's kind before it.
    """
    host = Reference(settings["host"]["name"], plugin_options(settings["host"]))
    options: dict[str, Any] = {"host": str(host)}
    for kind in ("source", "mitigation"):
        for option, value in plugin_options(settings[kind]).items():
            clash = option in options or option in reserved
            options[f"{kind} {option}" if clash else option] = value
    return options
