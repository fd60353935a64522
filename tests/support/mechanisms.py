"""Documents of ε audits for the tests."""

from __future__ import annotations

from support.documents import provenance


def bound(low, confidence=0.99):
    return {"low": low, "high": "inf", "confidence": confidence, "method": "Clopper-Pearson"}


def line(name, *, finding=False, advisory=False):
    return {
        "name": name, "p": 1e-9 if finding else 0.4, "p_adjusted": 4e-9 if finding else 1.0,
        "statistic": 1.4567, "looks_at": "values",
        "effect": "x ≥ 1: 500 of 1,000 against 100 of 1,000", "finding": finding,
        "advisory": advisory, "parts": {}, "interval": bound(1.4567, 0.9975), "unit": "ε",
        "details": {"statistic": "x", "intervals": [["-inf", 1.0000000000000002], [3.0, "inf"]]},
    }  # fmt: skip


def result(verdict, *, mu=None, name="event, second neighbour over first", **changes):
    spot = {
        "test": "events",
        "flaw": "how large ε really is",
        "size": None,
        "unit": "",
        "says": "at most 9.7",
    }
    return {
        "verdict": verdict,
        "reason": "it hung" if verdict == "inconclusive" else "",
        "mechanism": "vendor:laplace",
        "method": "two neighbours",
        "neighbours": [[0.0], [1.0]],
        "claim_epsilon": 1.0 if verdict == "finding" else 2.0,
        "claim_delta": 1e-5,
        "claim_mu": mu,
        "alpha": 0.01,
        "epsilon": bound(1.4567),
        "delta": bound(0.0),
        "mu": bound(1.4567),
        "curve": [[10.0**-k, 1.4 - 0.1 * (8 - k)] for k in range(8, 0, -1)],
        "tests": [line(name, finding=verdict == "finding")] if verdict != "inconclusive" else [],
        "samples": 400_000,
        "samples_requested": 400_000,
        "seconds": 1.5,
        "advice": ["The noise depends on the value."],
        "cannot_rule_out": [spot] if verdict == "no-finding" else [],
        "provenance": provenance(),
    } | changes


def one_run():
    return result(
        "no-finding",
        method="one run",
        neighbours=[],
        curve=[],
        delta=None,
        samples=500,
        samples_requested=500,
    )


ALL = {v: result(v) for v in ("finding", "no-finding", "inconclusive")} | {"one run": one_run()}
