"""What `extensions/dpaudit_prove/evidence.py` proved, refuted and saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from result_tables.reading import line, results

Row = Mapping[str, Any]


def _rows(part: str) -> Mapping[str, Row]:
    found: Mapping[str, Row] = results("prove", f"{part}.json")["rows"]
    return found


def opendp() -> Iterator[str]:
    """The planted division of OpenDP up to 0.14.1: claimed and exact ε."""
    for row in _rows("opendp").values():
        if row["function"] == "laplace_mechanism":
            at = row["profile"][0]["delta"]
            low, high = _epsilon(row)
            claimed = 1 / row["parameter"]
            yield line(
                [
                    row["parameter"],
                    f"{claimed:.4f}",
                    f"{low:.4f}" if f"{low:.4f}" == f"{high:.4f}" else f"{low:.4f} to {high:.4f}",
                    f"{low / claimed:.2f}",
                    "0" if at["low"] == 0 else f"{at['low']:.2e}",
                    row["verdict"],
                    f"{row['states']:,}",
                ]
            )


def sampled() -> Iterator[str]:
    """What is proved, and what 10^6 releases per neighbour show."""
    for name, row in _rows("sampling").items():
        proof, seen = row["proved"], row["sampled"]
        at = proof["profile"][0]["delta"]
        low, high = _epsilon(proof)
        yield line(
            [
                name,
                row["claimed"],
                proof["reason"].partition("at δ = ")[2].split()[0],
                proof["verdict"],
                _between(low, high),
                "0" if at["low"] == 0 else f"≥ {at['low']:.2e}",
                seen["verdict"],
                f"≥ {seen['epsilon']['low']:.4f}",
            ]
        )


def _epsilon(row: Row) -> tuple[float, float]:
    """The bounds of the least ε at the claimed δ, from the reason."""
    words = row["reason"].partition("the least ε is between ")[2].replace(";", " ").split()
    return float(words[0]), float(words[2])


def _between(low: float, high: float) -> str:
    return f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} to {high:.4g}"
