"""Closed samplers: somebody else's noise behind one small interface, and whole mechanisms behind another.

``resolve`` turns one line of text into either; ``endpoints/`` says where they are (a Python
function, a shared library, a program, an HTTP address, a recorded file, a registered source),
``adapters/`` knows libraries, and ``sandbox/`` holds every foreign program: ``sandbox.supervisor``
says how, ``sandbox.limits`` how much it may use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["open_sampler"]

if TYPE_CHECKING:
    from dpaudit.samplers.resolve import open_sampler


def __getattr__(name: str) -> Any:
    # late: the sandbox's supervisor imports its neighbours with the standard library alone
    if name == "open_sampler":
        from dpaudit.samplers.resolve import open_sampler

        return open_sampler
    raise AttributeError(f"module 'dpaudit.samplers' has no attribute {name!r}")
