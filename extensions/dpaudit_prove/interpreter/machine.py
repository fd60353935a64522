"""A program that runs: its frames, what they wait for, and the coins that they asked for.

Each draw of a generator is one request for n equally likely values: an integer that is uniform on
0…n−1 and independent of all others. That is what the operating system's generator promises; for
`random.Random` and NumPy's generators it is an idealisation: the proof is about the program, with
perfect coins in their place.
"""

from __future__ import annotations

import random
import types
from typing import Any

import numpy as np

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter import lazy as lazies
from dpaudit_prove.interpreter.lazy import Lazy, LazyBytes, Symbol, binary
from dpaudit_prove.interpreter.objects import ATOMS, is_number, python_method
from dpaudit_prove.interpreter.sources import Sources
from dpaudit_prove.interpreter.state import Pins
from dpaudit_prove.interpreter.values import (
    UNBOUND,
    Bound,
    CoinMethod,
    CoinSource,
    Frame,
    Generator,
    Token,
)

__all__ = ["GENERATORS", "Machine", "Mode", "Raised", "coin_attribute", "draw"]

_DEEPEST = 900
_LASTING = (type, types.ModuleType, types.FunctionType)
_AS_THEY_ARE = ATOMS | {types.FunctionType, types.ModuleType}
GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
"""Generators of random numbers with hidden state."""
Mode = tuple[Any, ...]
"""How a result is delivered: see `Frame`."""


class Raised:
    """The program ended with an exception."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Machine:
    """Frames that run; `requests` are the coins asked for since `resume` was called.

    `coins` names the generators with hidden state whose draws count as coins: "random", "numpy".
    """

    def __init__(
        self, *, pins: Pins, sources: Sources, coins: frozenset[str] = frozenset()
    ) -> None:
        self.pins, self.sources, self.coins = pins, sources, coins
        self.frames: list[Frame] = []
        self.requests: list[int] = []
        self.result: Any = UNBOUND
        self.hiding = ""  # which finished numbers become tokens: those "stored" or "returned"
        self.token_count = self.segment = 0  # tokens so far: in this run, and before it
        self.hidden_number: Any = UNBOUND  # the number that the last instruction hid

    def resume(self, frames: list[Frame]) -> None:
        """Continue from a state."""
        self.frames, self.requests, self.result = frames, [], UNBOUND
        self.hidden_number, self.token_count = UNBOUND, self.segment

    def request(self, count: int) -> Symbol:
        """A new coin with ``count`` values."""
        symbol = Symbol(0, count, ("new", len(self.requests)))
        self.requests.append(count)
        return symbol

    # -- frames --------------------------------------------------------------------------------
    def enter(self, frame: Frame, mode: Mode) -> None:
        """Begin a call; that of a generator function only makes the generator."""
        if frame.code.is_generator:
            self.deliver(mode, Generator(frame))
        else:
            self._push(frame, mode)

    def resume_generator(self, generator: Generator, mode: Mode, sent: Any = None) -> None:
        """Run a generator that has not ended up to its next value."""
        frame = generator.frame
        if frame is None or frame.generator is generator:
            raise ValueError("generator already executing")
        if generator.started:
            frame.stack.append(sent)
        generator.started = True
        frame.generator = generator
        self._push(frame, mode)

    def _push(self, frame: Frame, mode: Mode) -> None:
        if len(self.frames) >= _DEEPEST:
            raise RefusedProgramError(f"more than {_DEEPEST} nested calls")
        frame.mode = mode
        self.frames.append(frame)

    def deliver(self, mode: Mode, value: Any) -> None:
        """Hand a callee's result to the frame that waits for it."""
        if not self.frames:
            self.result = value
            return
        kind = mode[0]
        stack = self.frames[-1].stack
        if kind in {"push", "operator"}:
            stack.append(value)
        elif kind == "init":
            stack.append(mode[1])
        elif kind == "not":
            if not isinstance(value, bool):
                raise RefusedProgramError("a comparison whose result is not True or False")
            stack.append(not value)
        elif kind != "drop":
            raise AssertionError(kind)

    def unwind(self, error: Exception) -> None:
        """Go to the innermost handler of an exception, or end with it."""
        error.__traceback__ = None
        error.__context__ = None
        while self.frames:
            frame = self.frames[-1]
            if frame.blocks:
                handler, depth = frame.blocks.pop()
                del frame.stack[depth:]
                frame.stack.append(error)
                frame.pc = handler
                return
            self.frames.pop()
            if frame.generator is not None:
                frame.generator.frame = None
                frame.generator = None
                if isinstance(error, StopIteration):
                    error = RuntimeError("generator raised StopIteration")
        self.result = Raised(error)

    # -- values --------------------------------------------------------------------------------
    def adopt_value(self, value: Any) -> Any:
        """A value that comes from outside the run: generators of coins are recognised."""
        if type(value) in _AS_THEY_ARE:
            return value
        if isinstance(value, GENERATORS):
            if self._is_coins(value):
                return CoinSource()
        elif isinstance(value, (types.MethodType, types.BuiltinMethodType)):
            owner = getattr(value, "__self__", None)
            if isinstance(owner, GENERATORS):
                return (
                    coin_attribute(CoinSource(), value.__name__) if self._is_coins(owner) else value
                )
            if owner is not None and not isinstance(owner, types.ModuleType):
                self.pins.adopt(owner)
        return self.pins.adopt(value)

    def _is_coins(self, generator: Any) -> bool:
        if isinstance(generator, random.Random):
            return isinstance(generator, random.SystemRandom) or "random" in self.coins
        return "numpy" in self.coins

    def check_own(self, thing: Any, change: str) -> None:
        """Refuse to change what outlives the call."""
        if id(thing) in self.pins.foreign or isinstance(thing, _LASTING):
            label = getattr(thing, "__name__", type(thing).__name__)
            raise RefusedProgramError(
                f"{change} changes a {type(thing).__name__} that outlives the call ({label}): the "
                "law of one call would depend on earlier calls"
            )

    def store_value(self, value: Any) -> Any:
        """A value that is put into a container."""
        return self.hide(value) if self.hiding == "stored" else value

    def hide(self, value: Any) -> Any:
        """A token instead of a finished number; the run stops after this instruction."""
        if not is_number(value):
            return value
        if self.hidden_number is not UNBOUND:
            raise RefusedProgramError("two values are stored at once")
        self.hidden_number = lazies.force(value)
        self.token_count += 1
        return Token(self.token_count - 1)


