"""Betting against a claimed privacy with releases at two neighbours, each chosen by a fair coin.

What is bet on is learned from the releases so far: statistics of a release, cut into cells, and how
often each cell came at each neighbour. The bets of the next releases are fixed before they are
made, so that each capital is a test supermartingale under its hypothesis.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.betting.optimal import factors
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.claims.implied import Profile, of_gaussian

__all__ = ["Hypotheses", "ReleaseBets", "View", "Views", "families"]

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Views = Callable[[Array, Array], "list[View]"]

MAIN_SHARE = 3 / 4
"""Share of α of the claim itself; other bounds divide the rest."""
_EPSILONS = np.geomspace(0.02, 30, 241)
_DELTAS = np.geomspace(1e-7, 0.99, 81)
_MUS = np.geomspace(0.02, 20, 161)
_STEPS = np.geomspace(1 / 16, 4, 81)
"""Multiples of a claimed parameter."""
_SWITCH = 0.02
"""How much of the weights is divided anew after each block: a view that learns late may lead."""
_PRIOR = 0.5
"""Releases added to each cell at each neighbour: nothing is known, and nothing is impossible."""
_RETRAIN = 1.2
_BET_AGAIN = 1.05
"""Bets are placed anew when there are so many times as many releases."""
_FUTURES = 100
_LEADING = 6
"""Views that bet on more than the claim's own parameter."""


@dataclass(frozen=True)
class Hypotheses:
    """Hypotheses of one parameter, weakest last, each a set of lines that hold all at once.

    ``values`` (g,) increase; a mechanism that keeps a value keeps the lines of all larger ones.
    ``slopes`` and ``excesses`` (g, lines) say P₁(E) ≤ a·P₀(E) + c for all events E and either
    order.
    """

    name: str
    values: Array
    slopes: Array
    excesses: Array
    alpha: float

    @classmethod
    def of(
        cls, name: str, values: Sequence[float], profiles: Sequence[Profile], alpha: float
    ) -> Hypotheses:
        """From the pairs (ε, δ) that each value implies."""
        longest = max(map(len, profiles))
        rows = np.array([[*p, *([p[-1]] * (longest - len(p)))] for p in profiles])
        slopes = np.exp(np.minimum(rows[:, :, 0], 300.0))
        return cls(name, np.asarray(values, np.float64), slopes, rows[:, :, 1], alpha)


@functools.lru_cache(maxsize=16)
def families(claim: PrivacyClaim, alpha: float, *, bounds: bool = True) -> tuple[Hypotheses, ...]:
    """The claim first, then what is bounded beside it, each with its share of ``alpha``.

    Without ``bounds`` only the claim, with all of ``alpha``.
    """
    main = _main(claim)
    if not bounds:
        one = claim.profile
        return (Hypotheses.of(main[0], [main[1]], [one], alpha),)
    name, at, profile = main
    values = [at] if profile is None else sorted({*_values(name, at).tolist(), at})
    profiles = [claim.profile if v == at or profile is None else profile(v) for v in values]
    more: list[tuple[str, list[float], Callable[[float], Profile]]] = []
    if name != "ε":
        more.append(("ε", _EPSILONS.tolist(), lambda v: ((v, claim.delta),)))
    more.append(("δ", _DELTAS.tolist(), lambda v: ((claim.epsilon, v),)))
    if name != "μ":
        more.append(("μ", _MUS.tolist(), of_gaussian))
    share = (1 - MAIN_SHARE) * alpha / len(more)
    return (
        Hypotheses.of(name, values, profiles, MAIN_SHARE * alpha),
        *(Hypotheses.of(n, v, [profile(x) for x in v], share) for n, v, profile in more),
    )


def _values(name: str, at: float) -> Array:
    return {"ε": _EPSILONS, "μ": _MUS}.get(name, at * _STEPS)


def _main(claim: PrivacyClaim) -> tuple[str, float, Callable[[float], Profile] | None]:
    """The letter of the claimed parameter, its value, and the profile of others; None without."""
    stated = claim.stated
    if stated is not None:
        value = stated.value
        if value is None or not value > 0 or stated.with_value(value) is None:
            return "claim", 0.0, None

        def other(value: float) -> Profile:
            weaker = stated.with_value(value)
            assert weaker is not None  # noqa: S101 checked above
            return weaker.profile

        return stated.unit, value, other
    if claim.only_mu and claim.mu is not None:
        return "μ", claim.mu, of_gaussian
    if claim.mu is not None:
        return "claim", 0.0, None
    return "ε", claim.epsilon, lambda v: ((v, claim.delta),)


@dataclass
class View:
    """A statistic of releases, its cells, and the counts (2, cells) at the two neighbours so far.

    ``kind`` is event, low bits or learned score, as a finding is explained.
    """

    name: str
    of: Callable[[Array], Array]
    edges: Array
    kind: str = "event"
    counts: Array = field(default_factory=lambda: np.zeros((2, 1)))

    def tally(self, values: Array, sides: Bools) -> Array:
        """How many of the statistic's ``values`` (n,) fell into each cell at each neighbour."""
        cells, size = np.searchsorted(self.edges, values, side="right"), len(self.edges) + 1
        return np.bincount(cells + size * sides, minlength=2 * size).reshape(2, size).astype(float)

    @property
    def probabilities(self) -> Array:
        """What is thought of the cells' probabilities, (2, cells)."""
        smooth = self.counts + _PRIOR
        return np.asarray(smooth / smooth.sum(axis=1, keepdims=True))


