"""What a user asks of the sandbox, and what was reached: kept for the block of code that audits, and reported with it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from dpaudit.errors import UsageError

__all__ = ["LEVELS", "Policy", "asking", "current"]

LEVELS = ("full", "require", "network", "none")
"""What can be asked for: all that this kernel gives; the same or nothing; all but the network; nothing but limits."""

_LEVEL = "DPAUDIT_SANDBOX"


@dataclass(slots=True)
class Policy:
    """What is asked for; ``visible`` are folders and files to show read-only, ``passed`` environment variables to pass on."""

    level: str = "full"
    visible: Sequence[str] = ()
    passed: Sequence[str] = ()
    _reached: set[str] = field(default_factory=set)

    def note(self, level: str) -> None:
        """Remember that a process was held at ``level``."""
        self._reached.add(level)

    @property
    def reached(self) -> str:
        """The weakest level of all processes: ``full``, ``partial: …`` with what is lacking, or ``none``; '' if none ran."""
        for kind in ("none", "partial"):
            found = sorted(level for level in self._reached if level.startswith(kind))
            if found:
                return found[0]
        return "full" if self._reached else ""


_current: ContextVar[Policy | None] = ContextVar("dpaudit_sandbox", default=None)


def current() -> Policy:
    """The policy of the surrounding :func:`asking`; without one, a fresh one from ``DPAUDIT_SANDBOX``."""
    return _current.get() or _of(None, (), ())


@contextlib.contextmanager
def asking(level: str | None = None, *, visible: Sequence[str] = (), passed: Sequence[str] = ()) -> Iterator[Policy]:
    """Processes started in this block are held so; ``level`` None means ``DPAUDIT_SANDBOX``, or ``full``.

    Raises:
        UsageError: no such level, or something to show that is not there.
    """
    policy = _of(level, visible, passed)
    token = _current.set(policy)
    try:
        yield policy
    finally:
        _current.reset(token)


def _of(level: str | None, visible: Sequence[str], passed: Sequence[str]) -> Policy:
    asked = level or os.environ.get(_LEVEL) or "full"
    if asked not in LEVELS:
        raise UsageError(f"sandbox={asked}: must be one of {', '.join(LEVELS)}; choose one")
    for path in visible:
        if not os.path.exists(path):
            raise UsageError(f"visible={path}: no such file or folder (from {os.getcwd()}); check the path")
    return Policy(asked, tuple(visible), tuple(passed))
