"""What adapters have in common: tables, options, versions, and the samplers made from them."""

from __future__ import annotations

import importlib
import math
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.errors import MissingExtraError, UnknownNameError, UsageError
from dpaudit.protocols import Facts
from dpaudit.results.text import error_text
from dpaudit.targets.check import plain_f64
from dpaudit.targets.endpoints.callees import Callee
from dpaudit.targets.endpoints.worker import ACCEPTS, Worker, with_values
from dpaudit.types import Reference

__all__ = [
    "AdapterTarget",
    "Aggregate",
    "Each",
    "Library",
    "LibraryMechanism",
    "additive",
    "advice",
    "claims",
    "installed_version",
    "law",
    "of_data",
    "open_adapter",
    "stated_claim",
]


def installed_version(distribution: str, *, path: Sequence[str] | None = None) -> str | None:
    """The installed version of a distribution by its PyPI name; None if it is not installed.

    ``distribution`` '' is Python itself. ``path`` are the folders to look in, by default those of
    this interpreter.
    """
    if not distribution:
        return platform.python_version()
    folders = sys.path if path is None else list(path)
    distributions = next(
        iter(metadata.Distribution.discover(name=distribution, path=folders)), None
    )
    return None if distributions is None else distributions.version


def advice(name: str, distribution: str, *, tested: str, installed: str | None) -> str:
    """Advice on an ``installed`` version other than the ``tested`` one; '' if there is no need.

    A build's own suffix (``2.13.0+cpu``) makes no difference.
    """
    if installed is None or installed.partition("+")[0] == tested:
        return ""
    return (
        f"{name}: adapter tested with {distribution or 'Python'} {tested}, installed {installed}: "
        "what is known of how it makes noise may no longer hold; read its release notes, or "
        "install the tested version"
    )


NUMBER_TYPES = ("f32", "f64")

