"""Attacks by name, safe calls of them, and events in their view of releases."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.audit.mechanism.events import Cells, Event, NestedEvents, Statistic, choose
from dpaudit.audit.mechanism.judge import EVENT_SHARE, LOW_BITS_SHARE, Counted, Learned
from dpaudit.audit.mechanism.releases import Releases
from dpaudit.errors import DpauditError, UnknownNameError, UsageError
from dpaudit.protocols import Attack as ScoringAttack
from dpaudit.protocols import LearningAttack, ProbingAttack, UnitSupport, plays
from dpaudit.results.text import error_text, one_line
from dpaudit.stats import clopper_pearson
from dpaudit.targets.adapters.base import Library
from dpaudit.types import PluginOrigin, Reference

__all__ = [
    "Attack",
    "NamedAttack",
    "guessed",
    "named_attack",
    "origins",
    "own_attack",
    "probes",
    "reduced",
    "support_statistic",
]

_CHOICES = "dpaudit list attacks says which attack whole mechanisms"
_METHODS = ("learn", "pairs")
_BOUNDS = {"lower": ("lower", "lower_bound"), "upper": ("upper", "upper_bound")}
"""Bounds of each record, with the names that attacks and libraries give them."""
_AT_ONCE = 1 << 22
"""Numbers per call of a support attack."""

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T")
Attack = ScoringAttack | LearningAttack | ProbingAttack


@dataclass(frozen=True)
class NamedAttack:
    """An attack, the text that names it, and its origin."""

    text: str
    does: Attack
    origin: PluginOrigin | None = None


def named_attack(text: str, *, mechanism: str = "") -> NamedAttack:
    """The attack ``NAME[:option=value,…]``, if it is one on whole mechanisms.

    An attack with options ``lower`` and ``upper`` gets the bounds of the library's ``mechanism``
    (``LIB:MECH:…``, as users write it), unless ``text`` gives them.

    Raises:
        UnknownNameError: no such attack or option.
        UsageError: an attack of another kind, or a missing or invalid option.
    """
    name = Reference.parse(text).name
    known = registry.plugins("attacks")
    if name not in known:
        near = registry.nearest(name, known)
        near = near if "did you mean" in near else ""
        raise UnknownNameError(f"attack={one_line(name)}: not known{near}; {_CHOICES}")
    factory = registry.load("attacks", name)
    offered = plays(factory, "support") or any(hasattr(factory, name) for name in _METHODS)
    if isinstance(factory, type) and not offered:
        raise _other(name)  # before it asks for options
    text = _within_bounds(text, factory, mechanism)
    made = registry.create("attacks", text)
    if not _attacks_mechanisms(made):
        raise _other(name)
    return NamedAttack(text, made, known[name].origin)


def own_attack(attack: Attack) -> NamedAttack:
    """An attack that no distribution registers, under the name of its class.

    Raises:
        UsageError: it is none, or the class itself.
    """
    if isinstance(attack, type) or not _attacks_mechanisms(attack):
        raise UsageError(
            f"attack={one_line(attack, limit=100)}: must be a name or an attack, an object with "
            f"{', '.join(_METHODS)}, or score and games=('support',)"
        )
    return NamedAttack(type(attack).__name__, attack)


def _attacks_mechanisms(attack: object) -> bool:
    return plays(attack, "support") or isinstance(attack, (LearningAttack, ProbingAttack))


def _other(name: str) -> UsageError:
    return UsageError(
        f"attack={name}: is no attack on a whole mechanism (dpaudit attack may take it); {_CHOICES}"
    )


def _within_bounds(text: str, factory: Any, mechanism: str) -> str:
    """``text`` with the mechanism's bounds, if the attack takes some and they are known."""
    library, _, target = mechanism.partition(":")
    if library not in registry.plugins("samplers") or not callable(factory):
        return text
    adapter = registry.load("samplers", library)
    parameters = inspect.signature(factory).parameters
    if not isinstance(adapter, Library) or not set(_BOUNDS) <= set(parameters):
        return text
    options = adapter.find(target)[1]
    known = {b: options[name] for b, names in _BOUNDS.items() for name in names if name in options}
    ref = Reference.parse(text)
    return str(replace(ref, options={**known, **ref.options}))


def origins(*attacks: NamedAttack | None) -> tuple[PluginOrigin, ...]:
    """Origins of these attacks, for a result's provenance."""
    return tuple(a.origin for a in attacks if a is not None and a.origin is not None)


