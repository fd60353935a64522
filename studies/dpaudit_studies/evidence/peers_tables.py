"""The Markdown tables of docs/studies/results/peers/README.md, from results.json's document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["catalogue_table", "replace_between", "tables"]

_TOOLS = {
    "dpaudit": "dpaudit",
    "dpaudit, μ": "dpaudit, μ turned into ε",
    "jax_privacy clopper-pearson/bonferroni": "`epsilon_clopper_pearson`, Bonferroni",
    "jax_privacy clopper-pearson/split": "`epsilon_clopper_pearson`, Split",
    "jax_privacy clopper-pearson/multisplit": "`epsilon_clopper_pearson`, MultiSplit",
    "jax_privacy gdp": "`epsilon_from_gdp`",
    "jax_privacy one-run/bonferroni": "`epsilon_one_run`, Bonferroni",
    "jax_privacy one-run/split": "`epsilon_one_run`, Split",
    "jax_privacy one-run/multisplit": "`epsilon_one_run`, MultiSplit",
    "jax_privacy one-run-fdp/bonferroni": "`epsilon_one_run_fdp`, Bonferroni",
    "jax_privacy one-run-fdp/split": "`epsilon_one_run_fdp`, Split",
}


def _best(answers: dict[str, Any], *families: str) -> tuple[float, str]:
    """The largest bound of these methods, and whose it is."""
    own = {m: a for m, a in answers.items() if m.partition("/")[0] in families}
    if not own:
        return 0.0, ""
    best = max(own, key=lambda m: own[m]["epsilon"])
    how = best.partition("/")[2]
    if "lowest" in own[best]:
        how += f", {own[best]['lowest']:.2f} to {own[best]['highest']:.2f}"
    return own[best]["epsilon"], how


def _true(value: float | None) -> str:
    return "∞" if value is None else f"{value:.2f}"


def tables(document: dict[str, Any]) -> str:
    """All three, each with a line about its settings above."""
    return "\n\n".join([_flawed(document), _one_run(document), _soundness(document)])


def _flawed(document: dict[str, Any]) -> str:
    n, level = document["samples"], 1 - document["alpha"]
    lines = [
        "**Whole mechanisms that claim ε = 1**, and steps of DP-SGD that claim μ = 1 (ε = 4.38 at "
        f"δ = 1e-5), along the canary's gradient: {n:,} releases at each of two neighbours, "
        f"confidence {level:.0%}. Bold: the bound contradicts the claim.",
        "",
        "| mechanism | δ | true ε | dpaudit: ε ≥ | μ as ε ≥ "
        "| jax_privacy, of the release: ε ≥ | told: ε ≥ | `epsilon_from_gdp` |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in document["flawed"]:
        ours = row["dpaudit"]
        bound, how = _best(row["jax_privacy"]["release"], "clopper-pearson")
        answers = row["jax_privacy"].get("told")
        scored = _cell(_best(answers, "clopper-pearson")[0], row) if answers else ""
        gaussian = "epsilon_by_mu" in ours
        by_mu = _cell(ours["epsilon_by_mu"], row) if gaussian else ""
        gdp = _cell(_best(row["jax_privacy"]["release"], "gdp")[0], row) if gaussian else ""
        lines.append(
            f"| {row['says']} | {row['delta']:g} | {_true(row['truth'])} | "
            f"{_cell(ours['epsilon'], row)} | {by_mu} | "
            f"{_cell(bound, row)} ({how}) | {scored} | {gdp} |"
        )
    return "\n".join(lines)


def _cell(bound: float, row: dict[str, Any]) -> str:
    return f"**{bound:.2f}**" if bound > row["claim"] else f"{bound:.2f}"


def _one_run(document: dict[str, Any]) -> str:
    level = 1 - document["alpha"]
    lines = [
        "**Canaries of one run**, each in by a fair coin, the same scores for both, δ = 1e-5, "
        f"confidence {level:.0%}. A split of jax_privacy's is the median of 11, with the lowest "
        "and the highest.",
        "",
        "| canaries | true ε | dpaudit: ε ≥ | μ as ε ≥ "
        "| `epsilon_one_run`: ε ≥ | `epsilon_one_run_fdp`: ε ≥ |",
        "|---|---|---|---|---|---|",
    ]
    for row in document["one_run"]:
        ours, theirs = row["dpaudit"], row["jax_privacy"]["score"]
        one, how = _best(theirs, "one-run")
        fdp, fdp_how = _best(theirs, "one-run-fdp")
        gaussian = row["law"] == "gaussian"
        lines.append(
            f"| {row['says']} | {_true(row['truth'])} | {ours['epsilon']:.2f} | "
            f"{format(ours['epsilon_by_mu'], '.2f') if gaussian else ''} | "
            f"{one:.2f} ({how}) | {f'{fdp:.2f} ({fdp_how})' if gaussian else ''} |"
        )
    return "\n".join(lines)


def _soundness(document: dict[str, Any]) -> str:
    lines = [
        "**Honest ones, many times**: how often the bound exceeds the truth; "
        f"{document['alpha']:.0%} is allowed. Brackets: 95 % interval (Clopper-Pearson). Bold: "
        "more than allowed, beyond that interval. Of jax_privacy's rows only these are shown.",
        "",
        "| honest case | true ε | bound | exceeds the truth | median bound |",
        "|---|---|---|---|---|",
    ]
    for row in document["soundness"]:
        if not row["tool"].startswith("dpaudit") and row["low"] <= document["alpha"]:
            continue
        share = f"{row['exceeds']} of {row['of']} [{row['low']:.1%}, {row['high']:.1%}]"
        if row["low"] > document["alpha"]:
            share = f"**{share}**"
        lines.append(
            f"| {row['says']} | {_true(row['truth'])} | {_TOOLS[row['tool']]} | "
            f"{share} | {row['median_bound']:.2f} |"
        )
    return "\n".join(lines)


_PEERS = {"dp-sniper": "DP-Sniper", "dp-auditorium": "DP-Auditorium"}


def catalogue_table(document: dict[str, Any]) -> str:
    """The broken mechanisms by every tool, and below them what holds of the whole catalogue."""
    peers = [name for name in _PEERS if name in document["rows"][0]]
    heads = [f"{_PEERS[name]}: ε ≥ [ours − its]" for name in peers]
    delta_head = ["its δ ≥ (ours)"] if "dp-auditorium" in peers else []
    lines = [
        f"**The catalogue's broken mechanisms**, {document['samples']:,} releases at each of two "
        f"neighbours, half to learn from, confidence {1 - document['alpha']:.0%}; every claim is "
        "ε = 1, with δ = 0 if none is named. Bold: the bound contradicts the claim.",
        "",
        f"| mechanism | true ε | dpaudit: ε ≥ | {' | '.join([*heads, *delta_head])} |",
        "|---" * (3 + len(peers) + len(delta_head)) + "|",
    ]
    for row in document["rows"]:
        if row["sound"]:
            continue
        own = row["dpaudit"]
        name = f"{row['name']}, δ = {row['delta']:g}" if row["delta"] else row["name"]
        cells = [name, row["true"]]
        cells += [_cell(own["epsilon"], row)]
        for name in peers:
            answer = row[name]
            low, high = answer["interval"]
            cells += [f"{_cell(answer['epsilon'], row)} [{low:+.2f}, {high:+.2f}]"]
        if delta_head:
            cells += [f"{row['dp-auditorium']['delta']:.2f} ({own['delta']:.2f})"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _misses(document["rows"], peers)])


def _misses(rows: list[dict[str, Any]], peers: list[str]) -> str:
    """The line below the table."""
    above = [
        f"{_PEERS[name]} on {row['name']} by {-row[name]['ours_less']:.2f}"
        for row in rows
        for name in peers
        if row[name]["interval"][1] < 0
    ]
    slowest = max(rows, key=lambda row: row["dpaudit"]["seconds"])
    listed = "; ".join(above) or "none"
    sound = [row for row in rows if row["sound"]]
    wrong = sum(any(row[n]["epsilon"] > row["claim"] for n in ("dpaudit", *peers)) for row in sound)
    return (
        f"Of {len(sound)} sound mechanisms, {wrong} have a bound above the claim. "
        f"A peer's bound is above ours by more than the interval: {listed}. "
        f"Ours took longest on {slowest['name']}: {slowest['dpaudit']['seconds']:.1f} s."
    )


def replace_between(page: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- name -->`` and the next ``<!-- end -->`` of a page."""
    start, end = f"<!-- {name} -->", "<!-- end -->"
    whole = page.read_text() if page.exists() else f"{start}\n{end}\n"
    before, _, rest = whole.partition(start)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{start}\n{text}\n{end}{after}")
