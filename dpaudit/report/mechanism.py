"""The ε audit of a mechanism in words and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.report import format as fmt
from dpaudit.report.sentences import sandbox_level
from dpaudit.report.tables import Column
from dpaudit.results.text import printable

__all__ = ["bounds_table", "events_table", "mechanism_facts", "mechanism_sentence"]

_MOST_INTERVALS = 12


def mechanism_sentence(result: Mapping[str, Any]) -> str:
    """What an ε audit found, in one sentence: the claim, and what was shown."""
    name, claim = printable(result.get("mechanism", "the mechanism"), limit=200), _claim(result)
    shown = f"{_shown(result.get('epsilon'), 'ε')} at δ = {fmt.quantity(result.get('claim_delta'))}"
    if result.get("claim_mu") is not None:
        shown += f" and {_shown(result.get('mu'), 'μ')}"
    confidence = _confidence(result)
    attack = printable(result.get("attack") or "", limit=200)
    by = f", by the attack {attack}{_right(result)}" if attack else ""
    match result.get("verdict"):
        case "finding":
            found = [printable(t.get("name", ""), limit=100) for t in result.get("tests") or () if t.get("finding")]
            only = (
                ", by the last bits of its releases" if found and all(n.startswith("low bits") for n in found) else ""
            )
            return f"Finding: {name} is not {claim}{only}: shown is {shown}{confidence}{by}."
        case "no-finding":
            return (
                f"No finding: shown is {shown}{confidence}{f'{by}; that' if by else ', which'} {name} may have by its claim, "
                f"{claim}; "
                "what this cannot exclude is below."
            )
        case "inconclusive":
            reason = printable(result.get("reason") or "no reason given", limit=600).rstrip(".")
            return f"Inconclusive: {reason}; this says nothing about {name} either way."
        case other:
            return f"No verdict: the result says {printable(other, limit=60)!r}."


def mechanism_facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values for the top of the page: claimed against shown first."""
    delta = fmt.quantity(result.get("claim_delta"))
    used, asked = fmt.count(result.get("samples")), fmt.count(result.get("samples_requested"))
    vectors = result.get("neighbours") or ()
    facts = [
        ("ε claimed", f"{fmt.quantity(result.get('claim_epsilon'))} at δ = {delta}"),
        (f"ε shown{_confidence(result)}", _shown(result.get("epsilon"), "")),
        ("δ shown at the claimed ε", _shown(result.get("delta"), "")),
        ("μ claimed", fmt.quantity(result.get("claim_mu"))),
        ("μ shown", _shown(result.get("mu"), "")),
        ("Method", printable(result.get("method", fmt.NOTHING), limit=60)),
        ("Attack", printable(result.get("attack") or fmt.NOTHING, limit=200)),
        ("Neighbours guessed right", _guessed(result)),
        ("Possible at their own value", _feasible(result)),
        ("Neighbours", " and ".join(printable(fmt.setting(v), limit=80) for v in vectors) or fmt.NOTHING),
        ("Releases" if vectors else "Canaries", used if used == asked else f"{used} of {asked} asked for"),
        ("Sandbox", sandbox_level(result) or fmt.NOTHING),
        ("α, for everything together", fmt.quantity(result.get("alpha"))),
        ("Time", fmt.seconds(result.get("seconds"))),
    ]
    return [(name, value) for name, value in facts if value != fmt.NOTHING]


def bounds_table(result: Mapping[str, Any]) -> list[Column]:
    """One line for each event that was counted and for the curve; by an attack, with how often the event happened."""
    tests: Sequence[Mapping[str, Any]] = result.get("tests") or ()
    return [
        Column("Test", [printable(t.get("name", ""), limit=200) for t in tests]),
        *(_probabilities(tests) if result.get("attack") else []),
        Column("Shown", [f"{printable(t.get('unit', ''), limit=10)} {_at_least(t)}".strip() for t in tests], True),
        Column("p", [fmt.p_value(t.get("p")) for t in tests], True),
        Column("Adjusted p", [_adjusted(t) for t in tests], True),
        Column("Counted", [printable(t.get("effect", ""), limit=400) or fmt.NOTHING for t in tests]),
        Column("Finding", ["yes" if t.get("finding") else "advice" if t.get("advisory") else "no" for t in tests]),
    ]


def _probabilities(tests: Sequence[Mapping[str, Any]]) -> list[Column]:
    """How often the event happened at each neighbour: v0 is the first one."""
    shares = [_shares(t.get("details") or {}) for t in tests]
    return [Column(f"P(E | v{side})", [pair[side] for pair in shares], True) for side in (0, 1)]


