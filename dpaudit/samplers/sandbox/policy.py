"""The sandbox level that a user asks for, and the level reached, per block of code that audits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from dpaudit.errors import UsageError

__all__ = ["LEVELS", "Policy", "asking", "current", "joined"]

LEVELS = ("full", "require", "network", "none")
"""Levels: all that this kernel allows; the same or nothing; all but the network; limits only."""

_LEVEL = "DPAUDIT_SANDBOX"


@dataclass(slots=True)
class Policy:
    """What is asked for: a level, paths to show read-only, and environment variables to pass on."""

    level: str = "full"
    visible: Sequence[str] = ()
    passed: Sequence[str] = ()
    _outer: Policy | None = None
    _reached: set[str] = field(default_factory=set)

    def note(self, level: str) -> None:
        """Remember that a process was held at ``level``."""
        self._reached.add(level)
        if self._outer is not None:
            self._outer.note(level)

    @property
    def reached(self) -> str:
        """The weakest level of all processes: ``full``, ``partial: …`` with the gaps, or ``none``.

        ``not needed`` if none was started: the auditor ran no code of the sampler on this machine.
        """
        for kind in ("none", "partial"):
            found = sorted(level for level in self._reached if level.startswith(kind))
            if found:
                return found[0]
        return "full" if self._reached else "not needed"

    @property
    def shortfall(self) -> str:
        """What was reached, if that is less than what was asked for; '' otherwise."""
        expected = {"full", "not needed", *_EXPECTED.get(self.level, ())}
        return "" if self.reached in expected else self.reached


_EXPECTED = {"network": ("partial: the network can be reached",), "none": ("none",)}
_current: ContextVar[Policy | None] = ContextVar("dpaudit_sandbox", default=None)


def current() -> Policy:
    """The policy of the surrounding block; without one, a new one from ``DPAUDIT_SANDBOX``."""
    return _current.get() or _of(None, (), ())


@contextlib.contextmanager
def asking(
    level: str | None = None, *, visible: Sequence[str] = (), passed: Sequence[str] = ()
) -> Iterator[Policy]:
    """Set the sandbox level of foreign programs started in this block.

    ``level`` None means ``DPAUDIT_SANDBOX``, or ``full``. ``full``: all that this kernel allows;
    results say what was reached. ``require``: a program that cannot be confined fully is not
    started, a :class:`~dpaudit.errors.SamplerError`. ``network``: fully, but with the network.
    ``none``: limits only. ``visible`` are files and folders that the program also needs, shown
    read-only; ``passed`` are names of environment variables to pass on besides the allow-list's.

    Raises:
        UsageError: no such level, or a path to show that does not exist.
    """
    yield from _within(_of(level, visible, passed))


@contextlib.contextmanager
def joined() -> Iterator[Policy]:
    """A block that asks for the same as the one around it, and records its own reached level."""
    outer = current()
    yield from _within(Policy(outer.level, outer.visible, outer.passed, outer))


def _within(policy: Policy) -> Iterator[Policy]:
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
            raise UsageError(
                f"visible={path}: no such file or folder (from {os.getcwd()}); check the path"
            )
    return Policy(asked, tuple(visible), tuple(passed))