class _Capital:
    """The capitals against one family's hypotheses, shared among views."""

    def __init__(self, family: Hypotheses, *, averaged: int, switch: float) -> None:
        self.family, self._averaged, self._switch = family, averaged, switch
        self.log = np.zeros(len(family.values))
        self.best = np.zeros(len(family.values))
        self._weights: dict[str, Array] = {}

    def bet(self, views: Sequence[View]) -> list[Array]:
        """Logarithms of the factors of each view, (hypotheses, 2, cells).

        Against what is refuted nothing is bet.
        """
        family, open_ = self.family, ~self.rejected
        bets = []
        for view in views:
            logs = np.zeros((len(open_), *view.counts.shape))
            lines = family.slopes[open_], family.excesses[open_]
            logs[open_] = factors(view.probabilities, *lines, averaged=self._averaged)[0]
            bets.append(logs)
        return bets

    def leading(self, views: Sequence[View], at: float) -> list[View]:
        """The views that the capital against the hypothesis ``at`` rests on most."""
        i = int(np.searchsorted(self.family.values, at))
        weight = {name: float(w[i]) for name, w in self._weights.items()}
        return sorted(views, key=lambda view: -weight.get(view.name, 0.0))[:_LEADING]

    def settle(self, views: Sequence[View], bets: list[Array], counts: Sequence[Array]) -> None:
        """Take in a block's ``counts`` (2, cells) of each view, for the ``bets`` placed before."""
        gains = [np.zeros_like(self.log)]
        for logs, count in zip(bets, counts, strict=True):
            if self._averaged > 1:
                gains.append(np.log(np.einsum("gbj,bj->g", np.exp(logs), count) / count.sum()))
            else:
                gains.append(np.einsum("gbj,bj->g", logs, count))
        names = ["", *(view.name for view in views)]
        fresh = np.full_like(self.log, 1 / len(names))
        weights = np.stack([self._weights.get(name, fresh) for name in names])
        weights /= weights.sum(axis=0)
        with np.errstate(divide="ignore"):
            terms = np.log(weights) + np.stack(gains)
        total = scipy.special.logsumexp(terms, axis=0)
        self.log += total
        self.best = np.maximum(self.best, self.log)
        after = np.exp(terms - total) * (1 - self._switch) + self._switch / len(names)
        self._weights = dict(zip(names, after, strict=True))

    @property
    def rejected(self) -> Bools:
        """Which hypotheses (g,) are refuted."""
        return self.best >= math.log(1 / self.family.alpha)

    @property
    def bound(self) -> float:
        """The lower bound: the value below the first that is not refuted; 0 if none is."""
        standing = np.flatnonzero(~self.rejected)
        first = int(standing[0]) if standing.size else len(self.log)
        return float(self.family.values[first - 1]) if first else 0.0