def _shares(details: Mapping[str, Any]) -> tuple[str, str]:
    counts, at = details.get("counts"), details.get("likelier_at")
    if not isinstance(counts, Mapping) or at not in (0, 1):
        return fmt.NOTHING, fmt.NOTHING
    likelier, other = (_share(counts.get(key)) for key in ("likelier", "other"))
    return (likelier, other) if at == 0 else (other, likelier)


def _share(counted: object) -> str:
    """A pair (so many, of so many) as a share."""
    some, of = counted if isinstance(counted, (list, tuple)) and len(counted) == 2 else (None, None)
    k, n = fmt.number(some), fmt.number(of)
    return fmt.percent(k / n) if k is not None and n and n < math.inf else fmt.NOTHING


def _guessed(result: Mapping[str, Any]) -> str:
    """The share of right guesses of an attack, with its interval."""
    success = (result.get("details") or {}).get("success")
    if not isinstance(success, Mapping):
        return fmt.NOTHING
    k, n = fmt.number(success.get("right")), fmt.number(success.get("of"))
    if k is None or not n or n == math.inf:
        return fmt.NOTHING
    return fmt.proportion(k / n, interval=success.get("interval"))


def _right(result: Mapping[str, Any]) -> str:
    guessed = _guessed(result)
    return "" if guessed == fmt.NOTHING else f", which guesses the neighbour right in {guessed} of releases"


def _feasible(result: Mapping[str, Any]) -> str:
    """How many releases a support attack takes to be possible at the values that they were made from."""
    truth = (result.get("details") or {}).get("feasible_at_truth")
    pairs = [truth.get(which) for which in ("first", "second")] if isinstance(truth, Mapping) else []
    told = [f"{fmt.count(p[0])} of {fmt.count(p[1])}" for p in pairs if isinstance(p, (list, tuple)) and len(p) == 2]
    return " and ".join(told) or fmt.NOTHING


def events_table(result: Mapping[str, Any]) -> list[Column]:
    """The learned events, exactly enough to count them again."""
    tests = [t for t in result.get("tests") or () if isinstance((t.get("details") or {}).get("intervals"), list)]
    details = [t["details"] for t in tests]
    return [
        Column("Test", [printable(t.get("name", ""), limit=200) for t in tests]),
        Column("Statistic of a release", [printable(d.get("statistic", ""), limit=200) for d in details]),
        Column("Event: it lies in", [_intervals(d["intervals"]) for d in details]),
    ]


def _intervals(pieces: Sequence[Any]) -> str:
    pairs = [p for p in pieces if isinstance(p, (list, tuple)) and len(p) == 2]
    lines = [f"[{_exact(a)}, {_exact(b)})" for a, b in pairs[:_MOST_INTERVALS]]
    more = len(pairs) - len(lines)
    return "\n".join([*lines, *([f"… and {more:,} more, in result.json"] if more else [])]) or fmt.NOTHING


def _exact(value: object) -> str:
    x = fmt.number(value)
    return fmt.NOTHING if x is None else fmt.quantity(x, digits=17)


def _claim(result: Mapping[str, Any]) -> str:
    pair = f"({fmt.quantity(result.get('claim_epsilon'))}, {fmt.quantity(result.get('claim_delta'))})-DP"
    mu = result.get("claim_mu")
    return pair if mu is None else f"both {pair} and {fmt.quantity(mu)}-GDP"


def _shown(interval: object, letter: str) -> str:
    """A lower bound, rounded down; a bound of zero shows nothing."""
    if not isinstance(interval, Mapping):
        return fmt.NOTHING
    low = fmt.number(interval.get("low")) or 0.0
    text = fmt.epsilon({"low": low, "high": "inf"}) if low > 0 else "≥ 0 (nothing)"
    return f"{letter} {text}".strip()


def _at_least(test: Mapping[str, Any]) -> str:
    return _shown(test.get("interval") or {"low": test.get("statistic")}, "").replace(" (nothing)", "")


def _adjusted(test: Mapping[str, Any]) -> str:
    return fmt.NOTHING if test.get("advisory") else fmt.p_value(test.get("p_adjusted"))


def _confidence(result: Mapping[str, Any]) -> str:
    alpha = fmt.number(result.get("alpha"))
    return "" if alpha is None else f" ({100 * (1 - alpha):.4g} % confidence)"