Array = npt.NDArray[np.float64]
Option = float | str | bool
Release = Callable[[Array, int], Any]
"""``release(value, n)``: ``n`` releases (n, m) of the query result ``value`` (m,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryMechanism:
    """One mechanism of a library.

    ``make(module, **options)`` builds the release;
    ``options`` are its names and defaults, None if one must be given, and ``choices`` the words
    that an option may have. ``claim(**options)`` is the law of its noise, if it has a name.
    ``told`` says that the library itself adds the noise, so that it could depend on the value;
    otherwise the adapter adds it. ``whole`` mechanisms take whole numbers only. ``data`` says that
    the value is a data set of m numbers, of which an aggregate is released; its noise cannot be
    sampled separately.
    """

    make: Callable[..., Release] = field(kw_only=False)
    options: Mapping[str, Option | None]
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"dtype": NUMBER_TYPES})
    claim: Callable[..., str] | None = None
    told: bool = False
    whole: bool = False
    data: bool = False


_SPREAD = frozenset({"scale", "sigma", "std", "stddev", "sd", "b"})
"""What libraries call the one parameter of a centred law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library of this Python, by the ``name`` of its entry point in ``dpaudit.samplers``.

    ``distribution`` is its name on PyPI ('' for what comes with Python), ``tested`` the version
    that the adapter was written and tested with, ``table`` its mechanisms by name, ``module`` what
    ``make`` gets, and ``install`` how to install it. Calling it makes a closed
    sampler, as every sampler kind does; :meth:`mechanism` makes a whole mechanism.
    """

    name: str
    distribution: str
    tested: str
    table: Mapping[str, LibraryMechanism]
    module: str
    install: str

    @property
    def version(self) -> str | None:
        """The installed version, read without importing the library; None if there is none."""
        return installed_version(self.distribution)

    @property
    def advice(self) -> str:
        """What to know if the installed version is not the tested one; '' otherwise."""
        return advice(self.name, self.distribution, tested=self.tested, installed=self.version)

    def find(self, target: str) -> tuple[LibraryMechanism, dict[str, Any]]:
        """The table's entry for ``MECH[:option=value,…]``, and all its options.

        Raises:
            UnknownNameError: no such mechanism or option.
            UsageError: an option is missing or of the wrong kind.
        """
        ref = Reference.parse(target)
        if ref.name not in self.table:
            known = ", ".join(self.table)
            near = registry.nearest(ref.name, self.table)
            near = near if "did you mean" in near else ""
            raise UnknownNameError(
                f"mechanism={ref.name}: not in {self.name}{near}; {self.name} has: {known}"
            )
        mechanism = self.table[ref.name]
        for option, setting in ref.options.items():
            if option not in mechanism.options:
                word = next((own for own in mechanism.options if {own, option} <= _SPREAD), "")
                near = f"; {self.name} calls it {word}" if word else ""
                near += registry.nearest(option, mechanism.options)
                raise UnknownNameError(
                    f"{option}={setting}: {self.name}:{ref.name} has no such option{near}"
                )
        options = {**mechanism.options, **ref.options}
        for option, value in options.items():
            if value is None:
                label = f"{self.name}:{ref.name}"
                raise UsageError(f"{option}: {label} needs it; write {label}:{option}=1")
            _check(option, value, mechanism)
        return mechanism, options

    def __call__(
        self, target: str, *, seed: str, dtype: str = "f64", text_mode: bool = False
    ) -> AdapterTarget:
        """The noise of ``MECH[:option=value,…]``, unseeded: the library draws as it ships.

        Raises:
            UnknownNameError: no such mechanism or option.
            UsageError: an option of the wrong kind, a mechanism of data sets, a ``dtype`` or
                ``text_mode``.
        """
        del seed
        plain_f64(f"{self.name}:{target}", dtype, text_mode)
        return AdapterTarget(self, target)

    def mechanism(self, target: str) -> AdapterTarget:
        """The whole mechanism ``MECH[:option=value,…]``.

        Raises:
            UnknownNameError, UsageError: as above.
        """
        return AdapterTarget(self, target, role="mechanism")


def _check(option: str, value: Option, mechanism: LibraryMechanism) -> None:
    default = mechanism.options[option]
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"{option}={value}: is true or false; choose one of them")
    elif isinstance(default, str):
        if value not in mechanism.choices[option]:
            raise UsageError(
                f"{option}={value}: is {' or '.join(mechanism.choices[option])}; choose one of them"
            )
    elif isinstance(value, (bool, str)) or not math.isfinite(value):
        raise UsageError(f"{option}={value}: must be a finite number, e.g. {option}=1")
    elif option in {"scale", "sigma", "std"} and value <= 0:
        raise UsageError(f"{option}={value}: a scale is above 0, e.g. {option}=1")


class AdapterTarget(Worker):
    """A library's mechanism, asked for releases, or for its noise alone.

    That is what the library adds to the value 0, or to another one if it is told the value.
    """

    def __init__(
        self,
        library: Library,
        target: str,
        *,
        role: str = "sampler",
        place: str = "",
        needs: Callable[[], Sequence[str]] = list,
        interpreter: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """``place`` is where the adapter is, as ``MODULE:NAME``, if it is not a registered one.

        ``needs`` and ``interpreter`` are those of a worker in another Python that has the library
        (:class:`~dpaudit.targets.endpoints.channel.Channel`).

        Raises:
            UnknownNameError, UsageError: as :meth:`Library.find`; noise of a mechanism of data
                sets, which has none that could be sampled separately.
        """
        mechanism, options = library.find(target)
        name = f"{library.name}:{target}"
        if mechanism.data and role == "sampler":
            raise UsageError(
                f"sampler={name}: releases an aggregate of a data set, its noise cannot be sampled "
                "separately; audit it as a whole mechanism"
            )
        spec = {"kind": "adapter", "place": place or library.name, "member": target, "role": role}
        facts = Facts(
            ACCEPTS[role],
            claim=stated_claim(mechanism, options) if role == "sampler" else None,
            version=library.version,
            advice=library.advice,
        )
        if role == "sampler" and mechanism.told and not mechanism.whole:
            facts = with_values(facts)
        super().__init__(name, spec, facts=facts, needs=needs, interpreter=interpreter)
        self._again: Callable[[], AdapterTarget] = partial(
            type(self),
            library,
            target,
            role=role,
            place=place,
            needs=needs,
            interpreter=interpreter,
        )

    def again(self) -> AdapterTarget:
        """The same mechanism in a process of its own."""
        return self._again()


def open_adapter(spec: Mapping[str, Any]) -> Callee:
    """What a worker calls for ``LIB:MECH[:option=value,…]``.

    Raises:
        MissingExtraError: the library is not installed.
        UsageError: it cannot be imported, or refuses the options.
    """
    who, (module, colon, name) = f"{spec['role']}={spec['name']}", spec["place"].partition(":")
    # the adapter by where it is, MODULE:NAME, or by its registered name
    library: Library = (
        getattr(importlib.import_module(module), name)
        if colon
        else registry.load("samplers", spec["place"])
    )
    mechanism, options = library.find(spec["member"])
    try:
        release = mechanism.make(_imported(library, who), **options)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 the library's own refusal, whatever its class
        raise UsageError(
            f"{who}: {library.name} refuses the options ({error_text(error)}); change them"
        ) from None
    once: Callable[[Array], Callable[[], Any]] = getattr(
        release, "once", lambda value: partial(release, value, 1)
    )
    if spec["role"] == "sampler":
        return Callee(
            noise=lambda n, d, _, value: release(np.full(d, value) if value else np.zeros(d), n),
            takes_value=mechanism.told,
            ours=True,
        )

    def checked(value: Array) -> Array:
        broken = value[value != np.rint(value)] if mechanism.whole else value[:0]
        if broken.size:
            raise UsageError(f"value={broken[0]}: {spec['name']} takes whole numbers; choose one")
        return value

    return Callee(
        release=lambda value, n: release(checked(value), n),
        once=lambda value: once(checked(value)),
        ours=True,
    )


def _imported(library: Library, who: str) -> Any:
    try:
        return importlib.import_module(library.module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise MissingExtraError(
            f"{who}: needs {missing}, which is not installed; {library.install}"
        ) from None
    except BaseException as error:  # noqa: BLE001 importing runs foreign code
        raise UsageError(
            f"{who}: {library.module} cannot be imported ({error_text(error)}); {library.install}"
        ) from None


def additive(draw: Callable[[tuple[int, int]], Any]) -> Release:
    """A release that adds what ``draw((n, m))`` gives."""
    return lambda value, n: value + draw((n, len(value)))


class _OneByOne:
    """Releases that are made one at a time; each call of what ``once(value)`` gives is one."""

    def once(self, value: Array) -> Callable[[], Any]:
        """A call that makes one release and nothing else."""
        raise NotImplementedError

    def __call__(self, value: Array, n: int) -> Any:
        """``n`` releases (n, k), in the number type that the library gives."""
        once = self.once(value)
        return np.array([once() for _ in range(n)]).reshape(n, -1)


@dataclass(frozen=True, slots=True)
class Each(_OneByOne):
    """A release of one number at a time: ``randomise(x)`` for each x of the value."""

    randomise: Callable[[Any], float]
    whole: bool = False

    def once(self, value: Array) -> Callable[[], Any]:
        """A call that makes one release and nothing else."""
        row, randomise = _numbers(value, whole=self.whole), self.randomise
        if len(row) == 1:
            only = row[0]
            return lambda: randomise(only)
        return lambda: [randomise(x) for x in row]


@dataclass(frozen=True, slots=True)
class Aggregate(_OneByOne):
    """A release of one aggregate of a data set, ``value``: each is ``aggregate(ready(value))``."""

    aggregate: Callable[[Any], Any]
    ready: Callable[[Array], Any]

    def once(self, value: Array) -> Callable[[], Any]:
        """A call that makes one release and nothing else."""
        data, aggregate = self.ready(value), self.aggregate
        return lambda: aggregate(data)


def of_data(aggregate: Callable[[Any], Any], *, whole: bool = False) -> Release:
    """A release of ``aggregate`` of a list of numbers, whole ones or floats."""
    return Aggregate(aggregate, lambda value: _numbers(value, whole=whole))


def _numbers(value: Array, *, whole: bool) -> list[Any]:
    """``value`` (m,) as a list of Python's integers if ``whole``, otherwise floats."""
    return [int(x) for x in value.tolist()] if whole else value.tolist()


def stated_claim(mechanism: LibraryMechanism, options: Mapping[str, Any]) -> str | None:
    """The law that the library documents for this noise, as a claim; None if it has no name."""
    if mechanism.claim is None:
        return None
    try:
        return mechanism.claim(**options)
    except (ArithmeticError, ValueError):  # options that the library refuses too
        return None


def claims(family: str, option: str) -> Callable[..., str]:
    """The claim of noise whose scale is an option; ``family`` is written ``gaussian:sigma``."""
    return lambda **options: law(family, options[option])


def law(family: str, scale: float) -> str:
    """A claim as users write it.

    Raises:
        ValueError: ``scale`` is not above 0.
    """
    if not scale > 0:
        raise ValueError(f"{family}={scale}")
    return f"{family}={repr(float(scale)).removesuffix('.0')}"