class ReleaseBets:
    """Bets against ``claim`` at ``alpha``, on releases given block by block.

    ``views`` makes what is looked at from the releases so far, (n, k) at each neighbour. With
    ``averaged`` above 1 the releases of a block, about so many, may depend on each other: the
    factor of a block is the mean of theirs, whose expectation still is at most 1.

    Formal guarantee: if each release is made at a neighbour chosen by a fair coin, independently of
    everything before, then with probability at least 1 − ``alpha`` all :attr:`bounds` are at most
    the truth after every block, at once, and :attr:`contradicted` is never true unless the claim is
    false. Proof: a bound above the truth needs that the least value at or above it was refuted,
    whose hypothesis is true; that has a probability of at most the family's share of α (Ville's
    inequality). Union bound over families. Releases may depend on earlier ones, if the law of each
    given those keeps the claim.
    """

    def __init__(
        self,
        claim: PrivacyClaim,
        *,
        alpha: float,
        views: Views,
        bounds: bool = True,
        averaged: int = 1,
        switch: float = _SWITCH,
    ) -> None:
        self._claimed, self.drawn = _main(claim)[1], 0
        hypotheses = families(claim, alpha, bounds=bounds)
        self._capitals = [_Capital(f, averaged=averaged, switch=switch) for f in hypotheses]
        self._make = views
        self._rows: list[Array] = []
        self._sides: list[Bools] = []
        self._views: list[View] = []
        self._bets: list[tuple[Sequence[View], list[Array]]] = []
        self._retrain, self._bet_again = 16, 0

    def update(self, rows: Array, sides: Bools) -> bool:
        """Take in releases ``rows`` (n, k), made at neighbours ``sides`` (n,).

        The order within a block does not matter. True if the claim is contradicted.
        """
        values = {id(view.of): view.of(rows) for view in self._views}
        counts = [view.tally(values[id(view.of)], sides) for view in self._views]
        if counts:
            self._settle(dict(zip(map(id, self._views), counts, strict=True)))
        self._rows.append(rows)
        self._sides.append(sides)
        self.drawn += len(rows)
        if self.drawn >= self._retrain:
            self._learn()
        else:
            for view, count in zip(self._views, counts, strict=True):
                view.counts += count
        return self.contradicted

    def _settle(self, counts: dict[int, Array]) -> None:
        if not self._bets or self.drawn >= self._bet_again:
            views: Sequence[View] = self._views
            self._bets = []
            for capital in self._capitals:
                self._bets.append((views, capital.bet(views)))
                views = self._main.leading(views, self._claimed)
            self._bet_again = math.ceil(_BET_AGAIN * self.drawn)
        for capital, (views, bets) in zip(self._capitals, self._bets, strict=True):
            capital.settle(views, bets, [counts[id(view)] for view in views])

    def _learn(self) -> None:
        rows, sides = np.concatenate(self._rows), np.concatenate(self._sides)
        self._rows, self._sides, self._bets = [rows], [sides], []
        if min(sides.sum(), (~sides).sum()) >= 2:
            self._views = self._make(rows[~sides], rows[sides])
        self._retrain = math.ceil(_RETRAIN * self.drawn)

    @property
    def _main(self) -> _Capital:
        return self._capitals[0]

    @property
    def _at(self) -> int:
        """The claim's place among the hypotheses of its parameter."""
        return int(np.searchsorted(self._main.family.values, self._claimed))

    @property
    def contradicted(self) -> bool:
        """Whether the claim, and every stronger one, is refuted."""
        return bool(self._main.rejected[: self._at + 1].all())

    @property
    def p_value(self) -> float:
        """The anytime-valid p-value of the claim: 1 over the least of the highest capitals."""
        return math.exp(-min(700.0, float(self._main.best[: self._at + 1].min())))

    @property
    def log_capital(self) -> float:
        """Natural logarithm of the capital against the claim."""
        return float(self._main.log[self._at])

    @property
    def needed(self) -> float:
        """The logarithm that refutes it."""
        return math.log(1 / self._main.family.alpha)

    @property
    def bounds(self) -> dict[str, float]:
        """Lower bounds by parameter, at once."""
        return {c.family.name: c.bound for c in self._capitals}

    @property
    def leading(self) -> View | None:
        """What the capital against the claim rests on most; None before anything was learned."""
        views = self._main.leading(self._views, self._claimed)
        return views[0] if views else None

    def chance(self, more: int, rng: np.random.Generator) -> float:
        """The probability that ``more`` releases would still refute the claim.

        By the leading views: their cells' probabilities are drawn from what the counts leave open
        (Dirichlet, prior 1/2), each with the best bets for it, and the capital is taken to grow
        normally; the largest over the views. Not claimed: anything about cells that no release
        fell into, and about views yet to be learned.
        """
        family, at = self._main.family, slice(self._at, self._at + 1)
        chances = [0.0]
        for view in self._main.leading(self._views, self._claimed):
            reached, seen = 0.0, view.counts[:, view.counts.any(axis=0)].T
            for _ in range(_FUTURES):
                p = np.stack([rng.dirichlet(row + _PRIOR) for row in seen.T])
                logs, growth = factors(p, family.slopes[at], family.excesses[at])
                if growth[0] > 0:
                    spread = float((p * logs[0] ** 2).sum() / 2 - growth[0] ** 2)
                    missing = self.needed - self.log_capital - more * growth[0]
                    reached += float(scipy.special.ndtr(-missing / math.sqrt(more * spread)))
            chances.append(reached / _FUTURES)
        return max(chances)

    @property
    def families(self) -> list[Hypotheses]:
        """What is bet against, the claim's own parameter first."""
        return [capital.family for capital in self._capitals]

    def state(self) -> dict[str, Array]:
        """Releases and capitals as arrays, for :meth:`restore`."""
        arrays: dict[str, Array] = {"rows": np.concatenate(self._rows)}
        arrays["sides"] = np.concatenate(self._sides).astype(np.float64)
        for i, capital in enumerate(self._capitals):
            arrays[f"log{i}"], arrays[f"best{i}"] = capital.log, capital.best
        return arrays

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go on from a :meth:`state`; views are learned anew, their weights start equal."""
        for i, capital in enumerate(self._capitals):
            capital.log, capital.best = arrays[f"log{i}"], arrays[f"best{i}"]
        self._rows, self._sides = [arrays["rows"]], [arrays["sides"] > 0]
        self.drawn = len(arrays["rows"])
        self._learn()


def block_sizes(
    most: int, *, drawn: int = 0, first: int = 16, growth: float = 0.05
) -> Iterator[int]:
    """Sizes of blocks up to ``most`` in all, each a twentieth of what was ``drawn`` before."""
    while drawn < most:
        size = min(max(first if not drawn else 4, int(growth * drawn)), most - drawn)
        yield size
        drawn += size
