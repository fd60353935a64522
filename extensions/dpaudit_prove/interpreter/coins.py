"""The draws of random number generators, each as one request for equally likely values.

A request for n values gives an integer that is uniform on 0…n−1 and independent of all others.
That is what the operating system's generator promises; for `random.Random` and NumPy's generators
it is an idealisation: the proof is about the program, with perfect coins in their place.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter.classes import python_method
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes, Symbol, binary
from dpaudit_prove.interpreter.values import Bound, CoinMethod, CoinSource

__all__ = ["Requests", "coin_attribute", "draw"]

_LARGEST_BITS = 1 << 16


class Requests(Protocol):
    """Who hands out symbols."""

    def request(self, count: int) -> Symbol:
        """A new symbol with so many values."""


def _refuse_more(bits: int) -> None:
    if bits > _LARGEST_BITS:
        raise RefusedProgramError(f"a request for coins has more than {_LARGEST_BITS:,} bits")


def _below(vm: Requests, count: int) -> Any:
    _refuse_more((count - 1).bit_length())
    if count == 1:
        return 0
    return Lazy(vm.request(count))


def _between(vm: Requests, low: int, high: int) -> Any:
    found = _below(vm, high - low)
    return binary("+", found, low) if low else found


def _whole(name: str, value: Any) -> int:
    if type(value) is bool or not isinstance(value, int):
        index = getattr(value, "__index__", None)
        if index is None:
            raise TypeError(f"{name}={value!r}: an integer is needed")
        value = index()
    return int(value)


def _randrange(vm: Requests, start: Any, stop: Any = None, step: Any = 1) -> Any:
    low, high = (0, start) if stop is None else (start, stop)
    low, high, step = _whole("start", low), _whole("stop", high), _whole("step", step)
    if step == 0:
        raise ValueError("zero step for randrange()")
    count = len(range(low, high, step))
    if count <= 0:
        raise ValueError("empty range for randrange()")
    found = _below(vm, count)
    if step != 1:
        found = binary("*", found, step)
    return binary("+", found, low) if low else found


def _randint(vm: Requests, low: Any, high: Any) -> Any:
    return _randrange(vm, low, _whole("b", high) + 1)


def _randbelow(vm: Requests, count: Any) -> Any:
    count = _whole("n", count)
    if count <= 0:
        raise ValueError("Upper bound must be positive.")
    return _below(vm, count)


def _bits(vm: Requests, k: Any) -> Any:
    k = _whole("k", k)
    if k < 0:
        raise ValueError("number of bits must be non-negative")
    _refuse_more(k)
    return _below(vm, 1 << k)


def _uniform53(vm: Requests) -> Any:
    return Lazy(vm.request(1 << 53)).then("*", 2.0**-53)


def _bytes(vm: Requests, length: Any = 32) -> Any:
    length = _whole("nbytes", 32 if length is None else length)
    if length == 0:
        return b""
    _refuse_more(8 * length)
    return LazyBytes(vm.request(1 << (8 * length)), length)


def _integers(
    vm: Requests,
    low: Any,
    high: Any = None,
    size: Any = None,
    dtype: Any = None,
    endpoint: bool = False,
) -> Any:
    del dtype
    if size is not None:
        raise RefusedProgramError("integers(size=…): draw one value at a time")
    first, last = (0, low) if high is None else (low, high)
    first, last = _whole("low", first), _whole("high", last) + bool(endpoint)
    if last <= first:
        raise ValueError("low >= high")
    return _between(vm, first, last)


def _random(vm: Requests, size: Any = None) -> Any:
    if size is not None:
        raise RefusedProgramError("random(size=…): draw one value at a time")
    return _uniform53(vm)


_DRAWS = {
    "getrandbits": _bits,
    "randbits": _bits,
    "integers": _integers,
    "_randbelow": _randbelow,
    "randbelow": _randbelow,
    "randbytes": _bytes,
    "bytes": _bytes,
    "randint": _randint,
    "random": _random,
    "randrange": _randrange,
    "token_bytes": _bytes,
    "urandom": _bytes,
}


def coin_attribute(source: CoinSource, name: str) -> CoinMethod | Bound:
    """A method of a generator: one request, or Python code that makes requests."""
    if name in _DRAWS:
        return CoinMethod(source, name)
    written = python_method(random.SystemRandom, name)
    if written:
        return Bound(written, source)
    raise RefusedProgramError(f"the method {name} of a generator of random numbers")


def draw(vm: Requests, name: str, args: list[Any], kwargs: Any) -> Any:
    """Draw once; the arguments are decided."""
    return _DRAWS[name](vm, *args, **kwargs)  # type: ignore[operator]
