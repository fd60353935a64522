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
from dpaudit.audit.mechanism.judge import EVENT_SHARE, LOW_BITS_SHARE, CountedEvent, LearnedEvents
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
    "count_right_guesses",
    "named_attack",
    "origins",
    "own_attack",
    "probe_pairs",
    "support_statistic",
    "view_releases",
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
    implementation: Attack
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
    registered = registry.plugins("attacks")
    if name not in registered:
        near = registry.nearest(name, registered)
        near = near if "did you mean" in near else ""
        raise UnknownNameError(f"attack={one_line(name)}: not known{near}; {_CHOICES}")
    factory = registry.load("attacks", name)
    offered = plays(factory, "support") or any(hasattr(factory, method) for method in _METHODS)
    if isinstance(factory, type) and not offered:
        raise _wrong_kind(name)  # before it asks for options
    text = _within_bounds(text, factory, mechanism)
    attack = registry.create("attacks", text)
    if not _attacks_mechanisms(attack):
        raise _wrong_kind(name)
    return NamedAttack(text, attack, registered[name].origin)


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


def _wrong_kind(name: str) -> UsageError:
    return UsageError(
        f"attack={name}: is not an attack on a whole mechanism (try dpaudit attack); {_CHOICES}"
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
    bounds = {b: options[name] for b, names in _BOUNDS.items() for name in names if name in options}
    ref = Reference.parse(text)
    return str(replace(ref, options={**bounds, **ref.options}))


def origins(*attacks: NamedAttack | None) -> tuple[PluginOrigin, ...]:
    """Origins of these attacks, for a result's provenance."""
    return tuple(a.origin for a in attacks if a is not None and a.origin is not None)


def feasible(attack: NamedAttack, releases: Array, value: Array) -> Bools:
    """Whether every unit of each release (t, k) can have come from ``value`` (k,), shape (t,).

    Raises:
        UsageError: the attack cannot take such releases.
        DpauditError: it failed, or returned something else.
    """
    support = attack.implementation
    assert isinstance(support, ScoringAttack)  # noqa: S101 checked by the caller
    step = max(1, _AT_ONCE // max(1, releases.shape[1]))
    possible = np.empty(len(releases), dtype=bool)
    for start in range(0, len(releases), step):
        rows = releases[start : start + step]
        units = np.asarray(_call_attack(attack, support.score, rows, UnitSupport(value)))
        fits = units == 0
        if (
            (units.ndim != 2 or len(units) != len(rows) or not units.shape[1])
            or units.dtype.kind != "f"
            or not (fits | np.isneginf(units)).all()
        ):
            fault = f"gave {units.dtype} of shape {units.shape}, expected 0 or -inf"
            raise _attack_error(attack, f"{fault}, shape ({len(rows)}, units)")
        possible[start : start + step] = fits.all(axis=1)
    return possible


def settle(attack: NamedAttack, *releases: Array) -> NamedAttack:
    """The attack that reads each release by itself, settled on ``releases`` where it needs that.

    An attack without a method ``settled`` is returned as it is. Without settling, what an attack
    decides from all the releases of one call could differ between the neighbours, or between parts
    of one neighbour's, and its events would not be fixed. Parts have shape (t, k).

    Raises:
        UsageError, DpauditError: as in :func:`feasible`.
    """
    method = getattr(attack.implementation, "settled", None)
    if method is None:
        return attack
    fixed = _call_attack(attack, method, *releases)
    if not plays(fixed, "support"):
        fault = f"settled on {type(fixed).__name__}, expected an attack like itself"
        raise _attack_error(attack, fault)
    return replace(attack, implementation=fixed)


def learn_score(
    attack: NamedAttack, first: Array, second: Array, *, neighbours: tuple[Array, Array]
) -> Callable[[Array], Array]:
    """A map to scores (t,), learned from releases (t, k) at the two ``neighbours`` (m,).

    Raises:
        UsageError, DpauditError: as in :func:`feasible`; the map raises them too.
    """
    learner = attack.implementation
    assert isinstance(learner, LearningAttack)  # noqa: S101 checked by the caller
    score = _call_attack(attack, partial(learner.learn, first, second, neighbours=neighbours))

    def scores(releases: Array) -> Array:
        values = np.asarray(_call_attack(attack, score, releases))
        if values.dtype.kind not in "iufb" or values.shape != (len(releases),):
            fault = f"gave {values.dtype} of shape {values.shape}"
            raise _attack_error(attack, f"{fault}, expected one number for {len(releases)} rows")
        if not np.isfinite(values).all():
            raise _attack_error(attack, "gave a score that is not finite")
        return values.astype(np.float64)

    return scores


def probe_pairs(attack: NamedAttack) -> Sequence[tuple[str, Array, Array]]:
    """The pairs of neighbours of a probing attack, each with a description.

    Raises:
        UsageError, DpauditError: as in :func:`feasible`; and for neighbours of different lengths,
            or equal ones.
    """
    prober = attack.implementation
    assert isinstance(prober, ProbingAttack)  # noqa: S101 checked by the caller
    neighbours = [
        (str(description), np.asarray(a, np.float64), np.asarray(b, np.float64))
        for description, a, b in _call_attack(attack, prober.pairs)
    ]
    for description, a, b in neighbours:
        finite = a.ndim == 1 and a.shape == b.shape and np.isfinite([a, b]).all()
        if not finite or np.array_equal(a, b):
            fault = "that are not two different rows of finite numbers"
            raise _attack_error(attack, f"returned neighbours ({description}) {fault}")
    if not neighbours:
        raise _attack_error(attack, "returned no neighbours")
    return neighbours


def _call_attack(attack: NamedAttack, method: Callable[..., T], *arguments: Any) -> T:
    try:
        return method(*arguments)
    except (DpauditError, ModuleNotFoundError):  # the command line names the missing extra
        raise
    except Exception as error:
        raise _attack_error(attack, f"raised {error_text(error)}") from error


def _attack_error(attack: NamedAttack, fault: str) -> DpauditError:
    return DpauditError(f"attack={attack.text}: {fault}; fix the attack")


ATTACK_SHARE = (EVENT_SHARE + LOW_BITS_SHARE) / 2
"""Share of α for each of the two directions; the rest is the curve's, which bounds δ and μ."""


@dataclass(frozen=True)
class AttackView:
    """An attack's ``scores`` (n, 1) of the counted releases of each neighbour, and events in them.

    ``guesses`` (n,) are above 0 for the second neighbour, below for the first, 0 where the attack
    cannot say.
    """

    events: LearnedEvents
    scores: tuple[Array, Array]
    guesses: tuple[Array, Array]
    details: Mapping[str, Any] = field(default_factory=dict)


def view_releases(
    attack: NamedAttack,
    releases: Releases,
    neighbours: tuple[Array, Array],
    *,
    delta: float,
    alpha: float,
) -> AttackView:
    """Reduce releases (n, k) at the two ``neighbours`` (m,) by a support or a learning attack.

    Raises:
        UsageError, DpauditError: the attack cannot take such releases, or failed.
    """
    if plays(attack.implementation, "support"):
        return _by_support(attack, releases, neighbours)
    return _by_learning(attack, releases, neighbours, delta=delta, alpha=alpha)


def _events_to_count(
    attack: NamedAttack, events: Sequence[Event], nested: NestedEvents | None
) -> LearnedEvents:
    counted = (CountedEvent(event, ATTACK_SHARE, attack.text) for event in events)
    return LearnedEvents(tuple(counted), nested, (ATTACK_SHARE, ATTACK_SHARE))


def _by_support(
    attack: NamedAttack, releases: Releases, neighbours: tuple[Array, Array]
) -> AttackView:
    """Two events fixed beforehand: feasible from one neighbour, and not from the other.

    If the attack fits the mechanism, that is "infeasible from the other"; otherwise releases that
    are infeasible from both count for neither.

    What an attack decides from many releases (:func:`settle`) it decides once, from all of both
    neighbours together, without their labels. The bounds for ε by the two events still hold: given
    all releases, fair coins still decide whose each is, so the proof of ``epsilon_bounds`` holds
    for any event that depends on the unlabelled releases alone. Not claimed: the same for the
    curve's share of α, which is doubled where the attack would have chosen between two readings by
    chance.
    """
    attack = settle(attack, *releases.count)
    both = [[feasible(attack, y, v) for v in neighbours] for y in releases.count]
    codes = [second.astype(np.float64) - first for first, second in both]
    statistic = Statistic("feasible: second − first neighbour", _only_column)
    cells = Cells(np.array([-0.5, 0.5]))
    events = [
        Event(
            statistic,
            cells,
            np.arange(3) == 2 * side,
            side,
            description=f"feasible from the {_ORDINAL[side]} neighbour only",
        )
        for side in (0, 1)
    ]
    nested = NestedEvents(statistic, cells, order=np.array([2, 1, 0]), ends=np.array([0, 1]))
    truth = {o: [int(both[i][i].sum()), len(releases.count[i])] for i, o in enumerate(_ORDINAL)}
    return AttackView(
        _events_to_count(attack, events, nested),
        scores=(codes[0][:, None], codes[1][:, None]),
        guesses=(codes[0], codes[1]),
        details={"feasible_at_truth": truth},
    )


def _by_learning(
    attack: NamedAttack,
    releases: Releases,
    neighbours: tuple[Array, Array],
    *,
    delta: float,
    alpha: float,
) -> AttackView:
    """Events of a learned score: a quarter of all releases trains it, another chooses events."""
    x0, x1 = releases.learn
    half = len(x0) // 2, len(x1) // 2
    score = learn_score(attack, x0[: half[0]], x1[: half[1]], neighbours=neighbours)
    s0, s1 = score(x0[half[0] :]), score(x1[half[1] :])
    statistic = Statistic(f"score of {attack.text}", _only_column)
    events, nested = choose(
        [statistic], s0[:, None], s1[:, None], delta=delta, alpha=ATTACK_SHARE * alpha
    )
    above = _threshold(s0, s1)
    scores = score(releases.count[0]), score(releases.count[1])
    guesses = [np.where(s >= above, 1.0, -1.0) for s in scores]
    return AttackView(
        _events_to_count(attack, events, nested),
        scores=(scores[0][:, None], scores[1][:, None]),
        guesses=(guesses[0], guesses[1]),
        details={"guesses_second_from": above},
    )


def count_right_guesses(
    guesses: tuple[Array, Array], *, rng: np.random.Generator
) -> dict[str, Any]:
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
    attack = settle(attack, *(x[:, differ] for x in learn))
    first, second = (v[differ] for v in neighbours)

    def of(releases: Array) -> Array:
        columns = releases[:, differ]
        not_first = np.where(feasible(attack, columns, first), 0.0, 2.0)
        return not_first + np.where(feasible(attack, columns, second), 0.0, 1.0)

    description = (
        f"impossible by {attack.text} (1: from the second, 2: from the first, 3: from both)"
    )
    return Statistic(description, of)


_ORDINAL = ("first", "second")


def _only_column(x: Array) -> Array:
    return x[:, 0]


def _threshold(s0: Array, s1: Array) -> float:
    """The least score that guesses the second neighbour, with the most right guesses here."""
    places = np.unique(np.concatenate([s0, s1]))
    below = [np.searchsorted(np.sort(s), places) / len(s) for s in (s0, s1)]
    return float(places[int(np.argmax(below[0] - below[1]))])
