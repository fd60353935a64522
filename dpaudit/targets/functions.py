"""A Python function as noise, or as releases of a value or a data set, however it is called.

A mechanism that keeps state is called in sessions, one or several at once: what all calls of them
answer is one release.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.targets.calls import Call
from dpaudit.targets.check import noise_array, numbers
from dpaudit.targets.plain import dataset_copy

__all__ = ["Adversary", "ReleasesBy", "noise_by", "sessions", "transcripts"]

_PIECE = 1 << 16  # numbers collected at a time, from a function that gives one

Array = npt.NDArray[np.float64]

Adversary = Callable[[list[Any]], Any]
"""The next input, from all answers so far; of several sessions, which one and its input."""


def noise_by(
    call: Call, function: Callable[..., Any], *, name: str
) -> Callable[[int, int, float], Array]:
    """``draw(n, d, value)`` → noise (n, d), or value + noise if the function is told the value.

    A call without ``n`` gives one value, or one vector if it has ``d``, and is made again for each:
    this takes the time of as many calls.

    Raises, when it draws:
        SamplerOutputError: what the function returned is not that many numbers.
        Exception: whatever the function raised.
    """
    slots = call.slots

    def draw(n: int, d: int, value: float) -> Array:
        if "n" in slots and "d" in slots:
            return noise_array(call.bound(function, n=n, d=d, value=value)(), n, d, name)
        if "n" in slots:
            values = call.bound(function, n=n * d, value=value)()
            request = f"(call n={n * d}); return n numbers"
            array = numbers(values, f"sampler {name} returned", request)
            if array.size != n * d:
                raise SamplerOutputError(
                    f"sampler {name} returned shape {array.shape}, wanted n={n * d} {request}"
                )
            return np.ascontiguousarray(array, dtype=np.float64).reshape(n, d)
        one = call.bound(function, d=d, value=value)
        width = d if "d" in slots else 1
        return _collected(one, n * d // width, width, name).reshape(n, d)

    return draw


def _collected(one: Callable[[], Any], calls: int, width: int, name: str) -> Array:
    values = np.empty((calls, width))
    who = f"sampler {name} returned"
    request = f"(one call); return {'one number' if width == 1 else f'{width} numbers'}"
    for start in range(0, calls, _PIECE):
        piece = values[start : start + _PIECE]
        answers = [one() for _ in range(len(piece))]
        first = numbers(answers[0], who, request)
        if first.size != width:
            raise SamplerOutputError(f"{who} shape {first.shape} {request}")
        array = numbers(answers, who, request)
        if array.size != piece.size:
            raise SamplerOutputError(f"{who} different shapes {request}")
        piece[:] = array.reshape(piece.shape)
    return values


def sessions(
    make: Callable[..., Any], calls: int, *, name: str
) -> Callable[[float | Array], Array]:
    """``released(value)``: what ``calls`` calls of one fresh session release, in one row.

    ``make()``, a class for example, returns a function of the value that may keep what it likes
    between its calls. Nothing resets what is kept elsewhere.

    Raises:
        UsageError: ``make`` needs an argument.
    """
    hint = f"with calls={calls}, {name}() makes a session, a function of the value"
    _takes_nothing(make, f"calls={calls}: {name}", hint)

    def released(value: float | Array) -> Array:
        session = _callable(make(), name, hint)
        answers = [session(copy.copy(value)) for _ in range(calls)]
        return np.concatenate([np.ravel(one) for one in answers])

    return released


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
    _takes_nothing(make, f"mechanism={name}:", hint)

    def released(dataset: Any) -> list[Any]:
        first = _callable(make(), name, hint)
        opened = [first]
        if sessions > 1:
            sort = "a session is a function"
            opened = [_callable(first(), f"{name}()()", sort) for _ in range(sessions)]
        answers: list[Any] = []
        for i in range(calls * sessions):
            which, inputs = i % sessions, list[Any]()
            if adversary is not None:
                choice = adversary(list(answers))
                which, inputs = (0, [choice]) if sessions == 1 else _chosen(choice, sessions)
            answers.append(opened[which](dataset_copy(dataset), *inputs))
        return answers

    return released


def _callable(session: Any, name: str, hint: str) -> Callable[..., Any]:
    if not callable(session):
        raise SamplerOutputError(f"{name} returned {type(session).__name__}; {hint}")
    return session  # type: ignore[no-any-return]


def _chosen(choice: Any, sessions: int) -> tuple[int, list[Any]]:
    if isinstance(choice, tuple) and len(choice) == 2 and choice[0] in range(sessions):
        return int(choice[0]), [choice[1]]
    raise SamplerOutputError(
        f"adversary returned {choice!r:.80}; with sessions={sessions} return (session, input), a "
        f"session from 0 to {sessions - 1}"
    )


def _takes_nothing(make: Callable[..., Any], who: str, hint: str) -> None:
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise UsageError(f"{who} needs an argument ({error}); {hint}") from None
    except ValueError:
        pass  # not known: tried


class ReleasesBy:
    """``(value, n)`` → what ``n`` releases of ``value`` are, as the function returned them.

    ``value`` is a query result (m,), of which a single number is passed as a float, or whatever
    ``copied`` takes. Each call gets a copy of its own, which it may change. A call without ``n``
    makes one release, and is made again for each.
    """

    def __init__(
        self,
        call: Call,
        function: Callable[..., Any],
        *,
        copied: Callable[[Any], Any] | None = None,
    ) -> None:
        self._call, self._function, self._copied = call, function, copied or _query_result

    def __call__(self, value: Any, n: int) -> Any:
        if "n" in self._call.slots:
            return self._bound(value, n)()
        if isinstance(self._copied(value), float):
            one = self.once(value)
            return [one() for _ in range(n)]
        return [self.once(value)() for _ in range(n)]

    def once(self, value: Any) -> Callable[[], Any]:
        """A call that makes one release and nothing else."""
        return self._bound(value, 1)

    def _bound(self, value: Any, n: int) -> Callable[[], Any]:
        return self._call.bound(self._function, value=self._copied(value), n=n)


def _query_result(value: Array) -> Any:
    return float(value[0]) if len(value) == 1 else value.copy()
