"""Results of measurements for the tests: a paper figure's grid, a small one, all forms."""

from __future__ import annotations

import math
from typing import Any

from support import documents

GAMMAS = {
    256: (2.0, 4.0, 8.0, 16.0),
    4096: (8.0, 16.0, 32.0, 64.0),
    65536: (32.0, 64.0, 128.0, 256.0),
}
COLUMNS = [
    {"key": "d", "label": "d", "format": "setting"},
    {"key": "epsilon", "label": "ε", "format": "setting"},
    {"key": "gamma", "label": "γ", "format": "setting"},
    {"key": "beta", "label": "β", "format": "setting"},
    {"key": "success", "label": "success", "format": "proportion"},
    {"key": "published", "label": "published", "format": "proportion"},
    {"key": "agrees", "label": "agrees", "format": "flag"},
]


def result(**parts: Any) -> dict[str, Any]:
    """Measurements with these parts, and the others empty."""
    texts = dict.fromkeys(("name", "title", "story", "command", "summary"), "")
    lists = {name: [] for name in ("columns", "rows", "figures", "misses", "cells")}
    return {"kind": "measurements", **texts, **lists, "provenance": {}} | parts


def figure(**changes: Any) -> dict[str, Any]:
    return {
        "title": "Success of the key holder by width of the pancakes",
        "x": "beta",
        "y": "success",
        "series": "gamma",
        "panels": ["d", "epsilon"],
        "log_x": True,
        "log_y": False,
        "published": "published",
        "reference": 0.5,
        "label_x": "β, width of a pancake",
        "label_y": "success",
        "kind": "line",
    } | changes


def grid() -> dict[str, Any]:
    """The 240 cells of a figure with 12 panels of 4 lines of 5 points; three of them disagree."""
    rows = []
    for d, gammas in GAMMAS.items():
        for epsilon in (0.125, 0.25, 0.5, 1.0):
            for k, gamma in enumerate(gammas):
                for e in range(-5, 0):
                    x = 10.0**e * gamma / gammas[0] * (epsilon / 0.125) ** 0.5
                    published = 0.5 + 0.5 * math.exp(-((12 * x) ** 0.8))
                    success = min(1.0, published + 0.004 * ((7 * len(rows)) % 5 - 2))
                    agrees = len(rows) not in {17, 103, 207}
                    success -= 0.0 if agrees else 0.06
                    low, high = max(0.0, success - 0.02), min(1.0, success + 0.02)
                    rows.append(
                        {
                            "d": d,
                            "epsilon": epsilon,
                            "gamma": gamma,
                            "beta": 10.0**e,
                            "success": {"value": success, "low": low, "high": high},
                            "published": round(published, 3),
                            "agrees": agrees,
                            "place": k,
                        }
                    )
    return result(
        name="gpm-fig5",
        title="Figure 5: the key holder’s success over γ and β",
        story="Each panel is one dimension and one ε.\n\n"
        "The hollow marks are read off the paper’s figure.",
        command="dpaudit run gpm-fig5",
        columns=[dict(c) for c in COLUMNS],
        rows=rows,
        figures=[figure()],
        summary="237 of 240 cells agree with the published value: "
        "it lies within the 99 % interval of ours.",
        misses=[dict(row) for row in rows if not row["agrees"]],
        cells=documents.experiment()["cells"],
        provenance=documents.provenance(),
    )


def many_forms() -> dict[str, Any]:
    """Every format, bars, bands, log axes, words along x, infinities, zeros, negatives and gaps."""
    columns = [{"key": f, "label": f"a {f}", "format": f} for f in
               ("setting", "number", "proportion", "epsilon",
                "seconds", "ratio", "flag", "text")]  # fmt: skip
    columns += [{"key": k, "label": k, "format": "number"} for k in ("lower", "upper")]
    values = [0.0, -2.0, 1e-9, None, "inf", 3.5, 250.0]
    rows = [
        {
            "setting": v if i != 5 else 4,
            "number": {"value": v, "low": -1.0, "high": "inf"} if i % 2 else v,
            "proportion": {"value": i / 7, "low": 0.0, "high": 1.0},
            "epsilon": {"value": v, "low": 0.0, "high": None} if i else {"low": 0.1, "high": "inf"},
            "seconds": {"value": 10.0**i, "low": 10.0**i / 2, "high": 10.0**i * 2},
            "ratio": {"value": 1 + i / 10, "low": 0.9, "high": 2.0},
            "flag": [True, False, None][i % 3],
            "text": f"arm {i}",
            "lower": 0.0 if i < 3 else "-inf",
            "upper": 2.0 if i < 5 else None,
        }
        for i, v in enumerate(values)
    ]
    plain = {
        "panels": [],
        "series": None,
        "published": None,
        "reference": None,
        "label_x": None,
        "label_y": None,
    }
    figures = [
        figure(
            **plain
            | {"title": title, "x": x, "y": y, "log_x": log_x, "log_y": log_y, "kind": kind}
            | more
        )
        for title, x, y, log_x, log_y, kind, more in (
            ("lines", "setting", "number", True, True, "line", {"band": ["lower", "upper"]}),
            (
                "linear",
                "setting",
                "ratio",
                False,
                False,
                "line",
                {"series": "flag", "reference": 1.0},
            ),
            ("words", "text", "seconds", True, True, "line", {"published": "upper"}),
            (
                "bars",
                "text",
                "seconds",
                False,
                True,
                "bars",
                {"series": "flag", "published": "upper"},
            ),
            (
                "more bars",
                "text",
                "number",
                False,
                False,
                "bars",
                {"band": ["lower", "upper"], "panels": ["flag"]},
            ),
            ("one x", "flag", "proportion", False, False, "line", {"series": "text"}),
        )
    ]
    return result(columns=columns, rows=rows, figures=figures)


def bars() -> dict[str, Any]:
    """A small comparison of defences, as bars."""
    rows = [
        {
            "defence": m,
            "epsilon": e,
            "error": {"value": v, "low": v * 0.95, "high": v * 1.06},
            "published": v * 1.02,
        }
        for m, base in (("none", 1.0), ("rotation", 1.0), ("smoothing", 1.06), ("both", 1.1))
        for e in (0.25, 0.5, 1.0)
        for v in (base * 358 / e,)
    ]
    columns = [("defence", "defence", "text"), ("epsilon", "ε", "setting"),
               ("error", "L2 error", "number"),
               ("published", "published", "number")]  # fmt: skip
    return result(
        title="Table 3",
        columns=[{"key": k, "label": n, "format": f} for k, n, f in columns],
        rows=rows,
        figures=[figure(title="Error", x="defence", y="error", series="epsilon", panels=[],
                        log_x=False,
                        reference=None, label_x=None, label_y=None, kind="bars"),
                          figure(title="Error by ε", x="epsilon", y="error", series=None,
                                 panels=["defence"], log_y=True,
                        reference=None, label_x=None, label_y=None)],
        summary="All agree.",
    )  # fmt: skip
