"""What defences take away: mitigations, submission policies, a run with third-party noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpaudit.experiments.measurements import measured
from result_tables.reading import interval, line, rows

HOSTS = ("32 bins", "3,143 bins", "gradient")


def training() -> Iterator[str]:
    found = rows("dpsgd-training")
    for name in dict.fromkeys(row["arm"] for row in found):
        by = {row["attacker"]: row for row in found if row["arm"] == name}
        key, none = by["key: likelihood"], by["no key: likelihood"]
        yield line(
            [
                name,
                interval(key["accuracy"]),
                f"{key['epsilon_reported']:.3g}",
                key["audit"],
                interval(key["right"]),
                interval(none["right"]),
                *(
                    f"{who['auc_wrong']['value']:.3f}, {who['auc_real']['value']:.3f}"
                    for who in (key, none)
                ),
                interval(key["tpr_wrong"]),
                f"{key['epsilon_shown']:.2f}",
            ]
        )


def next_batch() -> Iterator[str]:
    """Next batches of DP-SGD runs, and ε towards who knows coins."""
    for row in rows("next-batch"):
        epsilons = ("epsilon_claimed", "epsilon_holder", "epsilon_worst")
        yield line(
            [
                row["coins"],
                interval(row["success"]),
                interval(row["right"]) if row["right"] else "–",
                *(measured(row[key], "epsilon") if row[key] else "–" for key in epsilons),
                f"{100 * row['flips']:.1f} %",
                f"{100 * row['accuracy']:.1f} %",
            ]
        )


def opacus_replay() -> Iterator[str]:
    """What one step's noise tells of all later ones."""
    for row in rows("opacus-replay"):
        yield line(
            [
                "Opacus' own" if row["noise"] == "opacus" else f"`{row['noise']}`",
                interval(row["success"]),
                interval(row["batches"]),
                f"{row['predicted']:,} of {row['compared']:,}",
                f"{row['needed']:,}" if row["needed"] else "–",
                f"{row['seconds']:.2f}",
                f"{row['error']:.0e}" if row["error"] else "–",
                f"{row['epsilon_claimed']:.3g}",
                "∞" if row["epsilon_attacker"] else "–",
            ]
        )


def seeds() -> Iterator[str]:
    """Which seed made the noise of a step: what is tried, at what cost, what is found."""
    for row in rows("seeds"):
        found = "nothing"
        if row["seed"] is not None:
            found = f"{int(row['seed']):,}, start {row['start']:,}"
        bound = "–" if row["log_p"] is None else f"10^{row['log_p'] / math.log(10):.0f}"
        seconds = f"{row['seconds']:.2f}"
        yield line([row["name"], row["values"], f"{row['tries']:,}", seconds, found, bound])


def mitigations() -> Iterator[str]:
    """One row per arm: what its strongest attack wins of each host, where it beats honest noise.

    Noise that carries its own seed has a table of its own, `seeded`. Servers are shown around a
    pancake.
    """
    arms: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows("mitigations"):
        servers = "server" in row["mitigation"] and row["source"] != "pancake"
        if not (servers or row["source"].startswith("seed")):
            arm = arms.setdefault((row["source"], row["mitigation"]), {})
            arm.setdefault(row["host"], []).append(row)
    for (source, mitigation), hosts in arms.items():
        last = hosts[next(host for host in reversed(HOSTS) if host in hosts)][0]
        yield line(
            [
                source,
                mitigation,
                *(_won(hosts[host]) if host in hosts else "" for host in HOSTS),
                measured(last["epsilon_holder"], "epsilon"),
                f"{last['error']:.4f}" if last["error"] < 1.01 else f"{last['error']:.2f}",
            ]
        )


def costs() -> Iterator[str]:
    """What a release behind each protocol takes, around a pancake, on the last host it has."""
    last = {row["mitigation"]: row for row in rows("mitigations") if row["source"] == "pancake"}
    for mitigation in ("two-servers", "joint-seeds", "verifiable-counts"):
        seconds = last[mitigation]["seconds"]
        shown = f"{1000 * seconds:.2g} ms" if seconds < 0.1 else f"{seconds:.2f} s"
        yield f"`{mitigation}` {shown} and {last[mitigation]['wire']:,} bytes"


def seeded() -> Iterator[str]:
    """What the reader of noise that carries its own seed wins behind each mitigation."""
    by: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for row in rows("mitigations"):
        if row["attack"] == "seed-reader":
            by.setdefault(row["mitigation"], {})[row["host"], row["source"]] = row
    for mitigation, found in by.items():
        arms = [("32 bins", "seed-in-noise")] + [
            (host, source)
            for host in ("3,143 bins", "gradient")
            for source in ("seed-in-noise", "seed in signs")
        ]
        cells = [found.get(arm) for arm in arms]
        epsilon = [
            measured(r["epsilon_holder"], "epsilon") for r in (*cells[:1], *cells[2::2]) if r
        ]
        yield line([mitigation, *map(_read, cells), "; ".join(epsilon)])


def _read(row: Mapping[str, Any] | None) -> str:
    won = interval(row["success"]) if row else ""
    return f"**{won}**" if row and row["beats_honest"] else won


def _won(attacks: Sequence[Mapping[str, Any]]) -> str:
    """Of the attacks that name one of two."""
    best = max(
        (row for row in attacks if row["chance"] == 0.5),
        key=lambda row: float(row["success"]["value"]),
    )
    won = f"{100 * best['success']['value']:.1f} %"
    return f"**{won}** ({best['attack']})" if any(row["beats_honest"] for row in attacks) else won


def submissions() -> Iterator[str]:
    """What devices can do, at ε = 4 a report: both adversaries' AUC-PN and the curator's error."""
    found = [
        row
        for row in rows("bpia-mitigations")
        if row["epsilon"] == 4 or row["submissions"] == "every"
    ]
    for at in dict.fromkeys((row["setting"], row["epsilon"], row["submissions"]) for row in found):
        own = {
            row["adversary"]: row
            for row in found
            if (row["setting"], row["epsilon"], row["submissions"]) == at
        }
        one = own["strong"]
        yield line(
            [
                *(str(part) if isinstance(part, str) else f"{part:g}" for part in at),
                *(f"{own[name]['auc_pn']['value']:.3f}" for name in ("weak", "strong")),
                f"{one['MAE']:.2g}",
                measured(one["epsilon_person"], "epsilon"),
            ]
        )
