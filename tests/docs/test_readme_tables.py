"""The README's tables of measured results are those of the results files that are committed beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpaudit.report.format import epsilon

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MITIGATIONS = (ROOT / "mitigations" / "README.md").read_text(encoding="utf-8")
HOSTS = ("32 bins", "3,143 bins", "gradient")


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


def mitigation_lines() -> Iterator[str]:
    """One line an arm: what its strongest attack wins of each host, named where it is more than from honest noise."""
    arms: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows("mitigations"):
        arms.setdefault((row["source"], row["mitigation"]), {}).setdefault(row["host"], []).append(row)
    for (source, mitigation), hosts in arms.items():
        last = hosts[next(host for host in reversed(HOSTS) if host in hosts)][0]
        values = [
            source,
            mitigation,
            *(_won(hosts[host]) if host in hosts else "" for host in HOSTS),
            epsilon(last["epsilon_holder"]),
            f"{last['error']:.4f}" if last["error"] < 1.01 else f"{last['error']:.2f}",
            f"{1000 * last['seconds']:.2g} ms" if last["seconds"] < 0.1 else f"{last['seconds']:.2f} s",
            f"{last['wire']:,}" if last["wire"] else "",
        ]
        yield f"| {' | '.join(values)} |"


def _won(attacks: Sequence[Mapping[str, Any]]) -> str:
    """Of the attacks that name one of two."""
    best = max((row for row in attacks if row["chance"] == 0.5), key=lambda row: float(row["success"]["value"]))
    won = f"{100 * best['success']['value']:.1f} %"
    return f"**{won}** ({best['attack']})" if any(row["beats_honest"] for row in attacks) else won


def test_the_table_of_mitigations() -> None:
    lines = list(mitigation_lines())
    assert len(lines) > 20
    missing = [line for line in lines if line not in MITIGATIONS]
    assert not missing


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


def pool_lines() -> Iterator[str]:
    """AUC-PN of Tables 2 and 3: ours, and the published value in brackets."""
    for name, setting in (("bpia-table2", "emoji skin tones, ε = 4"), ("bpia-table3", "news websites, ε = 8")):
        found = rows(name)
        for adversary in dict.fromkeys(row["adversary"] for row in found):
            own = [row for row in found if row["adversary"] == adversary]
            cells = [f"{row['auc_pn']['value']:.3f} ({row['published']:g})" for row in own]
            yield f"| {setting} | {adversary} | {' | '.join(cells)} |"


def test_the_table_of_pool_inference() -> None:
    lines = list(pool_lines())
    assert len(lines) == 6
    assert not [line for line in lines if line not in README]


def submission_lines() -> Iterator[str]:
    """What devices can do, the strongest adversary's AUC-PN and the curator's error, on the same submissions."""
    found = rows("bpia-mitigations")
    for at in dict.fromkeys((row["setting"], row["epsilon"], row["submissions"]) for row in found):
        own = {row["adversary"]: row for row in found if (row["setting"], row["epsilon"], row["submissions"]) == at}
        one = own["strong"]
        values = [
            *(str(part) if isinstance(part, str) else f"{part:g}" for part in at),
            *(f"{own[name]['auc_pn']['value']:.3f}" for name in ("weak", "strong")),
            f"{one['MAE']:.2g}",
            epsilon(one["epsilon_person"]),
        ]
        yield f"| {' | '.join(values)} |"


def test_the_table_of_submission_policies() -> None:
    lines = list(submission_lines())
    assert len(lines) > 10
    assert not [line for line in lines if line not in MITIGATIONS]
