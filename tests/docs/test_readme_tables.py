"""The README's tables of measured results are those of the results files that are committed beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows(name: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = json.loads(
        (ROOT / "docs" / "results" / name / "results.json").read_text(encoding="utf-8")
    )["rows"]
    return found


def share(p: float | None) -> str:
    return "" if p is None else f"{p:.3f}" if 0 < p < 1 else f"{p:g}"


def library_lines() -> Iterator[str]:
    """One line a mechanism: the attack that shows most, or all that show nothing beyond the claim."""
    kept: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows("libraries"):
        by_time = "time" if row["attack"] == "timing" else ""
        kept.setdefault((row["library"], row["mechanism"].split(":scale=10")[0] + by_time), []).append(row)
    for found in kept.values():
        row = max(found, key=lambda one: one["epsilon"])
        bad = row["verdict"] not in ("not broken", "inconclusive")
        attacks = [row["attack"]] if bad else sorted({one["attack"] for one in found})
        values = [
            row["library"],
            f"`{row['mechanism']}`",
            ", ".join(name.partition(":")[0] for name in attacks),
            share(row["p0"]),
            share(row["p1"]),
            row["claimed"],
            f"{row['epsilon']:.2f}",
            f"**{row['verdict']}**" if bad else row["verdict"],
        ]
        yield f"| {' | '.join(values)} |"


def dpsgd_lines() -> Iterator[str]:
    for row in rows("dpsgd-bits"):
        s = row["success"]
        values = [
            row["attack"],
            "yes" if row["secure_mode"] else "no",
            f"{row['noise_multiplier']:g}",
            f"{row['model']}, {row['neighbour']}",
            f"{row['sees']}, order {row['order']}",
            f"{100 * s['value']:.1f} % [{100 * s['low']:.1f}, {100 * s['high']:.1f}]",
        ]
        yield f"| {' | '.join(values)} |"


def training_lines() -> Iterator[str]:
    found = rows("dpsgd-training")
    for name in dict.fromkeys(row["arm"] for row in found):
        by = {row["attacker"]: row for row in found if row["arm"] == name}
        key, none = by["key: likelihood"], by["no key: likelihood"]
        values = [
            name,
            percent(key["accuracy"]),
            f"{key['epsilon_reported']:.3g}",
            key["audit"],
            percent(key["right"]),
            percent(none["right"]),
            f"{key['auc_wrong']['value']:.3f}, {key['auc_real']['value']:.3f}",
            f"{none['auc_wrong']['value']:.3f}, {none['auc_real']['value']:.3f}",
            percent(key["tpr_wrong"]),
            f"{key['epsilon_shown']:.2f}",
        ]
        yield f"| {' | '.join(values)} |"


def percent(share: Mapping[str, float]) -> str:
    return f"{100 * share['value']:.1f} % [{100 * share['low']:.1f}, {100 * share['high']:.1f}]"


def test_the_table_of_a_training_run() -> None:
    missing = [line for line in training_lines() if line not in README]
    assert not missing


def test_the_table_of_libraries() -> None:
    lines = list(library_lines())
    assert len(lines) > 30
    missing = [line for line in lines if line not in README]
    assert not missing


def test_the_table_of_dpsgd() -> None:
    missing = [line for line in dpsgd_lines() if line not in README]
    assert not missing
