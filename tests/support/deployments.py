"""A document of a deployment's audit for the tests."""

from __future__ import annotations

from datetime import date, timedelta

from support.documents import provenance


def spent(budget, records, claimed, high="inf"):
    return {"budget": budget, "records": records, "claimed": claimed, "shown_low": claimed, "shown_high": high}


def shown(key, verdict, low, high, *claims):
    interval = {"low": low, "high": high, "confidence": 0.99, "method": "exact"}
    return {
        "key": key,
        "algorithm": "CountMedianSketch",
        "claims": [{"by": by, "epsilon": e} for by, e in zip(("configuration", "report"), claims, strict=False)],
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


def document():
    loss = {"per_record": 2.0, "per_day": 4.0, "over_days": 120.0}
    total = {"budgets": ["a"], "per_day": 16.0, "over_days": 480.0, "coin_per_day": 38.0, "coin_over_days": 1140.0}
    days = [
        {
            "date": (date(2017, 5, 1) + timedelta(days=2 * i)).isoformat(),
            "budgets": [spent("com.apple.keyboard.NewWords", 2, 4.0), spent(f"budget {i}", 1, 1.0)],
            "total": spent("", 3, 5.0 + i),
        }
        for i in range(9)
    ]
    return {
        "kind": "deployment",
        "system": "apple",
        "verdict": "finding",
        "configuration": {"folder": "somewhere"},
        "ledger": {
            "days": 30,
            "lines": [
                {
                    "budget": "com.apple.keyboard.NewWords",
                    "application": "New words",
                    "keys": 94,
                    "records_per_day": 2.0,
                    "claimed": loss,
                    "coin": None,
                }
            ],
            "permitted": total | {"name": "initially announced applications"},
            "platforms": [total | {"name": "macOS", "per_day": 6.0}],
            "configured": total | {"name": "everything configured", "per_day": 21.3},
        },
        "observed": {
            "reports": 9,
            "undated": 0,
            "days": days,
            "busiest": days[-1],
            "span": 17,
            "budgets": [spent("com.apple.keyboard.NewWords", 18, 36.0)],
            "total": spent("", 27, 45.0, 99.0),
            "per_day": 2.6,
            "says": "2.6 a day as claimed; which is arithmetic and no forecast.",
        },
        "shown": [
            shown("com.apple.lookup.DomainMatch", "agrees", 0.6, 3.4, 1.0),
            shown("com.apple.parsec.Nothing", "not identified", 0, 0, 1.0),
            shown("com.apple.keyboard.Emoji.ru_RU.EmojiKeyboard", "shows more", 3.604, "inf", 1.0, 2.0),
        ],
        "differences": [
            {
                "what": "?",
                "table": "PropertiesName",
                "name": "NewWords",
                "field": "Amount",
                "old": "1",
                "new": "2",
                "note": "",
            }
        ],
        "against": {"effect": "The ε permitted in a day rises from 14 to 16 (+2)."},
        "database": {
            "balances": [{"key": "com.apple.health", "balance": -3, "created": "2017-05-01", "updated": "2017-05-02"}]
        },
        "findings": [
            {"where": "b", "message": "a remark", "serious": False},
            {"where": "a", "message": "against the user", "serious": True},
        ],
        "provenance": provenance(),
    }
