"""Closed samplers: third-party noise, and whole mechanisms, each behind one small interface.

``resolve`` opens either from one line of text, ``hints`` guesses what a wrong one was meant to be,
and ``identity`` says what is behind it. ``calls`` tells how a function is called, by its user or by
its parameters, and ``functions`` makes noise or releases of these calls, in a worker process or,
for ``callables``, in this one; ``check`` and ``plain`` say what they may return. ``endpoints/`` has
the kinds (a Python function, a shared library, a program, an HTTP address, a recorded file, a
registered source), ``adapters/`` the known libraries, and ``sandbox/`` confines every foreign
program (see ``sandbox.supervisor`` for how, ``sandbox.policy`` for how much it may use).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["open_sampler"]

if TYPE_CHECKING:
    from dpaudit.targets.resolve import open_sampler


def __getattr__(name: str) -> Any:
    # imported late: the sandbox's supervisor needs this package with the standard library alone
    if name == "open_sampler":
        from dpaudit.targets.resolve import open_sampler

        return open_sampler
    raise AttributeError(f"module 'dpaudit.targets' has no attribute {name!r}")
