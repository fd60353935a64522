"""Results for the tests as JSON values: small, complete, hostile; and a page taken apart."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

EDGES = [-0.5 + i / 32 for i in range(33)]
HOSTILE = (
    '<script>alert(1)</script>"><img src=x onerror=alert(2)> {{ 7*7 }} [red]$\\frac\x1b[31m'
    "\u202e\udcff]]>-->"
)


def attack(
    success: float, *, low: float, high: float, name: str = "likelihood-ratio", spike: bool = False
) -> dict[str, Any]:
    counts = [62 + i % 3 for i in range(32)]
    if spike:
        counts = [0] * 15 + [1000, 1000] + [0] * 15
    return {
        "attack": name, "successes": round(2000 * success), "trials": 2000, "success": success,
        "interval": {"low": low, "high": high, "confidence": 0.95, "method": "Clopper-Pearson"},
        "chance": 0.5, "epsilon_lower_bound": 6.1 if spike else 0.0,
        "details": {
            "phases": {
                "edges": EDGES, "counts": counts, "what": "phase of the release along the key",
            },
        },
    }  # fmt: skip


def row(
    source: str, mitigation: str, found: list[dict[str, Any]], **changes: Any
) -> dict[str, Any]:
    return {
        "label": source if mitigation == "none" else f"{source} + {mitigation}",
        "source": source,
        "mitigation": mitigation,
        "settings": {"epsilon": 0.25, "delta": 1e-10, "beta": 1e-4, "gamma": 112.0},
        "audit": {"verdict": "no-finding", "samples": 1_000_000, "alpha": 0.01, "smallest_p": 0.03},
        "attacks": found,
        "epsilon_claimed": 0.25,
        "epsilon_key_holder": {"low": 49000.0, "high": "inf", "says": "Theorem 4.2"},
        "l2_error": 1432.1,
        "l2_expected": 1431.0,
    } | changes


def experiment() -> dict[str, Any]:
    equal = {"low": 0.25, "high": 0.25, "says": "Gaussian mechanism"}
    capped = {"low": 0.0, "high": 0.2551, "says": "Proposition 5"}
    return {
        "kind": "experiment", "name": "demo", "title": "A covert key",
        "story": "First paragraph.\n\nSecond paragraph.", "command": "dpaudit run demo",
        "rows": [
            row(
                "gaussian", "none", [attack(0.501, low=0.479, high=0.524)],
                epsilon_key_holder=equal,
            ),
            row("pancake", "none", [attack(0.999, low=0.9964, high=0.99988, spike=True)]),
            row(
                "pancake", "rotation", [attack(0.495, low=0.472, high=0.518)],
                epsilon_key_holder=capped,
            ),
            row("pancake", "smoothing", [attack(0.51, low=0.488, high=0.533)], l2_error=1522.9),
        ],
        "cells": [
            {
                "cell": "a-1", "kind": "attack", "settings": {"source": "pancake"},
                "outcome": {"success": 0.5}, "seconds": 1.5, "provenance": {},
            },
        ],
        "provenance": provenance(),
    }  # fmt: skip


def grid(size: int) -> dict[str, Any]:
    arms = [
        ("gaussian", "none"),
        ("pancake", "none"),
        ("pancake", "rotation"),
        ("pancake", "smoothing"),
    ]
    rows = []
    for i in range(size):
        source, mitigation = arms[i % 4]
        high = 0.95 if (source, mitigation) == ("pancake", "none") else 0.5
        found = [attack(high, low=high - 0.02, high=high + 0.02)]
        found[0]["epsilon_lower_bound"] = 2.5 if high > 0.5 else 0.0
        changes = {
            "label": "",
            "settings": {"epsilon": 0.1 * (1 + i // 4), "gamma": 112.0},
            "l2_error": 100.0 * (1 + i),
        }
        rows.append(row(source, mitigation, found, **changes))
    return experiment() | {"rows": rows}


def provenance() -> dict[str, Any]:
    plugin = {"kind": "tests", "name": "moments", "distribution": "dpaudit", "version": "0.1.0"}
    return {
        "seed": "0x12",
        "versions": {"dpaudit": "0.1.0"},
        "plugins": [plugin],
        "hardware": "CPU",
        "started": "2026-01-01",
    }


def audit(verdict: str) -> dict[str, Any]:
    smallest = 0.0 if verdict == "finding" else 0.02
    tests = [
        {
            "name": name,
            "p": p,
            "p_adjusted": min(1.0, 3 * p),
            "statistic": 1.5,
            "looks_at": "single values",
            "effect": "a small one",
            "finding": 3 * p <= 0.01,
            "parts": {},
            "harm": harm,
            "topic": name,
        }
        for name, p, harm in (
            ("tails", 0.4, "law"),
            ("moments", smallest, "strength"),
            ("norms", 0.9, "strength"),
        )
        if verdict != "inconclusive"
    ]
    spots = [
        {
            "test": "moments", "flaw": "wrong scale", "size": 0.00091, "unit": "of σ",
            "says": "0.091 % would pass",
        },
        {
            "test": "projections", "flaw": "a secret direction", "size": None, "unit": "",
            "says": "no sample size helps",
        },
    ]  # fmt: skip
    return {
        "kind": "audit", "verdict": verdict,
        "reason": "the process ended with signal 9" if verdict == "inconclusive" else "",
        "sampler": "python:vendor:noise", "claim": "gaussian:sigma=1", "alpha": 0.01,
        "tests": tests, "samples": 10_000_000, "samples_requested": 10_000_000, "dims": [1, 64],
        "seconds": 83.2, "cannot_rule_out": spots if verdict == "no-finding" else [],
        "provenance": provenance(),
    }  # fmt: skip


CHOSEN = {
    "kind",
    "verdict",
    "disjoint",
    "shared",
    "system",
    "format",
    "created",
    "updated",
    "first",
    "last",
}
KEYS = {"key", "x", "y", "series", "published", "panels", "band", "points", "value", "where"}
FREE = {"settings", "provenance", "outcome", "versions"}


def made_hostile(value: Any, *, text: str = HOSTILE) -> Any:
    """The same document with the text in place of every other.

    Also among the keys of mappings whose keys are free. What dpaudit itself chooses stays: verdicts
    and the like, times, and the keys that columns and figures have.
    """
    if isinstance(value, list):
        return [made_hostile(v, text=text) for v in value]
    if not isinstance(value, dict):
        return text if isinstance(value, str) and value not in ("inf", "-inf", "nan") else value
    kept = CHOSEN | (KEYS if {"format", "x"} & value.keys() else set())
    changed = {k: v if k in kept else made_hostile(v, text=text) for k, v in value.items()}
    key = text.encode(errors="replace").decode()
    return changed | {k: {key: text, **changed[k]} for k in FREE & changed.keys()}


VOID = {"meta", "link", "img", "br", "hr", "input", "wbr"}


class Page(HTMLParser):
    """Tags with their attributes, text, and whether every tag is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[Any] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.ordered = True
        self.feed(html)
        self.close()
        self.text = "".join(self.words)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.ordered &= bool(self.open) and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def scripts(self) -> int:
        """Scripts on the page but for one, the page's own, at its end and without attributes."""
        own = bool(self.tags) and self.tags[-1] == ("script", {})
        return self.count("script") - own

    def count(self, name: str) -> int:
        return sum(tag == name for tag, _ in self.tags)
