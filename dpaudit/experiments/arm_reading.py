"""What the arms of an experiment show: rates, bounds, labels, and what an arm may lack."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence, Set

from dpaudit.experiments.results import Arm, ArmAttack
from dpaudit.wording import number, proportion, setting

__all__ = [
    "above_chance",
    "arm_labels",
    "attacks_of",
    "best_attack",
    "chance_of",
    "ends",
    "exceeds_claim",
    "group_of",
    "has_key",
    "keys_in",
    "rate_of",
    "shared_settings",
    "shown_by",
    "shown_on",
    "strongest_attack",
    "success_allowed",
]

_OF_A_KEY = {"beta", "gamma", "key"}
"""Settings of an arm that exist only where the attacker holds a key."""


def attacks_of(row: Arm) -> list[ArmAttack]:
    """The attacks of an arm that have a success rate, in their order."""
    return [a for a in row.attacks if math.isfinite(a.success)]


def best_attack(row: Arm) -> ArmAttack | None:
    """The attack whose interval has the highest lower end; None without attacks."""
    return max(attacks_of(row), key=lambda a: (ends(a)[0], a.success), default=None)


def ends(attack: ArmAttack) -> tuple[float, float]:
    """The ends of an attack's interval; 0 and 1 if undefined."""
    low, high = number(attack.interval.low), number(attack.interval.high)
    return (0.0 if low is None else max(0.0, low), 1.0 if high is None else min(1.0, high))


def rate_of(attack: ArmAttack) -> str:
    """An attack's success in percent, with its interval."""
    return proportion(attack.success, attack.interval.low, attack.interval.high)


def chance_of(attack: ArmAttack) -> float:
    """The success of guessing; a half if the attack does not state it."""
    chance = number(attack.chance)
    return 0.5 if chance is None else chance


def above_chance(attack: ArmAttack) -> bool:
    """Whether the whole interval lies above chance."""
    return ends(attack)[0] > chance_of(attack)


def shown_by(attack: ArmAttack) -> float:
    """The lower bound for ε that one attack shows; 0 if it shows none."""
    return max(0.0, number(attack.epsilon_lower_bound) or 0.0)


def shown_on(row: Arm) -> float:
    """The largest lower bound for ε that an attack on this arm shows; 0 if none does."""
    return max(map(shown_by, attacks_of(row)), default=0.0)


def exceeds_claim(row: Arm, attack: ArmAttack | None = None) -> bool:
    """Whether an attack on this arm, or the one given, shows more than the claimed ε.

    To beat chance is not enough: a claim of ε allows that. An arm without a claimed ε allows
    nothing.
    """
    claimed = number(row.epsilon_claimed)
    shown = shown_on(row) if attack is None else shown_by(attack)
    return shown > (0.0 if claimed is None else claimed)


def success_allowed(row: Arm) -> float | None:
    """How often any attack may name the right one of two neighbours under the claimed (ε, δ).

    (e^ε + δ)/(e^ε + 1), where both are equally likely (Kairouz, Oh and Viswanath 2015); None
    without a claim, or if guessing is not right half of the time.
    """
    claimed, delta = number(row.epsilon_claimed), number(row.settings.get("delta", 0.0))
    if claimed is None or delta is None or any(chance_of(a) != 0.5 for a in attacks_of(row)):
        return None
    odds = math.exp(-max(0.0, claimed))
    return min(1.0, (1 + min(1.0, max(0.0, delta)) * odds) / (1 + odds))


def has_key(row: Arm, attack: ArmAttack) -> bool:
    """Whether an attack on this arm used a key."""
    return bool(_OF_A_KEY & row.settings.keys()) and not attack.keyless


def keys_in(rows: Sequence[Arm]) -> bool:
    """Whether every attack on every arm used a key: then the attacker is the key holder."""
    keyed = [has_key(row, attack) for row in rows for attack in attacks_of(row)]
    return bool(keyed) and all(keyed)


def group_of(row: Arm) -> str:
    """Source and mitigation in words."""
    return row.source if row.mitigation == "none" else f"{row.source} + {row.mitigation}"


def arm_labels(rows: Sequence[Arm]) -> list[str]:
    """One label per row, no two alike.

    If labels repeat, the settings that vary are added (a mitigation's options are among them);
    then those that only some rows have; then a number.
    """
    plain = [row.label or group_of(row) for row in rows]
    if len(set(plain)) == len(plain):
        return plain
    settings = _settings(rows)
    varying = {name for name, values in settings.items() if len(set(values)) > 1}
    labels = _with_settings(plain, rows, varying)
    if len(set(labels)) < len(labels):
        partly = {name for name, values in settings.items() if len(values) < len(rows)}
        labels = _with_settings(plain, rows, varying | partly)
    return _numbered(labels)


def _with_settings(labels: Sequence[str], rows: Sequence[Arm], names: Set[str]) -> list[str]:
    named = []
    for label, row in zip(labels, rows, strict=True):
        own = sorted(names & row.settings.keys())
        words = (f"{n} {setting(row.settings[n])}" for n in own)
        named.append(", ".join([label, *words]))
    return named


def _numbered(labels: Sequence[str]) -> list[str]:
    """The labels, with a number behind each that is there more than once."""
    numbers = {label: itertools.count(1) for label, n in Counter(labels).items() if n > 1}
    taken, named = set(labels), []
    for label in labels:
        ways = (f"{label} ({i})" for i in numbers.get(label, ()))
        name = next((way for way in ways if way not in taken), label)
        taken.add(name)
        named.append(name)
    return named


def shared_settings(rows: Sequence[Arm]) -> list[tuple[str, str, bool]]:
    """Settings with a single value: name, value, and whether every row has it."""
    return [
        (name, values[0], len(values) == len(rows))
        for name, values in _settings(rows).items()
        if len(set(values)) == 1
    ]


def _settings(rows: Sequence[Arm]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row.settings.items():
            found.setdefault(name, []).append(setting(value))
    return found


def strongest_attack(row: Arm) -> ArmAttack:
    """The attack that succeeds most often, of those that show more than is claimed if any does."""

    def rank(attack: ArmAttack) -> tuple[bool, float, float]:
        return exceeds_claim(row, attack), ends(attack)[0], attack.success

    return max(attacks_of(row), key=rank)
