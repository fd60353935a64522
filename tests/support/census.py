"""The result of an audit of noisy measurement files for the tests."""

from __future__ import annotations

from typing import Any

from support.documents import provenance


def test(name: str, *, finding: bool) -> dict[str, Any]:
    return {
        "name": f"County, detailed, structural zeros: {name}",
        "p": 1e-9 if finding else 0.3,
        "p_adjusted": 2e-9 if finding else 0.6,
        "statistic": 0.95,
        "looks_at": "the standard deviation",
        "effect": "0.95 of what is stated",
        "finding": finding,
        "parts": {},
        "advisory": False,
        "interval": {"low": 0.94, "high": 0.96, "confidence": 0.95, "method": "χ²"},
        "unit": "",
        "details": {},
        "seen_after": None,
        "reproduce": "",
        "harm": "strength",
    }


def result(verdict: str = "finding") -> dict[str, Any]:
    seen = verdict != "inconclusive"
    group = {
        "product": "US_PROD",
        "level": "County",
        "query": "detailed",
        "kind": "zeros",
        "geographies": 96,
        "values": 9000,
        "sigma": 1.5,
        "ratio": 0.95,
        "interval": {"low": 0.94, "high": 0.96, "confidence": 0.95, "method": "χ²"},
        "farthest": 4.0,
        "tested": True,
        "bins": [
            {"low": i - 2.5, "high": i - 1.5, "observed": 900, "expected": 900.5} for i in range(5)
        ],
    }
    level = {
        "product": "US_PROD",
        "level": "County",
        "files": 2,
        "geographies": 96,
        "queries": 4,
        "measurements": 25056,
        "rho": 0.8,
    }
    return {
        "kind": "census",
        "verdict": verdict,
        "reason": "" if seen else "the files state no structural zeros and no totals",
        "alpha": 0.01,
        "files": ["US_PROD"],
        "levels": [level],
        "groups": [group] if seen else [],
        "tests": [test("scale", finding=verdict == "finding"), test("mean", finding=False)]
        if seen
        else [],
        "notes": ["7 parents were not compared with their children"],
        "seconds": 1.5,
        "provenance": provenance(),
    }
