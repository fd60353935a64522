"""Results of ε audits for the tests, as JSON values."""

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
        "harm": "epsilon", "topic": "event",
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
        "kind": "mechanism",
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


def low_bits(verdict="finding"):
    """An audit that looked at the last bits of releases."""
    found = verdict == "finding"
    again = "dpaudit mechanism numpy:laplace:scale=0.5 --neighbours 0,1 --claim-epsilon 1"
    changes = {
        "p": 1e-9 if found else 0.4, "p_adjusted": 1e-8 if found else 0.8,
        "looks_at": "the last bits of releases", "harm": "last-bits", "topic": "low-bits",
        "effect": "5,827 of 9,985 against 0 of 10,015",
        "interval": bound(6.7 if found else 0.2), "details": {},
        "reproduce": again if found else "",
    }  # fmt: skip
    tests = [line(f"low bits, {n} neighbour", finding=found) | changes for n in ("first", "second")]
    return result(
        verdict, reason="", mechanism="python:./noise.py:release", claim_epsilon=1.0,
        claim_delta=0.0, epsilon=changes["interval"], delta=None, mu=None, curve=[[0.0, 1.8]],
        samples=1000, samples_requested=1000, tests=[] if verdict == "inconclusive" else tests,
        advice=["ask for more releases"], cannot_rule_out=[],
    )  # fmt: skip


ALL = {v: result(v) for v in ("finding", "no-finding", "inconclusive")} | {"one run": one_run()}
