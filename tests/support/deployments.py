"""The result of a deployment's audit for the tests."""

from __future__ import annotations

from datetime import date, timedelta

from support.documents import provenance


def spent(budget, records, claimed, high="inf"):
    return {
        "budget": budget,
        "records": records,
        "claimed": claimed,
        "shown_low": claimed,
        "shown_high": high,
    }


def shown(key, verdict, low, high, *claims):
    interval = {"low": low, "high": high, "confidence": 0.99, "method": "exact"}
    return {
        "key": key,
        "algorithm": "CountMedianSketch",
        "coin": None,
        "method": "exact",
        "claims": [
            {"by": by, "epsilon": e}
            for by, e in zip(("configuration", "report"), claims, strict=False)
        ],
        "records": 10,
        "used": 5,
        "flip": {**interval, "low": 0.093, "high": 0.1416},
        "sketch": interval,
        "record": interval if verdict != "not identified" else None,
        "verdict": verdict,
        "reason": "5 vectors of 256 bits",
        "checks": [{"name": "copies", "p": 0.4, "says": "none"}],
        "findings": [],
    }


def total(name, per_day, *, over_days=480.0):
    sums = {
        "per_day": per_day,
        "over_days": over_days,
        "coin_per_day": 38.0,
        "coin_over_days": 1140.0,
    }
    return {"name": name, "budgets": ["a"], **sums}


def bare():
    """A configuration alone, with nothing in it."""
    nothing = total("nothing", 0.0, over_days=0.0) | {"budgets": []}
    return {
        "kind": "deployment", "system": "apple", "verdict": "no-finding",
        "configuration": {"folder": "somewhere", "keys": 1, "properties": 1, "budgets": 1},
        "ledger": {
            "days": 30, "announced": 4, "left_out": 0, "lines": [], "permitted": nothing,
            "platforms": [], "configured": nothing,
        },
        "against": None, "differences": None, "database": None, "observed": None, "shown": [],
        "findings": [], "provenance": provenance(),
    }  # fmt: skip


def result():
    loss = {"per_record": 2.0, "per_day": 4.0, "over_days": 120.0}
    days = [
        {
            "date": (date(2017, 5, 1) + timedelta(days=2 * i)).isoformat(),
            "budgets": [spent("com.apple.keyboard.NewWords", 2, 4.0), spent(f"budget {i}", 1, 1.0)],
            "total": spent("", 3, 5.0 + i),
        }
        for i in range(9)
    ]
    line = {
        "budget": "com.apple.keyboard.NewWords",
        "application": "New words",
        "keys": 94,
        "silent_keys": 0,
        "patterns": False,
        "algorithms": ["CountMedianSketch"],
        "session_amount": 2,
        "session_seconds": 86_400.0,
        "records_per_day": 2.0,
        "claimed": loss,
        "coin": None,
        "burst": {
            "balance": 60, "report_records": 40, "report_epsilon": 80.0,
            "day_records": 80, "day_epsilon": 160.0,
        },
    }  # fmt: skip
    whole = bare()
    return whole | {
        "verdict": "finding",
        "ledger": whole["ledger"] | {
            "lines": [line], "permitted": total("initially announced applications", 16.0),
            "platforms": [total("macOS", 6.0)], "configured": total("everything configured", 21.3),
        },
        "observed": {
            "reports": 9, "unread": 0, "undated": 0, "days": days, "busiest": days[-1], "span": 17,
            "budgets": [spent("com.apple.keyboard.NewWords", 18, 36.0)],
            "total": spent("", 27, 45.0, 99.0), "per_day": 2.6, "shown_per_day": [2.6, 5.8],
            "says": "2.6 per day as claimed; which is arithmetic and no forecast.", "unclaimed": 0,
            "findings": [],
        },
        "shown": [
            shown("com.apple.lookup.DomainMatch", "agrees", 0.6, 3.4, 1.0),
            shown("com.apple.parsec.Nothing", "not identified", 0, 0, 1.0),
            shown(
                "com.apple.keyboard.Emoji.ru_RU.EmojiKeyboard", "shows more", 3.604, "inf", 1.0,
                2.0,
            ),
        ],
        "differences": [
            {
                "what": "?", "table": "PropertiesName", "name": "NewWords", "field": "Amount",
                "old": "1", "new": "2", "note": "",
            },
        ],
        "against": whole["configuration"] | {
            "effect": "The ε permitted in a day rises from 14 to 16 (+2).",
        },
        "database": {
            "balances": [
                {
                    "key": "com.apple.health", "balance": -3,
                    "created": "2017-05-01T00:00:00+00:00", "updated": "2017-05-02T00:00:00+00:00",
                },
            ],
            "counts": [],
        },
        "findings": [
            {"where": "b", "message": "a remark", "serious": False},
            {"where": "a", "message": "against the user", "serious": True},
        ],
    }  # fmt: skip
