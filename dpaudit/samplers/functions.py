"""A Python function as noise, or as releases of a value, however it is called."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.samplers.calls import Call
from dpaudit.samplers.check import answered, numbers
from dpaudit.samplers.plain import dataset_copy, releases_of

__all__ = ["AnyReleasesBy", "ReleasesBy", "noise_by", "sessions"]

_PIECE = 1 << 16  # numbers collected at a time, from a function that gives one

Array = npt.NDArray[np.float64]


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
            return answered(call.bound(function, n=n, d=d, value=value)(), n, d, name)
        if "n" in slots:
            given = call.bound(function, n=n * d, value=value)()
            asked = f"(call n={n * d}); return n numbers"
            array = numbers(given, f"sampler {name} returned", asked)
            if array.size != n * d:
                raise SamplerOutputError(
                    f"sampler {name} returned shape {array.shape}, wanted n={n * d} {asked}"
                )
            return np.ascontiguousarray(array, dtype=np.float64).reshape(n, d)
        one = call.bound(function, d=d, value=value)
        width = d if "d" in slots else 1
        return _collected(one, n * d // width, width, name).reshape(n, d)

    return draw


def _collected(one: Callable[[], Any], calls: int, width: int, name: str) -> Array:
    values = np.empty((calls, width))
    who = f"sampler {name} returned"
    wanted = f"(one call); return {'one number' if width == 1 else f'{width} numbers'}"
    for start in range(0, calls, _PIECE):
        piece = values[start : start + _PIECE]
        given = [one() for _ in range(len(piece))]
        first = numbers(given[0], who, wanted)
        if first.size != width:
            raise SamplerOutputError(f"{who} shape {first.shape} {wanted}")
        array = numbers(given, who, wanted)
        if array.size != piece.size:
            raise SamplerOutputError(f"{who} different shapes {wanted}")
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
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise UsageError(f"calls={calls}: {name} needs an argument ({error}); {hint}") from None
    except ValueError:
        pass  # not known: tried

    def released(value: float | Array) -> Array:
        session = make()
        if not callable(session):
            raise SamplerOutputError(f"{name} returned {type(session).__name__}; {hint}")
        given = [session(copy.copy(value)) for _ in range(calls)]
        return np.concatenate([np.ravel(one) for one in given])

    return released


class ReleasesBy:
    """``(value, n)`` → what ``n`` releases of ``value`` (m,) are, as the function returned them.

    A query of one number is passed as a float, a longer one as an array. A call without ``n`` makes
    one release, and is made again for each.
    """

    def __init__(self, call: Call, function: Callable[..., Any]) -> None:
        self._call, self._function = call, function

    def __call__(self, value: Array, n: int) -> Any:
        if "n" in self._call.slots:
            return self._call.bound(self._function, value=_told(value), n=n)()
        return [one() for one in self._each(value, n)]

    def once(self, value: Array) -> Callable[[], Any]:
        """A call that makes one release and nothing else."""
        return self._call.bound(self._function, value=_told(value), n=1)

    def _each(self, value: Array, n: int) -> Iterator[Callable[[], Any]]:
        if len(value) == 1:
            one = self.once(value)
            return (one for _ in range(n))
        return (self.once(value) for _ in range(n))  # a copy each: it may be changed


class AnyReleasesBy:
    """``(dataset, n)`` → ``n`` releases of any kind, plain, in the order made.

    The function gets a copy of the data set in each call, which it may sort or append to; records
    themselves are shared. A call without ``n`` makes one release, and is made again for each.
    ``features`` turns a release, as the function returned it, to numbers.
    """

    def __init__(
        self,
        call: Call,
        function: Callable[..., Any],
        *,
        name: str,
        features: Callable[[Any], Any] | None = None,
    ) -> None:
        self._call, self._function, self._name = call, function, name
        self._features = features

    def __call__(self, dataset: Any, n: int) -> Array | list[Any]:
        if "n" in self._call.slots:
            given = self._bound(dataset, n=n)()
        else:
            given = [self._bound(dataset, n=1)() for _ in range(n)]
        if self._features is not None:
            given = [self._features(release) for release in given]
        return releases_of(given, n, who=f"mechanism {self._name}")

    def _bound(self, dataset: Any, *, n: int) -> Callable[[], Any]:
        return self._call.bound(self._function, value=dataset_copy(dataset), n=n)


def _told(value: Array) -> Any:
    return float(value[0]) if len(value) == 1 else value.copy()
