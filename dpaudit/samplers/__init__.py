"""Closed samplers: somebody else's noise behind one small interface, each kind in its own sandboxed process.

A callable, a command, a shared library, a recorded file or a registered source, named by one line of text. How a foreign
process is held is told in :mod:`~dpaudit.samplers.leash`, what it may use in :mod:`~dpaudit.samplers.limits`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["open_sampler"]

if TYPE_CHECKING:
    from dpaudit.samplers.resolve import open_sampler


def __getattr__(name: str) -> Any:
    if name == "open_sampler":  # late: the leash imports its neighbours with the standard library alone
        from dpaudit.samplers.resolve import open_sampler

        return open_sampler
    raise AttributeError(f"module 'dpaudit.samplers' has no attribute {name!r}")
