"""Audits that stop when they are certain: releases until contradiction, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from result_tables.reading import line, results

__all__ = ["price", "small", "until"]


def _quantile(counts: Sequence[int | None], share: float) -> float:
    ordered = sorted(math.inf if n is None else n for n in counts)
    return ordered[math.ceil(share * len(ordered)) - 1]


def _both(counts: Sequence[int | None]) -> str:
    found = [_quantile(counts, share) for share in (0.5, 0.9)]
    return " / ".join("never" if math.isinf(q) else f"{q:,.0f}" for q in found)


def _rows(name: str, alpha: str, *variants: str) -> Iterator[str]:
    pools: dict[str, list[int | None]] = {}
    for row in results("sequential", f"{name}.json")["rows"]:
        if row["sound"]:
            continue
        counts: Mapping[str, Any] = {
            "ours": row["ours"][alpha],
            **{v: row.get("published", {}).get(v, {}).get(alpha) for v in variants},
        }
        if not row["mechanism"].startswith("NonDP"):
            for key, values in counts.items():
                pools.setdefault(key, []).extend(values or [])
        yield line([row["mechanism"], *(_both(v) if v else "–" for v in counts.values())])
    whole = [_both(values) if values else "–" for values in pools.values()]
    yield line(["**all streams of the 24**", *whole])


def until() -> Iterator[str]:
    """At the catalogue's own claim."""
    found = results("sequential", "fixed.json")["rows"]
    fixed = {row["mechanism"]: row["fixed"]["0.01"] for row in found if "fixed" in row}
    rows = [row for row in _rows("until", "0.01") if "NonDP" not in row]  # the catalogue's
    for text in rows[:-1]:
        least = fixed[text.split("|")[1].strip()]
        yield f"{text} {'–' if least is None else format(least, ',')} |"
    yield f"{rows[-1]} – |"


def small() -> Iterator[str]:
    """At a claim of 0.1, beside the published test."""
    yield from _rows("small", "0.05", "paper", "unit")


def price() -> Iterator[str]:
    """The bound of the same releases, sequential and fixed."""
    for row in results("sequential", "price.json")["rows"]:
        ratio = f"{row['bets'] / row['fixed']:.2f}" if row["fixed"] else "–"
        bounds = f"{row['fixed']:.2f}", f"{row['bets']:.2f}"
        yield line([row["mechanism"], row["true"], *bounds, ratio])
