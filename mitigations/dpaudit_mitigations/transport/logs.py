"""Log lines of a service: one JSON object a line on stderr, with fixed fields and never a value of a query or a noise."""

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
    """``text`` on one line, printable, at most ``longest`` characters: what another party said, fit to be shown."""
    return one_line(text, limit=longest)


@dataclass(frozen=True, slots=True)
class Log:
    """Writes lines with the fields time, service, peer, method, release, outcome and reason; an empty one is left out."""

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
        """One line. ``outcome`` is a word (served, refused, failed, started, stopped); ``reason`` our own sentence."""
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
