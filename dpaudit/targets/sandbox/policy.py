"""How much a foreign program may use, and the level of the sandbox: asked for, and reached."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from dpaudit.errors import UsageError

__all__ = [
    "DEFAULT",
    "LEVELS",
    "Limits",
    "Policy",
    "cpu_seconds",
    "current",
    "joined",
    "sandbox_policy",
]

_CORES = os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on one sampler and everything it starts; sizes are in bytes.

    The kernel keeps ``reserved``, ``file_size`` and ``open_files`` for each process
    (``RLIMIT_DATA``, ``RLIMIT_FSIZE``, ``RLIMIT_NOFILE``), and ``tasks`` for all together inside a
    user namespace of a user who is not root (``RLIMIT_NPROC``), or in a control group. ``written``
    is kept by the kernel if the sampler has a scratch of its own (sandbox ``full``: a tmpfs of that
    size and a sixteenth). ``memory``, ``written`` and ``processes`` are checked up to twenty times
    per second, and at least about once, over all processes together (Linux); if one is exceeded, or
    cannot be checked, all are killed, and the message says which. Not claimed: what happens between
    two checks.
    """

    memory: int = 4 << 30
    """Resident memory not backed by a file, all processes together, shared pages counted once."""
    reserved: int = 16 << 30
    """Writable memory that one process may reserve; thread stacks and CUDA reserve a lot."""
    file_size: int = 64 << 20
    """Length of one file."""
    written: int = 1 << 30
    """What is written to files in all."""
    open_files: int = 1024
    processes: int = 256
    tasks: int = 4096
    """Processes and their threads."""
    network: bool = False
    """Whether the network can be reached; kept only where namespaces can be had."""


DEFAULT = Limits()


def cpu_seconds(seconds: float) -> int:
    """The most CPU time that a process can use in ``seconds`` of wall time on all cores, plus 1."""
    return math.ceil(seconds * _CORES) + 1


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
            levels = sorted(level for level in self._reached if level.startswith(kind))
            if levels:
                return levels[0]
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
def sandbox_policy(
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
    name = level or os.environ.get(_LEVEL) or "full"
    if name not in LEVELS:
        raise UsageError(f"sandbox={name}: must be one of {', '.join(LEVELS)}; choose one")
    for path in visible:
        if not os.path.exists(path):
            raise UsageError(
                f"visible={path}: no such file or folder (from {os.getcwd()}); check the path"
            )
    return Policy(name, tuple(visible), tuple(passed))
