"""Runs a program in Python itself, unmodified, on given coins.

Nothing here uses the interpreter: a replay checks it.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from dpaudit_prove.exploration.graph import Coin
from dpaudit_prove.exploration.law import canonical_output

__all__ = ["ReplayMismatchError", "replays"]


class ReplayMismatchError(BaseException):
    """The program asked for other coins than those given; no program may catch this."""


class _Tape:
    """Coins in order; `asked` is what was asked for so far."""

    def __init__(self, coins: Sequence[Coin]) -> None:
        self.coins = coins
        self.used = 0

    def below(self, count: int) -> int:
        """The next coin, which must have ``count`` values."""
        if count == 1:
            return 0
        if self.used == len(self.coins):
            raise ReplayMismatchError(f"coin {self.used + 1} is asked for, and there are no more")
        coin = self.coins[self.used]
        if coin.count != count:
            raise ReplayMismatchError(
                f"coin {self.used + 1} has {count} values, but {coin.count} were expected"
            )
        self.used += 1
        return coin.value


class _Generator(random.SystemRandom):
    """A generator that reads a tape; passed in for `--coins ARG`."""

    def __init__(self, tape: _Tape) -> None:
        super().__init__()
        self.tape = tape

    def getrandbits(self, k: int, /) -> int:
        return self.tape.below(1 << k)

    def random(self, size: None = None) -> float:
        del size
        return self.tape.below(1 << 53) * 2.0**-53

    def _randbelow(self, n: int) -> int:
        return self.tape.below(n)

    def randbytes(self, n: int) -> bytes:
        return self.tape.below(1 << (8 * n)).to_bytes(n, "big")

    def integers(
        self, low: int, high: int | None = None, size: None = None, dtype: Any = None,
        endpoint: bool = False,
    ) -> int:  # fmt: skip
        del size, dtype
        first, last = (0, low) if high is None else (low, high)
        return first + self.tape.below(last + bool(endpoint) - first)

    def randbelow(self, n: int) -> int:
        return self._randbelow(n)

    def token_bytes(self, nbytes: int | None = None) -> bytes:
        return self.randbytes(32 if nbytes is None else nbytes)

    randbits = getrandbits
    bytes = randbytes


@contextmanager
def replays(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    passed: Sequence[str] = (),
    everywhere: bool = False,
) -> Iterator[Callable[[Sequence[Coin]], Hashable]]:
    """``run(coins)`` → what function(*args, **kwargs) returns, in the form of `canonical_output`.

    `passed` are the parameters that a generator is passed in by. With `everywhere`, the module
    `random` and NumPy's generators in global variables read the coins too. What draws coins is
    replaced until the block ends.

    Raises:
        ReplayMismatchError: by ``run``: the program asked for other coins.
    """
    generator = _Generator(_Tape(()))

    def run(coins: Sequence[Coin]) -> Hashable:
        generator.tape = tape = _Tape(coins)
        named = {**deepcopy(dict(kwargs)), **dict.fromkeys(passed, generator)}
        try:
            result = canonical_output(function(*deepcopy(list(args)), **named))
        except Exception as error:  # noqa: BLE001 (the program's own)
            result = ("raises", type(error).__name__)
        if tape.used != len(coins):
            raise ReplayMismatchError(f"the program ended after {tape.used} of {len(coins)} coins")
        return result

    with _patch(generator, everywhere=everywhere):
        yield run


@contextmanager
def _patch(generator: _Generator, *, everywhere: bool) -> Iterator[None]:
    before: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        before.append((owner, name, owner.__dict__.get(name, _ABSENT)))
        setattr(owner, name, value)

    put(os, "urandom", lambda n: generator.randbytes(n))
    put(secrets, "randbits", generator.getrandbits)
    put(secrets, "token_bytes", generator.token_bytes)
    for name in ("getrandbits", "random", "_randbelow", "randbytes"):
        method = getattr(generator, name)
        put(random.SystemRandom, name, staticmethod(method))
    if everywhere:
        for name in ("getrandbits", "random", "_randbelow", "randbytes"):
            put(vars(random)["_inst"], name, getattr(generator, name))
            if not name.startswith("_"):
                put(random, name, getattr(generator, name))
    numpy = sys.modules.get("numpy.random") if everywhere else None
    hidden = {random.Random} if everywhere else set()
    hidden |= {numpy.Generator, numpy.RandomState} if numpy else set()
    for module in list(sys.modules.values()):
        if not isinstance(module, types.ModuleType) or module in (random, secrets):
            continue
        for name, value in list(vars(module).items()):
            if type(value) in hidden:
                put(module, name, generator)
            elif type(value) in _METHOD_TYPES:
                other = _replacement_of(value, generator, everywhere=everywhere)
                if other is not None:
                    put(module, name, other)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


_ABSENT = object()
_METHOD_TYPES = frozenset({types.MethodType, types.BuiltinMethodType})


def _replacement_of(function: Any, generator: _Generator, *, everywhere: bool) -> Any:
    """The replacement of a module's global that is a generator's method, imported by name."""
    if function is _URANDOM:
        return generator.randbytes
    kind = random.Random if everywhere else random.SystemRandom
    if isinstance(function.__self__, kind):
        return getattr(generator, function.__name__, None)
    return None


_URANDOM = os.urandom
