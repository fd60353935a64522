"""Attacks by name: which of them an ε audit can use, and calls of them that end in words whatever they do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.errors import DpauditError, UnknownNameError, UsageError
from dpaudit.interfaces import LearningAttack, ProbingAttack, SupportAttack
from dpaudit.results.text import said
from dpaudit.samplers.libraries.adapter import Adapter
from dpaudit.types import PluginOrigin, Reference

__all__ = ["Named", "feasible", "named_attack", "origins", "probes", "scorer", "settled"]

_FITTING = ("reach", "laplace-support", "pair-inversion", "bit-features", "sensitivity", "timing")
_METHODS = ("feasible", "learn", "pairs")
_BOUNDS = {"lower": ("lower", "lower_bound"), "upper": ("upper", "upper_bound")}
"""Of each record: what attacks call them, and libraries."""
_AT_ONCE = 1 << 22
"""Numbers that a support attack is given in one call."""

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T")


@dataclass(frozen=True)
class Named:
    """An attack, what the user called it, and where it came from."""

    text: str
    does: SupportAttack | LearningAttack | ProbingAttack
    origin: PluginOrigin | None = None


def named_attack(text: str, *, mechanism: str = "") -> Named:
    """The attack ``NAME[:option=value,…]``, if it is one on whole mechanisms.

    An attack with options ``lower`` and ``upper`` has the bounds of the library's ``mechanism`` (``LIB:MECH:…``, as users
    write it), where ``text`` does not say them.

    Raises:
        UnknownNameError: no such attack or option.
        UsageError: an attack of another kind, or a missing or broken option.
    """
    name = Reference.parse(text).name
    those = f"on whole mechanisms there are {', '.join(_FITTING[:-1])} and {_FITTING[-1]}"
    known = registry.plugins("attacks")
    if name not in known:
        near = registry.nearest(name, _FITTING)
        raise UnknownNameError(f"attack={name}: not known{near if 'did you mean' in near else ''}; {those}")
    other = UsageError(f"attack={name}: is no attack on a whole mechanism (dpaudit attack may take it); {those}")
    factory = registry.load("attacks", name)
    if isinstance(factory, type) and not any(hasattr(factory, method) for method in _METHODS):
        raise other  # before it asks for options
    text = _within_bounds(text, factory, mechanism)
    made = registry.create("attacks", text)
    if not isinstance(made, (SupportAttack, LearningAttack, ProbingAttack)):
        raise other
    return Named(text, made, known[name].origin)


def _within_bounds(text: str, factory: Any, mechanism: str) -> str:
    """``text`` with the mechanism's bounds, if the attack takes some and they are known."""
    library, _, target = mechanism.partition(":")
    if library not in registry.plugins("samplers") or not callable(factory):
        return text
    adapter = registry.load("samplers", library)
    if not isinstance(adapter, Adapter) or not set(_BOUNDS) <= set(inspect.signature(factory).parameters):
        return text
    options = adapter.find(target)[1]
    known = {bound: options[name] for bound, names in _BOUNDS.items() for name in names if name in options}
    ref = Reference.parse(text)
    return str(replace(ref, options={**known, **ref.options}))


def origins(*attacks: Named | None) -> tuple[PluginOrigin, ...]:
    """Where these came from, for a result's provenance."""
    return tuple(a.origin for a in attacks if a is not None and a.origin is not None)


def feasible(attack: Named, releases: Array, value: Array) -> Bools:
    """Whether every unit of each release (t, k) can have come from ``value`` (k,), shape (t,).

    Raises:
        UsageError: the attack cannot take such releases.
        DpauditError: it failed, or gave something else.
    """
    support = attack.does
    assert isinstance(support, SupportAttack)  # noqa: S101 the caller has looked
    step = max(1, _AT_ONCE // max(1, releases.shape[1]))
    found = np.empty(len(releases), dtype=bool)
    for start in range(0, len(releases), step):
        rows = releases[start : start + step]
        units = np.asarray(_asked(attack, support.feasible, rows, value))
        if units.dtype != bool or units.ndim != 2 or len(units) != len(rows) or not units.shape[1]:
            raise _wrong(attack, f"gave {units.dtype} of shape {units.shape}, wanted bool ({len(rows)}, units)")
        found[start : start + step] = units.all(axis=1)
    return found


def settled(attack: Named, *releases: Array) -> Named:
    """The attack that reads each release by itself, where it has a method ``settled`` that makes it so from ``releases``.

    Otherwise what it decides from all the releases of one call may differ between the neighbours, or between parts of
    one neighbour's, and its events would be no fixed ones. Parts have shape (t, k).

    Raises:
        UsageError, DpauditError: as in :func:`feasible`.
    """
    settle = getattr(attack.does, "settled", None)
    if settle is None:
        return attack
    does = _asked(attack, settle, *releases)
    if not isinstance(does, SupportAttack):
        raise _wrong(attack, f"settled on {type(does).__name__}, wanted an attack like itself")
    return replace(attack, does=does)


def scorer(attack: Named, first: Array, second: Array, *, neighbours: tuple[Array, Array]) -> Callable[[Array], Array]:
    """What a learning attack learns from releases (t, k) at the two ``neighbours`` (m,): a map to numbers (t,).

    Raises:
        UsageError, DpauditError: as in :func:`feasible`; the map raises them too.
    """
    learner = attack.does
    assert isinstance(learner, LearningAttack)  # noqa: S101 the caller has looked
    learned = _asked(attack, partial(learner.learn, first, second, neighbours=neighbours))

    def scores(releases: Array) -> Array:
        found = np.asarray(_asked(attack, learned, releases))
        if found.dtype.kind not in "iufb" or found.shape != (len(releases),):
            raise _wrong(
                attack, f"gave {found.dtype} of shape {found.shape}, wanted one number for {len(releases)} rows"
            )
        if not np.isfinite(found).all():
            raise _wrong(attack, "gave a score that is not finite")
        return found.astype(np.float64)

    return scores


def probes(attack: Named) -> Sequence[tuple[str, Array, Array]]:
    """The neighbours that a probing attack brings, with words for each.

    Raises:
        UsageError, DpauditError: as in :func:`feasible`; and for neighbours of different lengths, or equal ones.
    """
    prober = attack.does
    assert isinstance(prober, ProbingAttack)  # noqa: S101 the caller has looked
    found = [
        (str(says), np.asarray(a, np.float64), np.asarray(b, np.float64)) for says, a, b in _asked(attack, prober.pairs)
    ]
    for says, a, b in found:
        if a.ndim != 1 or a.shape != b.shape or not np.isfinite([a, b]).all() or np.array_equal(a, b):
            raise _wrong(attack, f"brought neighbours ({says}) that are not two different rows of finite numbers")
    if not found:
        raise _wrong(attack, "brought no neighbours")
    return found


def _asked(attack: Named, question: Callable[..., T], *what: Array) -> T:
    try:
        return question(*what)
    except (DpauditError, ModuleNotFoundError):  # a missing extra is told by the command line
        raise
    except Exception as error:
        raise _wrong(attack, f"raised {said(error)}") from error


def _wrong(attack: Named, what: str) -> DpauditError:
    return DpauditError(f"attack={attack.text}: {what}; mend the attack")
