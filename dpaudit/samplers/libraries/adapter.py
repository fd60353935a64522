"""What all adapters have in common: the table, the options, and the sampler and mechanism made from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.registry import nearest
from dpaudit.samplers.check import finite, plain_f64
from dpaudit.samplers.releases import ReleasingWorker
from dpaudit.samplers.worker import _Worker
from dpaudit.types import Reference

__all__ = ["NUMBER_TYPES", "Library", "LibraryNoise", "Mechanism", "added", "claims", "each", "law"]

NUMBER_TYPES = ("f32", "f64")

Array = npt.NDArray[np.float64]
Option = float | str | bool
Release = Callable[[Array, int], Any]
"""``release(value, n)``: ``n`` releases, shape (n, m), of the query result ``value``, shape (m,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """One mechanism of a library.

    ``make(module, **options)`` builds the release; ``options`` are its names and defaults, None where one must be given.
    ``claim(**options)`` is the law of its noise, where it has a name. ``told`` says that the library itself adds the
    noise, so that it could depend on the value; elsewhere the adapter adds. ``whole`` mechanisms take whole numbers only.
    """

    make: Callable[..., Release]
    options: Mapping[str, Option | None]
    claim: Callable[..., str] | None = None
    told: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library by the ``name`` that its entry point in ``dpaudit.samplers`` has; ``module`` is what ``make`` gets.

    Calling it makes a closed sampler, as every sampler kind does; :meth:`mechanism` makes a whole mechanism.
    """

    name: str
    module: str
    install: str
    table: Mapping[str, Mechanism]

    def __call__(self, target: str, *, seed: str, dtype: str = "f64", text_mode: bool = False) -> LibraryNoise:
        """The noise of ``MECH[:option=value,…]``; ``seed`` is not passed on: the library draws as it ships.

        Raises:
            UnknownNameError: no such mechanism or option.
            UsageError: an option of the wrong kind, a ``dtype`` or ``text_mode``.
        """
        del seed
        plain_f64(f"{self.name}:{target}", dtype, text_mode)
        return LibraryNoise(self, target)

    def mechanism(self, target: str) -> ReleasingWorker:
        """The whole mechanism ``MECH[:option=value,…]``.

        Raises:
            UnknownNameError, UsageError: as above.
        """
        self.find(target)
        return ReleasingWorker(f"{self.name}:{target}", place=self.name, member=target, of="library")

    def find(self, target: str) -> tuple[Mechanism, dict[str, Any]]:
        """The table's entry for ``MECH[:option=value,…]``, and all its options.

        Raises:
            UnknownNameError, UsageError: as above.
        """
        ref = Reference.parse(target)
        if ref.name not in self.table:
            known = ", ".join(self.table)
            near = nearest(ref.name, self.table)
            near = near if "did you mean" in near else ""
            raise UnknownNameError(f"mechanism={ref.name}: not in {self.name}{near}; {self.name} has: {known}")
        mechanism = self.table[ref.name]
        for option, given in ref.options.items():
            if option not in mechanism.options:
                near = nearest(option, mechanism.options)
                raise UnknownNameError(f"{option}={given}: {self.name}:{ref.name} has no such option{near}")
        options = {**mechanism.options, **ref.options}
        for option, value in options.items():
            if value is None:
                raise UsageError(f"{option}: {self.name}:{ref.name} needs it; write {self.name}:{ref.name}:{option}=1")
            _check(option, value, mechanism.options[option])
        return mechanism, options


def _check(option: str, value: Option, default: Option | None) -> None:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"{option}={value}: is true or false; choose one of them")
    elif isinstance(default, str):
        if value not in NUMBER_TYPES:
            raise UsageError(f"{option}={value}: is f32 or f64; choose one of them")
    elif isinstance(value, (bool, str)) or not math.isfinite(value):
        raise UsageError(f"{option}={value}: must be a finite number, e.g. {option}=1")
    elif option in {"scale", "sigma", "std"} and value <= 0:
        raise UsageError(f"{option}={value}: a scale is above 0, e.g. {option}=1")


class LibraryNoise(_Worker):
    """The noise that a library adds to the value 0, or to another one where it is told the value."""

    def __init__(self, library: Library, target: str) -> None:
        mechanism, options = library.find(target)
        super().__init__(f"{library.name}:{target}", {"kind": "adapter", "place": library.name, "member": target})
        self._library, self._target = library, target
        self.takes_value = mechanism.told and not mechanism.whole
        self._mechanism, self._options = mechanism, options

    @property
    def claim(self) -> str | None:
        """The law that the library's documents give this noise, as a claim; None where it has no such name."""
        if self._mechanism.claim is None:
            return None
        try:
            return self._mechanism.claim(**self._options)
        except (ArithmeticError, ValueError):  # options that the library refuses too
            return None

    def again(self) -> LibraryNoise:
        """The same noise from a process of its own."""
        return LibraryNoise(self._library, self._target)

    def draw_at(self, value: float, n: int, d: int, *, timeout: float) -> Array:
        """``n`` noise vectors (n, d) made for ``value``: what the library released, less ``value``.

        Raises:
            UsageError: the library is not told the value, or ``value`` is not finite; otherwise as :meth:`draw`.
        """
        if not self.takes_value or not math.isfinite(value):
            raise UsageError(f"value={value}: {self.name} takes {'finite values' if self.takes_value else 'none'}")
        values = np.empty((n, d)) if n > 0 and d > 0 else np.empty(0)
        self._draw(values, n, d, timeout, value=value)
        return finite(values, self.name)


def added(draw: Callable[[tuple[int, int]], Any]) -> Release:
    """A release that adds what ``draw((n, m))`` gives."""
    return lambda value, n: value + draw((n, len(value)))


def each(randomise: Callable[[Any], float], *, whole: bool = False) -> Release:
    """A release that asks for one number at a time, row by row."""

    def release(value: Array, n: int) -> Array:
        numbers = [int(x) if whole else x for x in value.tolist()]
        drawn = [randomise(x) for _ in range(n) for x in numbers]
        return np.array(drawn, dtype=np.float64).reshape(n, len(numbers))

    return release


def claims(family: str, option: str) -> Callable[..., str]:
    """The claim of noise whose scale is an option; ``family`` is written ``gaussian:sigma``."""
    return lambda **options: law(family, options[option])


def law(family: str, scale: float) -> str:
    """A claim as people write it.

    Raises:
        ValueError: ``scale`` is not above 0.
    """
    if not scale > 0:
        raise ValueError(f"{family}={scale}")
    return f"{family}={repr(float(scale)).removesuffix('.0')}"
