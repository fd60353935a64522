"""Sessions of a mechanism that keeps state, one or several at once, as one release: the answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.samplers.plain import dataset_copy

__all__ = ["Adversary", "transcripts"]

Adversary = Callable[[list[Any]], Any]
"""The next input, from all answers so far; of several sessions, which one and its input."""


def transcripts(
    make: Callable[..., Any],
    *,
    calls: int,
    sessions: int = 1,
    adversary: Adversary | None = None,
    name: str,
) -> Callable[[Any], list[Any]]:
    """``released(dataset)``: the answers of ``calls`` calls of each of ``sessions``, as asked.

    With one session ``make()`` returns it, a function of the data set. With more, ``make()``
    returns what they share, and each call of that, without arguments, opens a session. They are
    called in turn. An ``adversary`` gets the answers so far and returns the next input: a session
    then is a function of the data set and the input. Of several sessions it returns
    ``(session, input)``, in whatever order it likes, ``calls * sessions`` times in all.

    Everything is made anew for each release. The inputs are no part of a release: what an adversary
    that draws its inputs at random could learn from them is left out. Not claimed: calls that
    overlap in time, as of threads.

    Raises:
        UsageError: ``make`` needs an argument.
    """
    hint = f"{name}() makes a session, a function of the data set"
    if adversary is not None:
        hint = f"{name}() makes a session, a function of the data set and the adversary's input"
    if sessions > 1:
        hint = f"{name}() makes what the sessions share, which opens a session when called"
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise UsageError(f"mechanism={name}: needs an argument ({error}); {hint}") from None
    except ValueError:
        pass  # not known: tried

    def released(dataset: Any) -> list[Any]:
        made = _callable(make(), name, hint)
        opened = [made]
        if sessions > 1:
            sort = "a session is a function"
            opened = [_callable(made(), f"{name}()()", sort) for _ in range(sessions)]
        answers: list[Any] = []
        for i in range(calls * sessions):
            which, told = i % sessions, list[Any]()
            if adversary is not None:
                given = adversary(list(answers))
                which, told = (0, [given]) if sessions == 1 else _chosen(given, sessions)
            answers.append(opened[which](dataset_copy(dataset), *told))
        return answers

    return released


def _callable(given: Any, name: str, hint: str) -> Callable[..., Any]:
    if not callable(given):
        raise SamplerOutputError(f"{name} returned {type(given).__name__}; {hint}")
    return given  # type: ignore[no-any-return]


def _chosen(given: Any, sessions: int) -> tuple[int, list[Any]]:
    if isinstance(given, tuple) and len(given) == 2 and given[0] in range(sessions):
        return int(given[0]), [given[1]]
    raise SamplerOutputError(
        f"adversary returned {given!r:.80}; with sessions={sessions} return (session, input), a "
        f"session from 0 to {sessions - 1}"
    )
