"""The Markdown tables of docs/studies/results/peers/README.md, from results.json's document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["catalogue_table", "replace_between", "tables"]


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


def _true(value: float | str) -> str:
    return "∞" if isinstance(value, str) else f"{value:.2f}"


def tables(document: dict[str, Any]) -> str:
    """All three, each with a line about its settings above; the first two of the first version."""
    parts = _flawed, _one_run, _later, _soundness
    return "\n\n".join(part(document) for part in parts)


def _later(document: dict[str, Any]) -> str:
    """How many bounds of jax_privacy's two versions differ where the tables show one of them."""
    rows = [row["jax_privacy"] for row in document["flawed"] + document["one_run"]]
    bounds = [
        [by[scores][method]["epsilon"] for by in row.values()]
        for row in rows
        for scores, answers in next(iter(row.values())).items()
        for method in answers
        if "/" in method
    ]
    differ = sum(len({*pair}) > 1 for pair in bounds)
    return f"Of {len(bounds)} bounds by the other methods {differ} differ between the versions."


def _flawed(document: dict[str, Any]) -> str:
    n, level = document["samples"], 1 - document["alpha"]
    first, *later = document["peers"]
    lines = [
        "**Whole mechanisms that claim ε = 1**, and steps of DP-SGD that claim μ = 1 (ε = 4.38 at "
        f"δ = 1e-5), along the canary's gradient: {n:,} releases at each of two neighbours, "
        f"confidence {level:.0%}. Bold: the bound contradicts the claim.",
        "",
        "| mechanism | δ | true ε | dpaudit: ε ≥ | μ as ε ≥ "
        f"| jax_privacy {first}, of the release: ε ≥ | told: ε ≥ | `epsilon_from_gdp` "
        + "".join(f"| the same, `{version}` " for version in later)
        + "|",
        "|---" * (8 + len(later)) + "|",
    ]
    for row in document["flawed"]:
        ours = row["dpaudit"]
        theirs = row["jax_privacy"]
        bound, how = _best(theirs[first]["release"], "epsilon_clopper_pearson")
        answers = theirs[first].get("told")
        scored = _cell(_best(answers, "epsilon_clopper_pearson")[0], row) if answers else ""
        gaussian = "epsilon_by_mu" in ours
        by_mu = _cell(ours["epsilon_by_mu"], row) if gaussian else ""
        gdp = [
            _cell(_best(own["release"], "epsilon_from_gdp")[0], row)
            for own in theirs.values()
            if gaussian
        ]
        lines.append(
            f"| {row['says']} | {row['delta']:g} | {_true(row['truth'])} | "
            f"{_cell(ours['epsilon'], row)} | {by_mu} | "
            f"{_cell(bound, row)} ({how}) | {scored} | "
            f"{' | '.join(gdp or [''] * len(theirs))} |"
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
        ours, theirs = row["dpaudit"], row["jax_privacy"][next(iter(document["peers"]))]["score"]
        one, how = _best(theirs, "epsilon_one_run")
        fdp, fdp_how = _best(theirs, "epsilon_one_run_fdp")
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
        "more than allowed, beyond that interval. Of jax_privacy's other methods those that are "
        "bold are shown.",
        "",
        "| honest case | true ε | bound | exceeds the truth | median bound |",
        "|---|---|---|---|---|",
    ]
    for row in document["soundness"]:
        if "/" in row["tool"] and row["low"] <= document["alpha"]:
            continue
        share = f"{row['exceeds']} of {row['of']} [{row['low']:.1%}, {row['high']:.1%}]"
        if row["low"] > document["alpha"]:
            share = f"**{share}**"
        lines.append(
            f"| {row['says']} | {_true(row['truth'])} | {row['tool']} | "
            f"{share} | {row['median_bound']:.2f} |"
        )
    return "\n".join(lines)


_PEERS = {"dp-sniper": "DP-Sniper", "dp-auditorium": "DP-Auditorium"}


def catalogue_table(document: dict[str, Any]) -> str:
    """The broken mechanisms by every tool, and below them what holds of the whole catalogue."""
    peers = [name for name in _PEERS if name in document["rows"][0]]
    heads = [f"{_PEERS[name]} `{document['peers'][name]}`: ε ≥ [ours − its]" for name in peers]
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
    sound = [row for row in rows if row["sound"]]
    wrong = sum(any(row[n]["epsilon"] > row["claim"] for n in ("dpaudit", *peers)) for row in sound)
    return (
        f"Of {len(sound)} sound mechanisms, {wrong} have a bound above the claim. "
        f"A peer's bound is above ours by more than the interval: {'; '.join(above) or 'none'}."
    )


def replace_between(page: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- name -->`` and the next ``<!-- end -->`` of a page."""
    start, end = f"<!-- {name} -->", "<!-- end -->"
    whole = page.read_text() if page.exists() else f"{start}\n{end}\n"
    before, _, rest = whole.partition(start)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{start}\n{text}\n{end}{after}")
