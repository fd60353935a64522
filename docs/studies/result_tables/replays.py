"""Replays of published, current, catalogued and made-up pipelines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from result_tables.reading import line, rows

__all__ = ["cases", "catalogue", "current", "published"]


def _number(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value).replace("inf", "∞")


def published() -> Iterator[str]:
    """Each published violation, by a replay and by dp-recorder."""
    for row in rows("replay-published"):
        ours, theirs = row["replay"], row.get("recorder") or {}
        place = ours.get("line") or ours.get("at") or ""
        yield line(
            [
                row["row"],
                row["release"],
                ours["found"],
                ours.get("kind", ""),
                f"`{place}`" if place else "",
                _number(ours.get("epsilon")),
                ours["seconds"],
                theirs.get("found", ""),
                theirs.get("seconds", ""),
                theirs.get("lines", ""),
            ]
        )


def current() -> Iterator[str]:
    """Each pipeline of a current release."""
    for row in rows("replay-current"):
        yield line(
            [
                row["release"],
                f"`{row['name']}`",
                row["verdict"],
                ", ".join(row.get("kinds") or ()),
                _number(row["claim_epsilon"]),
                _number(row.get("composed")),
                row.get("pairs", ""),
                row.get("seconds", ""),
            ]
        )


def catalogue() -> Iterator[str]:
    """Each mechanism of the catalogue, beside its true ε."""
    for row in rows("replay-catalogue"):
        shown = _number(float(row["shown"])) if row["shown"] else ""
        yield line(
            [
                f"`{row['mechanism']}`",
                "sound" if row["sound"] else "broken",
                row["true"],
                _number(row["claim"]),
                _number(row["stated"]),
                shown,
                row["verdict"],
                ", ".join(row["kinds"]),
            ]
        )


def cases() -> Iterator[str]:
    """Right and planted pipelines, by what they are written with."""
    all_rows = rows("replay-cases")
    for file in sorted({row["file"] for row in all_rows}):
        counts = Counter((row["group"], row["verdict"]) for row in all_rows if row["file"] == file)
        found = sum(r["ok"] for r in all_rows if r["file"] == file and r["group"] == "planted")
        right = [counts["right", v] for v in ("no-finding", "inconclusive", "finding")]
        planted = sum(n for (group, _), n in counts.items() if group == "planted")
        yield line(
            [file.replace("_", " "), *right, planted, found, counts["planted", "inconclusive"]]
        )
