"""The table of an attack experiment: one row an arm (source × mitigation under one setting)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.types import CellResult

__all__ = ["arm_rows"]

_ATTACK_FIELDS = ("attack", "successes", "trials", "success", "interval", "chance", "epsilon_lower_bound", "details")


def arm_rows(results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """One row an arm, with its audit and its attacks; no times, no provenance."""
    arms: dict[str, dict[str, Any]] = {}
    for result in results:
        row = arms.setdefault(_arm_id(result.settings), _row(result))
        if result.kind == "audit":
            tests = result.outcome["tests"]
            row["audit"] = {
                "verdict": result.outcome["verdict"],
                "samples": result.outcome["samples"],
                "alpha": result.outcome["alpha"],
                "smallest_p": min((t["p_adjusted"] for t in tests), default=1.0),
            }
        else:
            row["attacks"].append({k: result.outcome[k] for k in _ATTACK_FIELDS})
            row["l2_error"], row["l2_expected"] = result.outcome["l2_error"], result.outcome["l2_expected"]
    return list(arms.values())


def _arm_id(settings: Mapping[str, Any]) -> str:
    return json.dumps({k: v for k, v in settings.items() if k not in ("attack", "audit", "trials")}, sort_keys=True)


def _row(result: CellResult) -> dict[str, Any]:
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
        },
        "audit": None,
        "attacks": [],
        "epsilon_claimed": settings["epsilon"],
        "epsilon_key_holder": outcome["epsilon_key_holder"],
        "l2_error": None,
        "l2_expected": None,
    }
