"""What `extensions/dpaudit_prove/evidence.py` proved, refuted and saw."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from result_tables.reading import RESULTS, line

Row = Mapping[str, Any]


def _rows(part: str) -> Mapping[str, Row]:
    text = (RESULTS / "prove" / f"{part}.json").read_text(encoding="utf-8")
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


def mechanisms() -> Iterator[str]:
    """Whole mechanisms at two neighbours: claimed and exact ε."""
    for name, row in _rows("mechanisms").items():
        at = row["profile"][0]["delta"]
        yield line(
            [
                name,
                row["neighbours"].replace(",", ", "),
                row["epsilon"],
                _raised(row["delta"]),
                row["verdict"],
                _between(*_epsilon(row)),
                f"≥ {_small(at['low'])}" if at["low"] else f"≤ {_small(at['high'])}",
                f"{row['states']:,}",
                _power(row["residual"]),
                f"{row['cpu_seconds']:.1f}",
                *_certificate(row),
            ]
        )


def opendp_gaussian() -> Iterator[str]:
    """The same division in the discrete Gaussian: δ at ε = 1, and the right one."""
    for row in _rows("opendp").values():
        if row["function"] == "gaussian_mechanism":
            at = row["profile"][0]["delta"]
            right = _right_delta(row["parameter"])
            yield line(
                [
                    row["parameter"],
                    f"{right:.4e}",
                    f"{at['low']:.4e}",
                    f"{at['low'] / right:.2f}",
                    _between(*_epsilon(row)),
                    f"{row['states']:,}",
                    f"{row['cpu_seconds']:.0f}",
                ]
            )


def library() -> Iterator[str]:
    """Values of OpenDP 0.14.1 itself, beside the model's exact law and the right one."""
    for row in _rows("library").values():
        model, right = row["model"], row["right"]
        yield line(
            [
                f"discrete {row['law'].capitalize()}, {row['parameter']}",
                f"{row['values']:,}",
                f"{row['apart']:.4f}",
                f"{model['chi2']:.1f} on {model['freedom']}",
                _probability(model["p"]),
                f"{right['chi2']:,.1f} on {right['freedom']}",
                _probability(right["p"]),
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
        numbers = [f"{row['states']:,}", f"{row['cpu_seconds']:.1f}"]
        yield line([f"`{name}`", row["disjoint"], *numbers, *_certificate(row)])


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


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _probability(p: float) -> str:
    return f"{p:.2g}" if p else "< 1e-300"


def _raised(delta: str) -> str:
    base, power, exponent = delta.partition("^-")
    return f"{base}⁻{exponent.translate(_RAISED)}" if power else delta


def _between(low: float, high: float) -> str:
    return f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} to {high:.4g}"


def _right_delta(sigma: int) -> float:
    """δ at ε = 1 of a count with discrete Gaussian noise."""
    weights = {x: math.exp(-(x**2) / (2 * sigma**2)) for x in range(-400, 401)}
    total = sum(weights.values())
    return sum(max(p - math.e * weights.get(x + 1, 0), 0) for x, p in weights.items()) / total


def _power(x: float) -> str:
    return "0" if not x else f"{x:.1e}"


def _small(x: float) -> str:
    return "0" if not x else f"{x:.3g}"


def _certificate(row: Row) -> list[str]:
    check = row.get("check", {})
    holds = {0: "holds", 1: "does not hold"}.get(check.get("exit"), "")
    return [f"{row['certificate_bytes']:,}", f"{check['cpu_seconds']:.1f}", holds]
