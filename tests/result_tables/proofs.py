"""What `benchmarks/prove.py` proved, refuted and saw."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from result_tables.reading import ROOT, line

Row = Mapping[str, Any]


def _rows(part: str) -> Mapping[str, Row]:
    text = (ROOT / "docs" / "results" / "prove" / f"{part}.json").read_text(encoding="utf-8")
    found: Mapping[str, Row] = json.loads(text)["rows"]
    return found


def samplers() -> Iterator[str]:
    """Samplers that are right, and what was refused."""
    for row in _rows("samplers").values():
        name = row["program"].partition(":")[2] + _arguments(row["arguments"])
        if "verdict" not in row:
            yield line([row["whose"], f"`{name}`", _claim(row), "refused", *[""] * 7])
            continue
        low, high = row["total_variation"]["low"], row["total_variation"]["high"]
        far = _small(low) if low or not high else f"≤ {_small(high)}"
        yield line(
            [
                row["whose"],
                f"`{name}`",
                _claim(row),
                row["verdict"],
                f"{row['states']:,}",
                f"{row['cpu_seconds']:.1f}",
                _power(row["residual"]),
                far,
                *_certificate(row),
            ]
        )


def bugs() -> Iterator[str]:
    """Planted bugs, each with what refutes it."""
    for row in _rows("bugs").values():
        coins = row["counterexample"]["coins"]
        said = row["counterexample"]["says"].partition(", but ")[0].partition(" for one")[0]
        if row["total_variation"] is not None:
            far = f"distance ≥ {_small(row['total_variation']['low'])}"
        else:
            far = f"δ({row['epsilon']}) ≥ {_small(row['profile'][0]['delta']['low'])}"
        yield line(
            [
                row["name"],
                f"`{row['function']}`",
                row["verdict"],
                far,
                said,
                f"{row['counterexample']['output']}, {len(coins)}",
                f"{row['states']:,}",
                f"{row['cpu_seconds']:.1f}",
            ]
        )


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


def specimens() -> Iterator[str]:
    """Backdoored noise, and honest noise, by the coins of its values."""
    for name, row in _rows("specimens").items():
        yield line(
            [f"`{name}`", row["disjoint"], f"{row['states']:,}", f"{row['cpu_seconds']:.1f}"]
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
                proof["verdict"],
                f"{low:.4f}" if f"{low:.4f}" == f"{high:.4f}" else f"{low:.4f} to {high:.4f}",
                "0" if at["low"] == 0 else f"≥ {at['low']:.2e}",
                seen["verdict"],
                f"≥ {seen['epsilon']['low']:.4f}",
            ]
        )


def _arguments(arguments: Mapping[str, Any]) -> str:
    return f"({', '.join(f'{k}={v:g}' for k, v in arguments.items())})"


def _claim(row: Row) -> str:
    family, _, rest = row["claim"].partition(":")
    option, _, value = rest.partition("=")
    return f"`{family}:{option}={value if len(value) < 30 else '…'}`"


def _epsilon(row: Row) -> tuple[float, float]:
    """The bounds of the least ε at the claimed δ, from the reason."""
    words = row["reason"].partition("the least ε is between ")[2].replace(";", " ").split()
    return float(words[0]), float(words[2])


def _power(x: float) -> str:
    return "0" if not x else f"{x:.1e}"


def _small(x: float) -> str:
    return "0" if not x else f"{x:.3g}"


def _certificate(row: Row) -> list[str]:
    check = row.get("check", {})
    holds = {0: "holds", 1: "does not hold"}.get(check.get("exit"), "")
    return [f"{row['certificate_bytes']:,}", f"{check['cpu_seconds']:.1f}", holds]
