"""Puts our versions of noise primitives where they enter the process, and checks that they stay."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .tape import INSIDE, Tape, current

_placed: list[tuple[Any, str, Any]] = []


def place_hook(owner: Any, name: str, hook: Any) -> None:
    """Set ``owner.name`` to ``hook``, and remember it."""
    setattr(owner, name, hook)
    _placed.append((owner, name, hook))


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Call ``around(tape, original, args, kwargs)`` for ``owner.name``, where a run is on.

    Nothing happens if there is no such function, or it is wrapped already.
    """
    original = getattr(owner, name, None)
    if original is None or hasattr(original, "_dpaudit_original") or not callable(original):
        return

    @functools.wraps(original)
    def hook(*args: Any, **kwargs: Any) -> Any:
        tape = current()
        if tape is None:
            return original(*args, **kwargs)
        return around(tape, original, args, kwargs)

    hook._dpaudit_original = original  # type: ignore[attr-defined]
    place_hook(owner, name, hook)


def quietly(original: Callable[..., Any], args: Any, kwargs: Any) -> Callable[[], Any]:
    """A call of a primitive during which nothing is noted."""

    def make() -> Any:
        with INSIDE:
            return original(*args, **kwargs)

    return make


def changed() -> list[str]:
    """The hooks that are no longer in place: the pipeline replaced them."""
    return sorted(
        {
            f"{getattr(owner, '__name__', owner)}.{name}"
            for owner, name, hook in _placed
            if vars(owner).get(name) is not hook
        }
    )


def names() -> list[str]:
    """The libraries in which hooks are placed."""
    places = {
        getattr(owner, "__module__", None) or getattr(owner, "__name__", "")
        for owner, *_ in _placed
    }
    return sorted({place.split(".")[0] for place in places if place and "dpaudit" not in place})


def module(name: str) -> Any:
    """A module that is imported already, or None."""
    return sys.modules.get(name)


__all__ = ["Tape", "changed", "module", "names", "place_hook", "quietly", "wrap"]
