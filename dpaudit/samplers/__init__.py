"""Closed samplers: somebody else's noise behind one small interface, each kind in its own sandboxed process.

A callable, a command, a shared library, a recorded file or a registered source, named by one line of text.
"""

from __future__ import annotations

from dpaudit.samplers.resolve import open_sampler

__all__ = ["open_sampler"]
