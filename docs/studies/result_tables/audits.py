"""What the audits find: the zoo, libraries, samplers of other languages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dpaudit.experiments import load_spec
from dpaudit_studies.evidence.synthetic import table
from result_tables.reading import line, rows, share

FAMILIES = {
    "law": "the law of single values (σ off by 0.3 %, t with 200 degrees of freedom, "
    "cut or one-sided tails, gaps, sign bias 0.002)",
    "digits": "digits (Box–Muller from 16-bit uniforms, rounding, float16, fixed point)",
    "dependence": "dependence in draw order (AR(1) 0.01, lag 1,000, "
    "antithetic or stratified rows, volatility)",
    "geometry": "rows (low rank, spheres, one coordinate in 4,096, one pair of 64)",
    "direction": "hidden directions (pancakes from γ = 1 to γ = 2√d, other laws)",
    "running": "calls and time (seeds reused every 2^16 calls, replays, every 1,000th call, "
    "drift, special d)",
    "generator": "broken generators (RANDU, `rand()`, a 32-bit LCG, middle square, Wallace)",
    "value": "noise that depends on the value",
    "other claim": "Laplace and discrete claims (missing odd numbers, wrong law, off by one)",
}

GENERATORS = {  # by the first that a sampler's generator is like
    "Mersenne Twister": "Mersenne",
    "ChaCha20, ISAAC, the system's": "ChaCha|ISAAC|system",
    "mixed, scrambled or by counter (PCG, SFC, SplitMix, xoroshiro128++, Philox, Threefry)":
    r"PCG|SFC|SplitMix|xoroshiro|Philox|Threefry",
    "lagged Fibonacci, subtract with borrow": "lagged|borrow|additive",
    "linear modulo 2 (Tausworthe, xorshift128+, WELL, r250)": "Tausworthe|xorshift|WELL|^shift",
    "congruential, also combined, shuffled or inverted": "congruential|carry|modulo|inversive",
}  # fmt: skip
BATTERIES = ("audit", "Rabbit", "PractRand")


def _found(families: Iterable[str]) -> tuple[int, int, list[int]]:
    """Specimens of these families, how many the audit found, and how many KS, AD, SP 800-22 did."""
    own = [row for row in rows("zoo") if row["family"] in set(families)]
    return (
        len(own),
        sum(row["found"] for row in own),
        [sum(row[o] is True for row in own) for o in ("ks", "ad", "sp800_22")],
    )


def zoo() -> Iterator[str]:
    for family, title in FAMILIES.items():
        total, ours, others = _found((family,))
        yield line([title, f"{ours} of {total}", *others])
    total, ours, others = _found(FAMILIES)
    yield line(["**all**", f"**{ours} of {total}**", *others])


def batteries() -> Iterator[str]:
    """By kind of generator: samplers, who finds how many, and what only another battery finds."""
    right = set(load_spec("real-samplers-right").grid["sampler"])
    kinds: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in GENERATORS}
    honest = "**right ones** of `real-samplers-right`: false alarms"
    kinds |= {"**all of these**": [], honest: []}
    for row in rows("other-batteries"):
        kind = next(k for k, like in GENERATORS.items() if re.search(like, row["generator"]))
        for each in (honest,) if row["sampler"] in right else (kind, "**all of these**"):
            kinds[each].append(row)
    for kind, own in kinds.items():
        found = (sum(row["by"][name]["found"] for row in own) for name in BATTERIES)
        behind = [
            f"`{row['sampler']}` ({' and '.join(others)})"
            for row in own
            if (others := [b for b in BATTERIES if row["by"][b]["found"]]) and "audit" not in others
        ]
        yield line([kind, len(own), *found, "; ".join(behind) or "–"])
    every = rows("other-batteries")
    spent = (sum(row["by"][name]["cpu_seconds"] for row in every) for name in BATTERIES)
    yield line(["CPU seconds", len(every), *(f"{seconds:,.0f}" for seconds in spent), ""])


def zoo_whole() -> str:
    """The zoo in half a sentence."""
    total, ours, (ks, ad, nist) = _found(FAMILIES)
    shown = f"Kolmogorov–Smirnov {ks}, Anderson–Darling {ad}, SP 800-22 {nist}"
    return f"Of {total} flawed samplers, {ours} are found at 10⁷ values and α = 0.01 ({shown}"


def predictable() -> Iterator[str]:
    """Per generator and test: values needed, predicted at, CPU seconds, held out."""
    for row in rows("predictable"):
        needed, drawn = ("" if row[key] is None else f"{row[key]:,}" for key in ("needed", "drawn"))
        held_out = row["predicted"] or "nothing"
        seconds = f"{row['seconds']:.2f}"
        yield line([row["generator"], row["test"], needed, drawn, seconds, held_out])


def public_seeds() -> Iterator[str]:
    """Per project and seed: where it is, where the noise is drawn, and what was read of step 1."""

    def at(places: Iterable[Mapping[str, Any]], parts: int) -> list[str]:
        return [f"{_end(place['path'], parts)}:{place['line']}" for place in places]

    for row in rows("recipes"):
        seeded = {place["path"] for place in row["seeds"]}
        recipes = [_end(path, 2) for path in row["recipes"] if path not in seeded]
        right = "–" if row["default"].startswith("no") else "not run"
        if row["right"]:
            right = f"{row['right'][0]:,} of {row['right'][1]:,}"
        project = f"{row['project']} {row['version']}".strip()
        where = "<br>".join([*recipes, *at(row["seeds"], 2)])
        about = (row["default"], "<br>".join(at(row["noise"], 1)), row["generator"])
        yield line([project, where, row["seed"], *about, row["needs"] or "–", right])


def _end(path: str, parts: int) -> str:
    return "/".join(path.split("/")[-parts:])


def libraries() -> Iterator[str]:
    """One row per mechanism: the strongest attack, or all if none shows more than the claim."""
    kept: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows("libraries"):
        by_time = "time" if row["attack"] == "timing" else ""
        mechanism = row["mechanism"].split(":scale=10")[0] + by_time
        kept.setdefault((row["library"], mechanism), []).append(row)
    for found in kept.values():
        row = max(found, key=lambda one: float(one["epsilon"]))
        bad = row["verdict"] not in ("not broken", "inconclusive")
        attacks = [row["attack"]] if bad else sorted({one["attack"] for one in found})
        yield line(
            [
                row["library"],
                f"`{row['mechanism']}`",
                ", ".join(name.partition(":")[0] for name in attacks),
                share(row["p0"]),
                share(row["p1"]),
                row["claimed"],
                f"{row['epsilon']:.2f}",
                f"**{row['verdict']}**" if bad else row["verdict"],
            ]
        )


def synthetic() -> Iterator[str]:
    yield from table(rows("synthetic"))
