"""Log lines of a service: one JSON object per line on stderr, without values of query or noise."""

from __future__ import annotations

import datetime
import json
import sys
import threading
from dataclasses import dataclass

from dpaudit.results.text import one_line

__all__ = ["Log", "clean", "logger"]

_LONGEST = 300
_WRITING = threading.Lock()


def clean(text: str, longest: int = _LONGEST) -> str:
    """``text`` on one printable line of at most ``longest`` characters: safe to show."""
    return one_line(text, limit=longest)


@dataclass(frozen=True, slots=True)
class Log:
    """Writes lines with time, service, peer, method, release, outcome, reason; no empty fields."""

    service: str

    def __call__(
        self,
        outcome: str,
        *,
        peer: str | None = None,
        method: str | None = None,
        release: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Write a line: ``outcome`` is a word (served, refused, failed …), ``reason`` a text."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        facts = {
            "peer": peer,
            "method": method,
            "release": release,
            "outcome": outcome,
            "reason": reason,
        }
        line = {"time": now, "service": self.service} | {k: clean(v) for k, v in facts.items() if v}
        with _WRITING:
            sys.stderr.write(json.dumps(line, ensure_ascii=True) + "\n")
            sys.stderr.flush()


def logger(name: str) -> Log:
    """The log of the service ``name``."""
    return Log(clean(name))
