"""Releases reduced to one number by an attack that the user named, and the events that are counted in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.audit.epsilon.attacks import Named, feasible, scorer, settled
from dpaudit.audit.epsilon.cells import Cells
from dpaudit.audit.epsilon.draws import Releases
from dpaudit.audit.epsilon.judge import EVENT_SHARE, LOW_BITS_SHARE, Learned
from dpaudit.audit.epsilon.search import Chosen, Nested, choose
from dpaudit.audit.epsilon.statistics import Statistic
from dpaudit.interfaces import SupportAttack
from dpaudit.stats import clopper_pearson

__all__ = ["ATTACK_SHARE", "Reduced", "guessed", "reduced", "support_statistic"]

ATTACK_SHARE = (EVENT_SHARE + LOW_BITS_SHARE) / 2
"""Of α, for each of the two directions; the rest is the curve's, which bounds δ and μ."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reduced:
    """What an attack made of the counted releases: numbers (n, 1) at each neighbour, and the events in them.

    ``guesses`` (n,) are above 0 for the second neighbour, below for the first, 0 where the attack cannot say.
    """

    learned: Learned
    counted: tuple[Array, Array]
    guesses: tuple[Array, Array]
    details: Mapping[str, Any] = field(default_factory=dict)


def reduced(attack: Named, drawn: Releases, neighbours: tuple[Array, Array], *, delta: float, alpha: float) -> Reduced:
    """What the attack makes of releases (n, k) at the two ``neighbours`` (m,); see the two below.

    Raises:
        UsageError, DpauditError: the attack cannot take such releases, or failed.
    """
    if isinstance(attack.does, SupportAttack):
        return _by_support(attack, drawn, neighbours)
    return _by_learning(attack, drawn, neighbours, delta=delta, alpha=alpha)


def _by_support(attack: Named, drawn: Releases, neighbours: tuple[Array, Array]) -> Reduced:
    """Two events that were fixed beforehand: a release is feasible from one neighbour, and not from the other.

    Where the attack fits the mechanism, that is "infeasible from the other"; where it does not quite fit, releases that
    are infeasible from both speak for neither.

    What an attack decides from many releases (:func:`~dpaudit.audit.epsilon.attacks.settled`) it decides once, from all
    of both neighbours together, blind to whose they are. The bounds for ε by the two events hold all the same: given
    all releases, fair coins still decide whose each is, so the proof of ``epsilon_bounds`` goes through for any event
    that depends on the unlabelled releases alone. Not claimed: as much of the curve's share of α, which is doubled where
    the attack would have chosen between two readings by chance.
    """
    attack = settled(attack, *drawn.count)
    both = [[feasible(attack, y, v) for v in neighbours] for y in drawn.count]
    codes = [second.astype(np.float64) - first for first, second in both]
    statistic = Statistic("feasible: second − first neighbour", _only_column)
    cells = Cells(np.array([-0.5, 0.5]))
    events = [
        Chosen(
            statistic, cells, np.arange(3) == 2 * side, side, says=f"feasible from the {_ORDINAL[side]} neighbour only"
        )
        for side in (0, 1)
    ]
    truth = {_ORDINAL[side]: [int(both[side][side].sum()), len(drawn.count[side])] for side in (0, 1)}
    return Reduced(
        Learned(
            tuple((event, ATTACK_SHARE, attack.text, False) for event in events),
            Nested(statistic, cells, order=np.array([2, 1, 0]), ends=np.array([0, 1])),
        ),
        counted=(codes[0][:, None], codes[1][:, None]),
        guesses=(codes[0], codes[1]),
        details={"feasible_at_truth": truth},
    )


def _by_learning(
    attack: Named, drawn: Releases, neighbours: tuple[Array, Array], *, delta: float, alpha: float
) -> Reduced:
    """Events of a learned score: a quarter of all releases teaches the attack, another one chooses the events."""
    x0, x1 = drawn.learn
    half = len(x0) // 2, len(x1) // 2
    score = scorer(attack, x0[: half[0]], x1[: half[1]], neighbours=neighbours)
    s0, s1 = score(x0[half[0] :]), score(x1[half[1] :])
    statistic = Statistic(f"score of {attack.text}", _only_column)
    events, nested = choose([statistic], s0[:, None], s1[:, None], delta=delta, alpha=ATTACK_SHARE * alpha)
    above = _threshold(s0, s1)
    counted = score(drawn.count[0]), score(drawn.count[1])
    guesses = [np.where(s >= above, 1.0, -1.0) for s in counted]
    return Reduced(
        Learned(tuple((event, ATTACK_SHARE, attack.text, False) for event in events), nested),
        counted=(counted[0][:, None], counted[1][:, None]),
        guesses=(guesses[0], guesses[1]),
        details={"guesses_second_from": above},
    )


def guessed(guesses: tuple[Array, Array], *, rng: np.random.Generator) -> dict[str, Any]:
    """How many guesses (n,) are right, with a 95 % interval; where there is none, a fair coin guesses."""
    right = sum(int(np.count_nonzero(sign * g > 0)) for sign, g in zip((-1, 1), guesses, strict=True))
    unsaid = sum(int(np.count_nonzero(g == 0)) for g in guesses)
    right += int(rng.binomial(unsaid, 0.5))
    of = sum(map(len, guesses))
    return {"right": right, "of": of, "by_coin": unsaid, "interval": clopper_pearson(right, of)}


def support_statistic(attack: Named, neighbours: tuple[Array, Array], *, learn: tuple[Array, Array]) -> Statistic:
    """Which neighbours a release (k,) cannot have come from: 2·(not the first) + (not the second).

    Only coordinates that differ between the ``neighbours`` (k,) are looked at; in the others they are alike. What the
    attack decides from many releases it decides from ``learn`` (n, k), which are not counted.
    """
    differ = neighbours[0] != neighbours[1]
    attack = settled(attack, *(x[:, differ] for x in learn))
    first, second = (v[differ] for v in neighbours)

    def of(releases: Array) -> Array:
        seen = releases[:, differ]
        return np.where(feasible(attack, seen, first), 0.0, 2.0) + np.where(feasible(attack, seen, second), 0.0, 1.0)

    return Statistic(f"impossible by {attack.text} (1: from the second, 2: from the first, 3: from both)", of)


_ORDINAL = ("first", "second")


def _only_column(x: Array) -> Array:
    return x[:, 0]


def _threshold(s0: Array, s1: Array) -> float:
    """From where on the second neighbour is guessed, so that most guesses at these scores are right."""
    places = np.unique(np.concatenate([s0, s1]))
    below = [np.searchsorted(np.sort(s), places) / len(s) for s in (s0, s1)]
    return float(places[int(np.argmax(below[0] - below[1]))])
