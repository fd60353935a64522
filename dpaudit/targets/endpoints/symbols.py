"""A function of a shared library, for a worker: C has no signatures, so its user says how."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.results.text import error_text
from dpaudit.targets.calls import Argument, Call, Cast, Constant, c_hint

__all__ = ["NOISE", "RELEASES", "Symbol"]

NOISE = Call(("out", "n", "d"))
"""``void f(double *out, size_t n, size_t d)``"""
RELEASES = Call(("value", "m", "out", "n"))
"""``void f(const double *value, size_t m, double *out, size_t n)``"""

_GUARD = 512  # doubles past the end of a library's buffer
_UNWRITTEN = np.uint64(0x7FF8_6470_6175_6469)  # a NaN that no sampler writes by chance
_RETURNED = {
    "": None,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "int": ctypes.c_int,
    "long": ctypes.c_int64,
}
_WHOLE = ("int", "long")
_RULE = (
    "a C function writes to out, as f(out, n) or f(out, n, d), or returns one number, as "
    "f(1.0) -> double"
)

Array = npt.NDArray[np.float64]


class Symbol:
    """``library:PATH:SYMBOL``, called as its user says, or as :data:`NOISE` or :data:`RELEASES`.

    Arguments in C: ``out`` is a ``double *``, ``n``, ``d`` and ``m`` are ``size_t``, ``value`` is a
    ``double``, or a ``const double *`` to ``m`` of them if ``m`` is passed too, and a constant is a
    ``double``. ``long(value)`` or ``int(3)`` passes another type (:class:`~.calls.Cast`). Values
    that are not written and (near) writes past the end are detected.

    Raises:
        UsageError: the library cannot be loaded, has no such symbol, or ``call`` is no C call.
    """

    def __init__(self, spec: Mapping[str, Any], *, releases: bool) -> None:
        self._name = f"{'mechanism' if releases else 'sampler'} {spec['name']}"
        default = RELEASES if releases else NOISE
        self.call = default if spec["call"] is None else Call.parse(spec["call"])
        self._hint = f"; {c_hint(releases=releases)}" if spec["call"] is None else ""
        self._check(releases)
        self._function = _loaded(spec["place"], spec["member"])
        self._function.argtypes = [self._type(argument) for argument in self.call.arguments]
        self._function.restype = _RETURNED[self.call.returns]

    def _check(self, releases: bool) -> None:
        call, slots = self.call, self.call.slots
        writes, returns = {"out", "n"} <= slots, bool(call.returns) and not slots - {"value"}
        inner = [a.number if isinstance(a, Cast) else a for a in call.arguments]
        literal = [a.value for a in inner if isinstance(a, Constant)]
        if call.named or any(type(number) not in (int, float) for number in literal):
            self._refuse("arguments are names and numbers, by position")
        if (bool(call.returns) == writes) or not (writes or returns) or "(n, d)" in call.arguments:
            self._refuse(_RULE)
        if releases and ("value" not in slots or "d" in slots):
            self._refuse("a mechanism is told the value, as f(value, m, out, n) or f(value)")
        if not releases and "m" in slots:
            self._refuse("m is how many numbers the value of a mechanism has")
        if "m" in slots and "value" not in call.arguments:
            self._refuse("with m, value is an array of doubles")

    def _refuse(self, rule: str) -> NoReturn:
        raise UsageError(f"call={self.call}: {rule}; change the call of the {self._name}")

    def _type(self, argument: Argument) -> Any:
        if isinstance(argument, Cast):
            return _RETURNED[argument.kind]
        pointer = argument == "out" or (argument == "value" and "m" in self.call.slots)
        if pointer:
            return ctypes.c_void_p
        return ctypes.c_size_t if argument in ("n", "d", "m") else ctypes.c_double

    def draw(self, n: int, d: int, value: float) -> npt.NDArray[Any]:
        """Noise (n, d), or value + noise if the function is told the value.

        Raises:
            SamplerOutputError: it wrote too few or too many values.
        """
        if self.call.returns:
            return self._returned(value, n * d).reshape(n, d)
        sizes = {"n": n, "d": d} if "d" in self.call.slots else {"n": n * d}
        count = "n*d" if "d" in self.call.slots else "n"
        call = f"(call {', '.join(f'{k}={v}' for k, v in sizes.items())})"
        return self._written(n * d, count, call, value=value, **sizes).reshape(n, d)

    def release(self, value: Array, n: int) -> npt.NDArray[Any]:
        """``n`` releases (n, m) of ``value`` (m,); without ``m``, of each number by itself.

        Raises:
            SamplerOutputError: it wrote too few or too many values.
        """
        m = len(value)
        if "m" in self.call.slots:
            buffer, call = value.copy(), f"(release n={n} of m={m} numbers)"
            arguments = {"value": buffer.ctypes.data, "m": m, "n": n}
            return self._written(n * m, "n*m", call, **arguments).reshape(n, m)
        if self.call.returns:
            columns = [self._returned(x, n) for x in value.tolist()]
        else:
            call = f"(release n={n})"
            columns = [self._written(n, "n", call, value=x, n=n) for x in value.tolist()]
        return np.column_stack(columns)

    def once(self, value: Array) -> Callable[[], Any]:
        """A call that makes one release, with as little overhead as there can be."""
        if self.call.returns and len(value) == 1:
            return self.call.bound(self._function, value=float(value[0]))
        return partial(self.release, value, 1)

    def _returned(self, value: float, count: int) -> npt.NDArray[Any]:
        one = self.call.bound(self._function, value=value)
        kind = np.int64 if self.call.returns in _WHOLE else np.float64
        return np.fromiter((one() for _ in range(count)), dtype=kind, count=count)

    def _written(self, size: int, count: str, call: str, **arguments: Any) -> Array:
        bits = np.full(size + _GUARD, _UNWRITTEN)
        self.call.bound(self._function, out=bits.ctypes.data, **arguments)()
        last = f"{count} - 1"
        if (bits[size:] != _UNWRITTEN).any():
            raise SamplerOutputError(
                f"{self._name} wrote past the end of its buffer, wanted {count}={size} "
                f"values {call}; write out[0] to out[{last}] only"
            )
        missing = int(np.count_nonzero(bits[:size] == _UNWRITTEN))
        if missing:
            raise SamplerOutputError(
                f"{self._name} wrote {size - missing} values, wanted {count}={size} "
                f"{call}; write them all{self._hint if missing == size else ''}"
            )
        return bits[:size].view(np.float64)


def _loaded(path: str, symbol: str) -> Any:
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise UsageError(
            f"library={path}: cannot be loaded ({error_text(error)}); build it for this machine"
        ) from None
    try:
        return library[symbol]
    except AttributeError:
        raise UsageError(
            f'symbol={symbol}: not in {path}; export it (in C++ as extern "C")'
        ) from None
