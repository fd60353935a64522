"""The libraries whose releases can be audited: how each is installed, and its checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Self

from dpaudit import registry
from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.results.text import one_line
from dpaudit.targets.adapters.base import Library
from dpaudit_studies.history.installing import Requirements

__all__ = ["SUBJECTS", "Check", "Subject", "subject"]

BATTERY, EVENTS = "battery", "events"


@dataclass(frozen=True, slots=True)
class Check:
    """``mechanism`` as its adapter names it, audited by ``method`` at the values 0 and 1.

    ``method`` is ``battery`` (its noise against the law that its adapter states), ``events``
    (releases of the whole mechanism, any event that can be learned), or an attack of ``dpaudit
    mechanism``. The last two are against a claim (``epsilon``, ``delta``).

    >>> Check.parse("laplace:scale=2 reach 0.5")
    Check(mechanism='laplace:scale=2', method='reach', epsilon=0.5, delta=0.0)
    >>> str(Check.parse("gaussian battery"))
    'gaussian battery'
    """

    mechanism: str
    method: str = BATTERY
    epsilon: float | None = None
    delta: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """The check that ``text`` writes: MECHANISM METHOD [EPSILON [DELTA]].

        Raises:
            UsageError: the text is not a check.
        """
        mechanism, method, *claim = [*text.split(), *[BATTERY][: len(text.split()) == 1]]
        try:
            numbers = [float(word) for word in claim]
        except ValueError:
            numbers = []
        if len(numbers) != len(claim) or len(claim) > 2 or (method == BATTERY) != (not claim):
            raise UsageError(
                f"check={one_line(text)}: must be MECHANISM battery or MECHANISM METHOD EPSILON "
                "DELTA, e.g. 'laplace:scale=2 reach 0.5'"
            )
        return cls(mechanism, method, *numbers)

    def __str__(self) -> str:
        claim = [] if self.epsilon is None else [f"{self.epsilon:g}"]
        claim += [f"{self.delta:g}"] if self.delta else []
        return " ".join([self.mechanism, self.method, *claim])


_OWN = "dpaudit_studies.history.adapters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A library by the name of its adapter, which is at ``adapter``, ``MODULE:NAME``.

    ``checks`` run on every release. ``requires`` are installed with it, and of its own
    dependencies ``only`` those named (None: all); ``empty`` modules stay empty, because noise needs
    nothing of them and they cannot be installed. ``shared`` libraries take what they need from this
    Python.
    """

    name: str
    adapter: str
    checks: tuple[Check, ...]
    requires: tuple[str, ...] = ("numpy",)
    only: tuple[str, ...] | None = None
    empty: tuple[str, ...] = ()
    shared: bool = False

    @property
    def library(self) -> Library:
        """The adapter."""
        module, _, name = self.adapter.partition(":")
        loaded: Library = getattr(import_module(module), name)
        return loaded

    @property
    def requirements(self) -> Requirements:
        """What is installed with a release."""
        return Requirements(others=self.requires, only=self.only, shared=self.shared)

    def of(self, mechanism: str) -> tuple[Check, ...]:
        """The checks of one mechanism; with other options, its noise by the battery.

        Raises:
            UnknownNameError, UsageError: no such mechanism or option.
        """
        name, options, _ = mechanism.partition(":")
        known = [c for c in self.checks if c.mechanism.partition(":")[0] == name]
        if options:
            known = [c for c in known if c.mechanism == mechanism]
        if not known:
            self.library.find(mechanism)
        return tuple(known) or (Check(mechanism),)


def subject(name: str) -> Subject:
    """The subject of that name; any other library by its adapter, with its noise by the battery.

    Raises:
        UnknownNameError: no library has this name.
        UsageError: its adapter cannot be used in another environment.
    """
    if name in SUBJECTS:
        return SUBJECTS[name]
    known = registry.plugins("samplers")
    library = registry.load("samplers", name) if name in known else None
    if library is None or not hasattr(library, "table"):
        raise UnknownNameError(f"library={name}: not known{registry.nearest(name, SUBJECTS)}")
    if not isinstance(library, Library) or not library.distribution:
        raise UsageError(
            f"library={name}: has no releases of its own for this Python; choose another of "
            f"{', '.join(SUBJECTS)}"
        )
    checks = (Check(mech) for mech, entry in library.table.items() if entry.claim is not None)
    return Subject(name=name, adapter=known[name].target, checks=tuple(checks))


