"""Results of proofs and of compiled samplers run with chosen coins, as JSON values."""

from __future__ import annotations

from typing import Any

from support.documents import provenance

EVERY_KIND = (
    "proof proved", "proof refuted", "proof undecided", "proof privacy", "proof disjoint",
    "determinism no-finding", "determinism finding", "determinism inconclusive",
)  # fmt: skip
HASH = "0123456789abcdef" * 4


def between(low: float, high: float | str) -> dict[str, Any]:
    return {"low": low, "high": high}


def made() -> dict[str, Any]:
    files = [
        {"name": name, "sha256": HASH, "size": 722, "modified": ""}
        for name in ("/home/user/noise.py", "/usr/lib/python3/secrets.py")
    ]
    command = "dpaudit prove python:./noise.py:draw --claim discrete-laplace:scale=2"
    return provenance() | {"files": files, "command": command}


def long(kind: str) -> dict[str, Any]:
    """A proof with so many outputs that paper leaves their table out."""
    result = proof(kind)
    more = [(str(i), 2.0**-i) for i in range(10, 40)]
    result["law"] += [[output, p] for output, p in more]
    result["claimed"] += [between(p, p) for _, p in more]
    return result


def proof(kind: str) -> dict[str, Any]:
    """A proof: "proved", "refuted" or "undecided" law, "privacy", or "disjoint" coins."""
    result = {
        "verdict": kind if kind in ("proved", "refuted", "undecided") else "refuted",
        "reason": "total variation to discrete-laplace:scale=2 is at most 2.152e-13",
        "program": "python:./noise.py:draw",
        "arguments": "2",
        "coins": "",
        "claim": "discrete-laplace:scale=2",
        "tolerance": 1.82e-12,
        "total_variation": between(0.0, 2.1515506815054916e-13),
        "log_ratio": between(0.0, 0.000697),
        "neighbours": [], "claim_epsilon": "", "claim_delta": "", "profile": [], "epsilon": None,
        "disjoint": "",
        "coin_count": {
            "constant": None, "least": 4, "information": between(1.27, "inf"),
            "law": [[4, 0.5], [7, 0.25], [8, 0.125]],
        },
        "law": [["0", 0.2449], ["-1", 0.1486], ["1", 0.1486], ["2", 0.09]],
        "claimed": [between(0.2449, 0.2450), between(0.1486, 0.1487), between(0.1486, 0.1487),
                    between(0.0, 0.0)],
        "outputs": 127, "residual": 2.15e-13, "states": 1188, "counterexample": None,
        "certificate": HASH[::-1], "seconds": 0.4,
        "cannot_rule_out": ["the coins: they are taken as uniform", "time, memory and power"],
        "provenance": made(),
    }  # fmt: skip
    if kind == "refuted":
        result |= {
            "total_variation": between(0.15079, 0.15081),
            "counterexample": {
                "output": "0",
                "coins": [[2, 0], [2, 1], ["1267650600228229401496703205376", "7"]],
                "says": "P(0) ≥ 0.2449, but discrete-laplace:scale=3 gives it at most 0.1651",
            },
        }
    if kind == "undecided":
        result |= {"total_variation": between(0.0, 1.0), "law": [], "claimed": [], "outputs": 0}
    if kind == "privacy":
        result |= {
            "claim": "", "tolerance": None, "total_variation": None, "log_ratio": None,
            "coin_count": None, "claimed": [],
            "neighbours": ["0", "1"], "claim_epsilon": "1", "claim_delta": "1/1000000000",
            "profile": [
                {"epsilon": "1", "delta": between(0.070401, 0.070499), "near": 1.0},
                {"epsilon": "0", "delta": between(0.5, 0.5), "near": 0.0},
                {"epsilon": "3/4", "delta": between(0.2207, 0.2208), "near": 0.75},
                {"epsilon": "2", "delta": between(0.0, 2.1e-13), "near": 2.0},
            ],
            "epsilon": between(1.0986, 1.0987),
            "counterexample": {
                "output": "0", "coins": [[4, 0]], "says": "P(0) ≥ 0.75 for one neighbour",
            },
        }  # fmt: skip
    if kind == "disjoint":
        says = "the joint law differs from the product of its marginals by at least 0.875"
        result |= {
            "claim": "", "tolerance": None, "total_variation": None, "log_ratio": None,
            "coin_count": None, "claimed": [], "disjoint": "refuted", "reason": says,
            "law": [["(0, 7)", 0.125], ["(1, 6)", 0.125]], "residual": 0.0,
            "counterexample": {"output": "(0, 7)", "coins": [[8, 0]], "says": says},
        }  # fmt: skip
    return {"kind": "proof", **result}


def determinism(verdict: str) -> dict[str, Any]:
    """A compiled sampler run with chosen coins."""
    found = "the same coins give another value at another time: value 0 of call 0 was 0.6"
    result = {
        "verdict": verdict, "library": "libnoise.so", "symbol": "noise",
        "findings": [found] if verdict == "finding" else [],
        "not_controlled": ["asked for: read of /etc/seed"] if verdict == "inconclusive" else [],
        "coin_bytes": [{"value": i, "least": 8, "most": 8 + 8 * i} for i in range(4)],
        "sources": {"getrandom": 25, "time": 16}, "runs": 132,
        "cannot_rule_out": ["coins that were not tried: a branch that they never took"],
        "seconds": 0.5, "provenance": made(),
    }  # fmt: skip
    return {"kind": "determinism", **result}
