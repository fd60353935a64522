"""What the audits find: the zoo, libraries, samplers of other languages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