_LARGEST_BITS = 1 << 16


def _refuse_more(bits: int) -> None:
    if bits > _LARGEST_BITS:
        raise RefusedProgramError(f"a request for coins has more than {_LARGEST_BITS:,} bits")


def _below(vm: Machine, count: int) -> Any:
    _refuse_more((count - 1).bit_length())
    if count == 1:
        return 0
    return Lazy(vm.request(count))


def _between(vm: Machine, low: int, high: int) -> Any:
    value = _below(vm, high - low)
    return binary("+", value, low) if low else value


def _whole(name: str, value: Any) -> int:
    if type(value) is bool or not isinstance(value, int):
        index = getattr(value, "__index__", None)
        if index is None:
            raise TypeError(f"{name}={value!r}: an integer is needed")
        value = index()
    return int(value)


def _randrange(vm: Machine, start: Any, stop: Any = None, step: Any = 1) -> Any:
    low, high = (0, start) if stop is None else (start, stop)
    low, high, step = _whole("start", low), _whole("stop", high), _whole("step", step)
    if step == 0:
        raise ValueError("zero step for randrange()")
    count = len(range(low, high, step))
    if count <= 0:
        raise ValueError("empty range for randrange()")
    value = _below(vm, count)
    if step != 1:
        value = binary("*", value, step)
    return binary("+", value, low) if low else value


def _randint(vm: Machine, low: Any, high: Any) -> Any:
    return _randrange(vm, low, _whole("b", high) + 1)


def _randbelow(vm: Machine, count: Any) -> Any:
    count = _whole("n", count)
    if count <= 0:
        raise ValueError("Upper bound must be positive.")
    return _below(vm, count)


def _bits(vm: Machine, k: Any) -> Any:
    k = _whole("k", k)
    if k < 0:
        raise ValueError("number of bits must be non-negative")
    _refuse_more(k)
    return _below(vm, 1 << k)


def _uniform53(vm: Machine) -> Any:
    return Lazy(vm.request(1 << 53)).with_step("*", 2.0**-53)


def _bytes(vm: Machine, length: Any = 32) -> Any:
    length = _whole("nbytes", 32 if length is None else length)
    if length == 0:
        return b""
    _refuse_more(8 * length)
    return LazyBytes(vm.request(1 << (8 * length)), length)


def _integers(
    vm: Machine,
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


def _random(vm: Machine, size: Any = None) -> Any:
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


def draw(vm: Machine, name: str, args: list[Any], kwargs: Any) -> Any:
    """Draw once; the arguments are decided."""
    return _DRAWS[name](vm, *args, **kwargs)  # type: ignore[operator]