def feasible(attack: NamedAttack, releases: Array, value: Array) -> Bools:
    """Whether every unit of each release (t, k) can have come from ``value`` (k,), shape (t,).

    Raises:
        UsageError: the attack cannot take such releases.
        DpauditError: it failed, or returned something else.
    """
    support = attack.does
    assert isinstance(support, ScoringAttack)  # noqa: S101 checked by the caller
    step = max(1, _AT_ONCE // max(1, releases.shape[1]))
    found = np.empty(len(releases), dtype=bool)
    for start in range(0, len(releases), step):
        rows = releases[start : start + step]
        units = np.asarray(_asked(attack, support.score, rows, UnitSupport(value)))
        possible = units == 0
        if (
            (units.ndim != 2 or len(units) != len(rows) or not units.shape[1])
            or units.dtype.kind != "f"
            or not (possible | np.isneginf(units)).all()
        ):
            what = f"gave {units.dtype} of shape {units.shape}, wanted 0 or -inf"
            raise _wrong(attack, f"{what}, shape ({len(rows)}, units)")
        found[start : start + step] = possible.all(axis=1)
    return found


def settled(attack: NamedAttack, *releases: Array) -> NamedAttack:
    """The attack that reads each release by itself, settled on ``releases`` where it needs that.

    An attack without a method ``settled`` is returned as it is. Without settling, what an attack
    decides from all the releases of one call could differ between the neighbours, or between parts
    of one neighbour's, and its events would not be fixed. Parts have shape (t, k).

    Raises:
        UsageError, DpauditError: as in :func:`feasible`.
    """
    settle = getattr(attack.does, "settled", None)
    if settle is None:
        return attack
    does = _asked(attack, settle, *releases)
    if not plays(does, "support"):
        raise _wrong(attack, f"settled on {type(does).__name__}, wanted an attack like itself")
    return replace(attack, does=does)


def scorer(
    attack: NamedAttack, first: Array, second: Array, *, neighbours: tuple[Array, Array]
) -> Callable[[Array], Array]:
    """A map to scores (t,), learned from releases (t, k) at the two ``neighbours`` (m,).

    Raises:
        UsageError, DpauditError: as in :func:`feasible`; the map raises them too.
    """
    learner = attack.does
    assert isinstance(learner, LearningAttack)  # noqa: S101 checked by the caller
    learned = _asked(attack, partial(learner.learn, first, second, neighbours=neighbours))

    def scores(releases: Array) -> Array:
        found = np.asarray(_asked(attack, learned, releases))
        if found.dtype.kind not in "iufb" or found.shape != (len(releases),):
            what = f"gave {found.dtype} of shape {found.shape}"
            raise _wrong(attack, f"{what}, wanted one number for {len(releases)} rows")
        if not np.isfinite(found).all():
            raise _wrong(attack, "gave a score that is not finite")
        return found.astype(np.float64)

    return scores


def probes(attack: NamedAttack) -> Sequence[tuple[str, Array, Array]]:
    """The pairs of neighbours of a probing attack, each with a description.

    Raises:
        UsageError, DpauditError: as in :func:`feasible`; and for neighbours of different lengths,
            or equal ones.
    """
    prober = attack.does
    assert isinstance(prober, ProbingAttack)  # noqa: S101 checked by the caller
    found = [
        (str(says), np.asarray(a, np.float64), np.asarray(b, np.float64))
        for says, a, b in _asked(attack, prober.pairs)
    ]
    for says, a, b in found:
        finite = a.ndim == 1 and a.shape == b.shape and np.isfinite([a, b]).all()
        if not finite or np.array_equal(a, b):
            what = f"brought neighbours ({says}) that are not two different rows of finite numbers"
            raise _wrong(attack, what)
    if not found:
        raise _wrong(attack, "brought no neighbours")
    return found


def _asked(attack: NamedAttack, question: Callable[..., T], *what: Any) -> T:
    try:
        return question(*what)
    except (DpauditError, ModuleNotFoundError):  # the command line names the missing extra
        raise
    except Exception as error:
        raise _wrong(attack, f"raised {error_text(error)}") from error


def _wrong(attack: NamedAttack, what: str) -> DpauditError:
    return DpauditError(f"attack={attack.text}: {what}; fix the attack")


ATTACK_SHARE = (EVENT_SHARE + LOW_BITS_SHARE) / 2
"""Share of α for each of the two directions; the rest is the curve's, which bounds δ and μ."""


@dataclass(frozen=True)
class Reduced:
    """An attack's numbers (n, 1) for the counted releases of each neighbour, and events in them.

    ``guesses`` (n,) are above 0 for the second neighbour, below for the first, 0 where the attack
    cannot say.
    """

    learned: Learned
    counted: tuple[Array, Array]
    guesses: tuple[Array, Array]
    details: Mapping[str, Any] = field(default_factory=dict)


def reduced(
    attack: NamedAttack,
    drawn: Releases,
    neighbours: tuple[Array, Array],
    *,
    delta: float,
    alpha: float,
) -> Reduced:
    """Reduce releases (n, k) at the two ``neighbours`` (m,) by a support or a learning attack.

    Raises:
        UsageError, DpauditError: the attack cannot take such releases, or failed.
    """
    if plays(attack.does, "support"):
        return _by_support(attack, drawn, neighbours)
    return _by_learning(attack, drawn, neighbours, delta=delta, alpha=alpha)


def _learned(attack: NamedAttack, events: Sequence[Event], nested: NestedEvents | None) -> Learned:
    counted = (Counted(event, ATTACK_SHARE, attack.text) for event in events)
    return Learned(tuple(counted), nested, (ATTACK_SHARE, ATTACK_SHARE))


def _by_support(attack: NamedAttack, drawn: Releases, neighbours: tuple[Array, Array]) -> Reduced:
    """Two events fixed beforehand: feasible from one neighbour, and not from the other.

    If the attack fits the mechanism, that is "infeasible from the other"; otherwise releases that
    are infeasible from both count for neither.

    What an attack decides from many releases (:func:`settled`) it decides once, from all of both
    neighbours together, without their labels. The bounds for ε by the two events still hold: given
    all releases, fair coins still decide whose each is, so the proof of ``epsilon_bounds`` holds
    for any event that depends on the unlabelled releases alone. Not claimed: the same for the
    curve's share of α, which is doubled where the attack would have chosen between two readings by
    chance.
    """
    attack = settled(attack, *drawn.count)
    both = [[feasible(attack, y, v) for v in neighbours] for y in drawn.count]
    codes = [second.astype(np.float64) - first for first, second in both]
    statistic = Statistic("feasible: second − first neighbour", _only_column)
    cells = Cells(np.array([-0.5, 0.5]))
    events = [
        Event(
            statistic,
            cells,
            np.arange(3) == 2 * side,
            side,
            says=f"feasible from the {_ORDINAL[side]} neighbour only",
        )
        for side in (0, 1)
    ]
    nested = NestedEvents(statistic, cells, order=np.array([2, 1, 0]), ends=np.array([0, 1]))
    truth = {o: [int(both[i][i].sum()), len(drawn.count[i])] for i, o in enumerate(_ORDINAL)}
    return Reduced(
        _learned(attack, events, nested),
        counted=(codes[0][:, None], codes[1][:, None]),
        guesses=(codes[0], codes[1]),
        details={"feasible_at_truth": truth},
    )


def _by_learning(
    attack: NamedAttack,
    drawn: Releases,
    neighbours: tuple[Array, Array],
    *,
    delta: float,
    alpha: float,
) -> Reduced:
    """Events of a learned score: a quarter of all releases trains it, another chooses events."""
    x0, x1 = drawn.learn
    half = len(x0) // 2, len(x1) // 2
    score = scorer(attack, x0[: half[0]], x1[: half[1]], neighbours=neighbours)
    s0, s1 = score(x0[half[0] :]), score(x1[half[1] :])
    statistic = Statistic(f"score of {attack.text}", _only_column)
    events, nested = choose(
        [statistic], s0[:, None], s1[:, None], delta=delta, alpha=ATTACK_SHARE * alpha
    )
    above = _threshold(s0, s1)
    counted = score(drawn.count[0]), score(drawn.count[1])
    guesses = [np.where(s >= above, 1.0, -1.0) for s in counted]
    return Reduced(
        _learned(attack, events, nested),
        counted=(counted[0][:, None], counted[1][:, None]),
        guesses=(guesses[0], guesses[1]),
        details={"guesses_second_from": above},
    )


def guessed(guesses: tuple[Array, Array], *, rng: np.random.Generator) -> dict[str, Any]:
    """Number of right guesses (n,), with a 95 % interval; a fair coin replaces missing guesses."""
    right = sum(
        int(np.count_nonzero(sign * g > 0)) for sign, g in zip((-1, 1), guesses, strict=True)
    )
    unsaid = sum(int(np.count_nonzero(g == 0)) for g in guesses)
    right += int(rng.binomial(unsaid, 0.5))
    of = sum(map(len, guesses))
    return {"right": right, "of": of, "by_coin": unsaid, "interval": clopper_pearson(right, of)}


def support_statistic(
    attack: NamedAttack, neighbours: tuple[Array, Array], *, learn: tuple[Array, Array]
) -> Statistic:
    """Which neighbours a release (k,) cannot have come from: 2·(not the first) + (not the second).

    Only coordinates that differ between the ``neighbours`` (k,) are used; the others are alike.
    What the attack decides from many releases it decides from ``learn`` (n, k), which are not
    counted.
    """
    differ = neighbours[0] != neighbours[1]
    attack = settled(attack, *(x[:, differ] for x in learn))
    first, second = (v[differ] for v in neighbours)

    def of(releases: Array) -> Array:
        seen = releases[:, differ]
        not_first = np.where(feasible(attack, seen, first), 0.0, 2.0)
        return not_first + np.where(feasible(attack, seen, second), 0.0, 1.0)

    says = f"impossible by {attack.text} (1: from the second, 2: from the first, 3: from both)"
    return Statistic(says, of)


_ORDINAL = ("first", "second")


def _only_column(x: Array) -> Array:
    return x[:, 0]


def _threshold(s0: Array, s1: Array) -> float:
    """The least score that guesses the second neighbour, with the most right guesses here."""
    places = np.unique(np.concatenate([s0, s1]))
    below = [np.searchsorted(np.sort(s), places) / len(s) for s in (s0, s1)]
    return float(places[int(np.argmax(below[0] - below[1]))])
