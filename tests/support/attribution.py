"""The result of an audit of ad measurement for the tests."""

from __future__ import annotations

from typing import Any

from support.census import test
from support.documents import provenance

_INTERVAL = {"low": 7.5, "high": 8.5, "confidence": 0.95, "method": "exact"}


def result(verdict: str = "finding") -> dict[str, Any]:
    seen, found = verdict != "inconclusive", verdict == "finding"
    claim = {
        "source_type": "navigation",
        "states": 2925,
        "epsilon": 8.0,
        "pick_rate": 0.4953,
        "flip_probability": 0.4952,
        "capacity": 4.813,
        "capacity_limit": 11.5,
        "allowed": True,
        "sources": 2000,
        "known": 2000 if seen else 0,
        "flips": 990 if seen else 0,
        "shown": 5.6 if seen else None,
        "by_flips": _INTERVAL if seen else None,
    }
    noise = {
        "epsilon": 10.0,
        "scale": 6553.6,
        "batches": 2,
        "rows": 500,
        "values": 400 if seen else 0,
        "shown": 3.2 if seen else None,
        "by_scale": _INTERVAL if seen else None,
    }
    party = {
        "source_site": "https://news.example",
        "destination": "https://shop.example",
        "reporting_origin": "https://ads.example",
        "sources": 2000,
        "attributions": 900,
        "epsilon": 16_000.0,
        "busiest": 120,
    }
    loss = {"source": "s-1", "reports": 3, "value": 65_537, "epsilon": 10.01}
    return {
        "kind": "attribution",
        "verdict": verdict,
        "alpha": 0.01,
        "claims": [claim],
        "noise": noise,
        "parties": [party],
        "budget": {
            "reports": 9,
            "sources": 1,
            "batches": 2,
            "shared_ids": 5,
            "epsilon": 10.0,
            "largest": loss,
            "lines": [loss],
        },
        "tests": [test("flip-rate", finding=found)] if seen else [],
        "findings": [{"where": "source s-1", "message": "contributions of 65,537", "serious": True}]
        if found
        else [],
        "cannot_rule_out": ["400 values of noise"],
        "seconds": 1.5,
        "provenance": provenance(),
    }
