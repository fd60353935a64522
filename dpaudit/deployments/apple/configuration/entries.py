"""One dict of a property list, read field by field; what is wrong with a field becomes a finding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dpaudit.deployments.apple.model import Finding

__all__ = ["Entry", "whole"]

_SHOWN = 80
_LARGEST = 2**63 - 1
"""NSNumber's ``integerValue`` holds no more."""


def whole(value: object) -> int | None:
    """A whole number of 64 bits, also where it is written as a real (``<real>2</real>``); None for anything else.

    >>> whole(2), whole(2.0), whole(True), whole(2.5), whole(10**30)
    (2, 2, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not value.is_integer():  # neither are infinities and NaN
        return None
    number = int(value)
    return number if abs(number) <= _LARGEST else None


class Entry:
    """Fields by name; ``where`` and ``report`` say and collect what is wrong, and each read field counts as known."""

    def __init__(self, fields: Mapping[str, Any], *, where: str, report: Callable[[Finding], None]) -> None:
        self._fields, self.where, self._report = fields, where, report
        self._known: set[str] = set()

    def others(self) -> dict[str, Any]:
        """The fields that nobody has asked for."""
        return {name: value for name, value in self._fields.items() if name not in self._known}

    def odd(self, message: str, *, serious: bool = False) -> None:
        """Report a finding about this entry."""
        self._report(Finding(self.where, message, serious))

    def text(self, name: str, *, needed: bool = False) -> str | None:
        """A string that is not empty, else None and a finding."""
        value = self._get(name, needed=needed)
        if isinstance(value, str) and value.strip():
            return value
        self._refuse(name, value, "must be a string that is not empty", needed=needed)
        return None

    def integer(self, name: str, *, least: int | None = None, needed: bool = False) -> int | None:
        """A whole number of 64 bits, at least ``least``, else None and a finding."""
        value = self._get(name, needed=needed)
        number = whole(value)
        if number is not None and (least is None or number >= least):
            return number
        rule = "must be a whole number of 64 bits" + (f", at least {least}" if least is not None else "")
        self._refuse(name, value, rule, needed=needed)
        return None

    def positive(self, name: str, *, least: float = 0, needed: bool = False, serious: bool = False) -> float | None:
        """A finite number above 0 and at least ``least``, else None and a finding.

        The finding is ``serious``, if at all, where the value is a number but not such a one.
        """
        value = self._get(name, needed=needed)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        number = _as_float(value) if is_number else 0.0
        if 0 < number < math.inf and number >= least:
            return number
        rule = "must be a finite number " + (f"of at least {least:g}" if least else "above 0")
        self._refuse(name, value, rule, needed=needed, serious=serious and is_number)
        return None

    def flag(self, name: str) -> bool | None:
        """True or false, else None and a finding."""
        value = self._get(name, needed=False)
        if isinstance(value, bool):
            return value
        self._refuse(name, value, "must be true or false", needed=False)
        return None

    def table(self, name: str) -> Mapping[str, Any] | None:
        """A dict, which is needed, else None and a finding."""
        value = self._get(name, needed=True)
        if isinstance(value, dict):
            return value
        self._refuse(name, value, "must be a dict", needed=True)
        return None

    def _get(self, name: str, *, needed: bool) -> Any:
        self._known.add(name)
        value = self._fields.get(name)
        if value is None and needed:
            self.odd(f"{name} is missing; the entry is left out")
        return value

    def _refuse(self, name: str, value: object, rule: str, *, needed: bool, serious: bool = False) -> None:
        if value is not None:  # that a needed field is missing has been said
            left = "the entry" if needed else "the field"
            self.odd(f"{name}={_short(value)}: {rule}; {left} is left out", serious=serious)


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**_SHOWN:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value) if not isinstance(value, (dict, list)) else f"a {type(value).__name__} of {len(value)}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