def _ours(name: str) -> str:
    return f"dpaudit.targets.adapters.{name}:LIBRARY"


def _both(mechanism: str, epsilon: float, delta: float = 0.0) -> tuple[Check, Check]:
    """The battery, and the attack at the last bits of releases."""
    return Check(mechanism), Check(mechanism, "reach", epsilon, delta)


_DELTA = 1e-5
_UNIT = round(gaussian_epsilon(_DELTA, sigma=1.0) + 5e-4, 3)
"""ε at δ = 1e-5 of Gaussian noise with σ = 1 for values 1 apart, rounded up."""
_APPROXIMATE = "epsilon=1,delta=1e-5"

SUBJECTS: Mapping[str, Subject] = {
    found.name: found
    for found in (
        Subject(name="opendp", adapter=_ours("opendp"), checks=(
            Check("discrete-gaussian:scale=2"),
            Check("discrete-laplace:scale=10"),
            Check("discrete-laplace:scale=10", EVENTS, 0.1),
            *_both("laplace:scale=1", 1.0),
            Check("gaussian:scale=1", "reach", _UNIT, _DELTA),
        )),
        Subject(name="diffprivlib", adapter=_ours("diffprivlib"), only=("numpy", "scipy", "joblib"),
                empty=("diffprivlib.models", "sklearn", "crlibm"), checks=(
            *_both("Laplace:epsilon=1", 1.0),
            *_both(f"Gaussian:{_APPROXIMATE}", 1.0, _DELTA),
            *_both("Geometric:epsilon=1", 1.0),
            Check("Staircase:epsilon=1", "reach", 1.0),
        )),
        Subject(name="opacus", adapter=_ours("opacus"), requires=(), only=(), shared=True, checks=(
            Check("noise"),
            Check("noise:secure_mode=true"),
            Check("step", "reach", _UNIT, _DELTA),
            Check("step:secure_mode=true", "reach", _UNIT, _DELTA),
        )),
        Subject(name="python-dp", adapter=_ours("python_dp"), checks=(
            *_both("laplace:epsilon=1", 1.0),
            *_both(f"gaussian:{_APPROXIMATE}", 1.0, _DELTA),
            Check("laplace-int:epsilon=1", "reach", 1.0),
        )),
        Subject(name="pipeline-dp", adapter=_ours("pipeline_dp"), checks=(
            Check("count:epsilon=1", "reach", 1.0),
            Check("sum:epsilon=1,min_value=0,max_value=1", "reach", 1.0),
            Check(f"sum:{_APPROXIMATE},noise_kind=gaussian,min_value=0,max_value=1", "reach", 1.0,
                  _DELTA),
        )),
        Subject(name="tmlt-core", adapter=f"{_OWN}:TMLT_CORE",
                requires=("numpy", "setuptools<81"), empty=("pyspark",),
                only=("numpy", "scipy", "python-flint", "randomgen", "typeguard", "sympy",
                      "pandas"), checks=(
            *_both("laplace:scale=1", 1.0),
            *_both("gaussian:sigma_squared=1", _UNIT, _DELTA),
            Check("geometric:alpha=10"),
            Check("discrete-gaussian:sigma_squared=4"),
        )),
        Subject(name="smartnoise", adapter=f"{_OWN}:SMARTNOISE", requires=("numpy<2",),
                only=("opendp",),
                empty=("snsql.connect", "snsql.sql.privacy", "snsql.sql.private_reader"), checks=(
            Check("Laplace", "reach", 1.0),
            Check("Gaussian", "reach", 1.0, _DELTA),
            Check("DiscreteLaplace:epsilon=0.1", EVENTS, 0.1),
            Check("DiscreteGaussian", EVENTS, 1.0, _DELTA),
        )),
        Subject(name="numpy", adapter=_ours("numpy"), requires=(),
                checks=tuple(map(Check, ("normal", "laplace", "legacy-normal", "legacy-laplace")))),
        Subject(name="scipy", adapter=_ours("scipy"), requires=(),
                checks=tuple(map(Check, ("norm", "laplace", "dlaplace")))),
    )
}  # fmt: skip
