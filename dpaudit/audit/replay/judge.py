"""From differences between runs to findings, and from findings to bounds for ε.

The law of noise that a pipeline makes of uniform numbers is read from the numbers themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpaudit.accounting import gaussian_epsilon
from dpaudit.accounting.sequences import Loss, compose
from dpaudit.audit.mechanism.neighbour_search import Pair
from dpaudit.results.text import one_line

__all__ = [
    "Difference",
    "Group",
    "Spent",
    "grouped",
    "hidden_by",
    "law_of",
    "part_of",
    "says_of",
    "spent_on",
    "surely",
]

_ENOUGH = 12
"""Numbers that a law must explain. A law that holds on one side only fails for one in 4,096."""


def _laplace(u: Any) -> Any:
    return -np.sign(u - 0.5) * np.log1p(-2 * np.abs(u - 0.5))


_ONE: dict[str, tuple[Callable[[Any], Any], ...]] = {"laplace": (_laplace,), "normal": (ndtri,)}
_TWO: dict[str, tuple[Callable[[Any, Any], Any], ...]] = {
    "laplace": (
        lambda u, v: np.log(u) - np.log(v),
        lambda u, v: np.log1p(-u) - np.log1p(-v),
        lambda u, v: np.where(u < 0.5, 1, -1) * np.log(v),
        lambda u, v: np.where(u < 0.5, 1, -1) * np.log1p(-v),
    ),
    "normal": (
        lambda u, v: np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v),
        lambda u, v: np.sqrt(-2 * np.log(u)) * np.sin(2 * np.pi * v),
        lambda u, v: np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v),
        lambda u, v: np.sqrt(-2 * np.log1p(-u)) * np.sin(2 * np.pi * v),
    ),
}


def law_of(samples: Sequence[Mapping[str, Any]]) -> tuple[str, float] | None:
    """The law and scale of numbers (``is``) that are made of uniform ones (``of``), or None.

    Known are inverse distribution functions of Laplace and Gaussian noise, differences of two
    exponential draws, signed ones, and Box and Muller's pair. Guarantee: all numbers are the
    law's function of their uniform numbers times one scale, to a millionth. Not claimed: laws
    that are none of these, and functions that differ where no number was seen.
    """
    rows = [
        (*draws, value)
        for sample in samples
        for *draws, value in zip(*sample["of"].values(), sample["is"], strict=False)
    ]
    table = np.unique(np.array([r for r in rows if len(r) == len(rows[0])], dtype=float), axis=0)
    if len(table) < _ENOUGH or table.shape[1] not in (2, 3):
        return None
    *draws, values = table.T
    orders = [draws] if len(draws) == 1 else [draws, draws[::-1]]
    for law, forms in (_ONE if len(draws) == 1 else _TWO).items():
        for form in forms:
            for order in orders:
                with np.errstate(all="ignore"):
                    scales = values / form(*order)
                if np.isfinite(scales).all() and scales[0] and np.allclose(scales, scales[0], 1e-6):
                    return law, float(abs(scales[0]))
    return None


_LAPLACE = ("laplace", "discrete-laplace")
_PURE = (*_LAPLACE, "logistic")
"""Laws whose log ratio is at most the distance over the scale."""
_NUMBER = re.compile(r"\d+|(?<=\])\['[^']*'\]")
_COINS = ("uniform", "integers", "bits", "choice", "permutation", "bernoulli")
_STEPS = ("Staircase", "Snapping", "BoundedDomain", "Uniform")
"""Mechanisms whose loss is not in proportion to how far their input moves."""
_LARGE = 600.0
"""From here on an ε is as good as infinite, and its exponential overflows."""


@dataclass(frozen=True)
class Difference:
    """One difference between a recorded run and its replay, and the pair that shows it."""

    found: Mapping[str, Any]
    pair: Pair
    number: int
    selects: bool

    @property
    def kind(self) -> str:
        return str(self.found["kind"])

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What differences of one cause have in common."""
        place = self.found["in"] or self.found["at"]
        path = _NUMBER.sub("*", str(self.found.get("path", "")))
        return self.kind, str(self.found["name"]), str(place), path

    @property
    def size(self) -> float:
        """How much differs; to choose the pair that shows it best."""
        far = self.found.get("distance", self.found.get("linf"))
        value = float(far) if isinstance(far, (int, float, str)) else 0.0
        return value if math.isfinite(value) else 1e300


@dataclass
class Group:
    """Differences of one cause."""

    differences: list[Difference] = field(default_factory=list)

    @property
    def best(self) -> Difference:
        """Within the domain rather than beyond it, large rather than small, short data first."""
        return min(
            self.differences, key=lambda d: (d.pair.beyond, -d.size, len(d.pair.second), d.number)
        )

    @property
    def beyond(self) -> bool:
        """Whether only values show it of which the data set has none."""
        return all(d.pair.beyond for d in self.differences)

    @property
    def coins(self) -> bool:
        """Whether coins alone may explain it: a choice of theirs shows the data, or hides it."""
        best = self.best
        if best.found.get("shuffled") and best.kind in ("sensitivity", "release"):
            return True  # coins of another length may have chosen other records
        if best.kind in ("control flow", "shape", "scale"):
            return best.found.get("law") in _COINS or best.found.get("expected") in _COINS
        return best.kind in ("release", "domain", "output") and best.selects

    @property
    def lost(self) -> bool:
        """Whether noise that left our sight may explain it."""
        return self.best.kind in ("release", "output") and bool(self.best.found.get("lost"))

    @property
    def mild(self) -> bool:
        """Whether it is advice: a message, or an error at a value that the data set has none of."""
        best = self.best
        if best.kind == "output":
            return best.found.get("path") == "messages"
        return best.kind == "exception" and self.beyond


def grouped(differences: Sequence[Difference]) -> list[Group]:
    """Differences by cause, in the order in which they were met."""
    groups: dict[tuple[str, str, str, str], Group] = {}
    for difference in differences:
        groups.setdefault(difference.key, Group()).differences.append(difference)
    return list(groups.values())


def says_of(difference: Difference) -> str:
    """A difference in one sentence."""
    found = difference.found
    first, second = (one_line(found[side], limit=160) for side in ("first", "second"))
    name, path = one_line(found["name"], limit=80), one_line(found.get("path", ""), limit=100)
    call = f"call number {found['call'] + 1} of a primitive, {name}," if name else ""
    return {
        "control flow": f"the data decides which noise is drawn: {first}, or {second}",
        "shape": f"{call} draws {second} numbers instead of {first}: the data decides how many",
        "scale": f"{call} has another {path or 'scale'} on the neighbour: {first} and {second}",
        "sensitivity": f"the input of {call} moves by {_amount(found.get('distance'))} in the "
        f"{found.get('norm', '')} norm; the library states {_amount(found.get('stated'))} "
        f"({first} and {second})",
        "release": f"{path} shows the data though the noise is the same: {first} and {second}",
        "domain": f"{path} of the release shows the data: {first} and {second}",
        "exception": f"an error shows the data: {first}, and {second}",
        "output": f"{path} shows the data: {first} and {second}",
        "reuse": f"{call} hides two sums: their difference, {first}, is exact, and {second} on the "
        "neighbour",
        "seed": f"the seed of {name} is made of data: {first} and {second}",
    }[difference.kind]


def _amount(value: Any) -> str:
    return (
        f"{float(value):.6g}" if isinstance(value, (int, float, str)) and value != "" else "nothing"
    )


@dataclass(frozen=True)
class Spent:
    """What the noised inputs of a pair add up to, at a δ: an ε, or why it is not known."""

    epsilon: float
    unknown: tuple[str, ...] = ()


def spent_on(moved: Sequence[Mapping[str, Any]], delta: float) -> Spent:
    """The ε of a pair: Laplace noise by L1, Gaussian by L2, stated mechanisms by what they state.

    Pure parts add up, each way (the loss of coins differs between the data sets), Gaussian ones
    by their μ (Dong, Roth and Su 2022, Corollary 3.3), mechanisms with a δ by
    :func:`~dpaudit.accounting.sequences.compose`. Formal guarantee: an upper bound of the privacy
    loss of this pair for the stated laws as real numbers, of all inputs that are not ``unknown``.
    Not claimed: that it is reached: noisy maxima and thresholds release less than is noised.
    """
    ways, square = [0.0, 0.0], 0.0
    unknown: dict[str, None] = {}
    losses: list[tuple[float, float]] = []
    for one in moved:
        law, loss, stated = one["law"], one.get("loss"), one.get("stated") or {}
        ratio = None
        if law in _PURE:
            ratio = _ratio(one, "l1")
        elif law in ("normal", "multivariate-normal"):
            ratio = _ratio(one, "l2")
        if loss not in (None, 0, [0, 0]):
            both = (_number(way) for way in (loss if isinstance(loss, list) else [loss, loss]))
            sure = [b if b is not None and b >= 0 else math.inf for b in both]
            ways = [way + more for way, more in zip(ways, sure, strict=True)]
        elif ratio is not None and "normal" in law:
            square += ratio * ratio
        elif ratio is not None:
            ways = [way + ratio for way in ways]
        elif stated.get("epsilon"):
            losses.append(_stated(one, stated))
        else:
            unknown[f"{one['name']} at {one['in'] or one['at']} (law: {law})"] = None
    return Spent(max(ways) + _composed(math.sqrt(square), losses, delta), tuple(unknown))


def surely(moved: Sequence[Mapping[str, Any]], delta: float) -> float:
    """An ε that a pair exceeds at ``delta``, if its noised values are released as they are.

    Formal guarantee: a lower bound for the stated laws, by the Gaussian inputs alone (exact:
    Balle and Wang 2018, Theorem 8) or the Laplace ones: of k numbers all fall on the likelier side
    with probability 2^−k, and their loss is then the sum.
    """
    exact = [one for one in moved if one.get("exact")]
    normal = [_ratio(one, "l2") or 0.0 for one in exact if "normal" in one["law"]]
    laplace = [one for one in exact if one["law"] in _LAPLACE]
    total = math.fsum(_ratio(one, "l1") or 0.0 for one in laplace)
    count = math.fsum(_number(one.get("l0")) or 0.0 for one in laplace)
    rare = delta * 2.0 ** min(count, 1000.0)
    pure = total + math.log1p(-rare) if rare < 1 else 0.0
    return max(pure, _composed(math.hypot(*normal), [], delta))


def _ratio(one: Mapping[str, Any], norm: str) -> float | None:
    """How far an input moves for each unit of noise; None if one of the two is not known."""
    ratio = _number((one.get("ratios") or {}).get(norm))
    if ratio is not None:
        return math.inf if math.isnan(ratio) else ratio
    if one["law"] == "multivariate-normal":
        return None
    far, scale = _number(one.get(norm)), _number(one.get("scale"))
    if far is None or scale is None or not 0 <= scale < math.inf:
        return None
    return far / scale if scale and not math.isnan(far) else math.inf


def _stated(one: Mapping[str, Any], stated: Mapping[str, Any]) -> tuple[float, float]:
    """The (ε, δ) of a mechanism whose input moves less or further than its library states.

    Further, by k times the sensitivity: kε and δ·(e^kε − 1)/(e^ε − 1) (group privacy: Vadhan 2017,
    Lemma 2.2). Less: its ε in proportion if its noise is of a law where that holds, and it has
    no δ.
    """
    epsilon, delta = float(stated["epsilon"]), float(stated.get("delta") or 0.0)
    share, sensitivity = 1.0, _number(stated.get("sensitivity"))
    if sensitivity is not None:
        far = _number(one.get(stated.get("norm") or "l2"))
        share = math.inf if far is None or not sensitivity > 0 else far / sensitivity
    linear = not delta and not any(word in one["name"] for word in _STEPS)
    if not (math.isfinite(share) and 0 < epsilon < math.inf and 0 <= delta < 1):
        return math.inf, 0.0
    times = share if linear else max(1, math.ceil(share * (1 - 1e-9)))
    if not delta or times == 1:
        return epsilon * times, delta
    if epsilon * times > _LARGE:
        return math.inf, 0.0
    return epsilon * times, delta * math.expm1(epsilon * times) / math.expm1(epsilon)


def _composed(mu: float, losses: Sequence[tuple[float, float]], delta: float) -> float:
    """An ε at ``delta`` of Gaussian noise with ``mu`` and of mechanisms with these (ε, δ)."""
    if not (mu < _LARGE and all(e < math.inf and d < 1 for e, d in losses)):
        return math.inf
    apart = math.fsum(d for _, d in losses)
    rest = delta - apart if apart and mu else delta
    share = rest / 2 if apart and mu else rest
    epsilon = 0.0
    if mu:
        epsilon = gaussian_epsilon(share, sigma=1 / mu) if share > 0 else math.inf
    if losses and epsilon < math.inf:
        at = apart + share if apart and mu else delta if apart else 0.0
        epsilon += compose([Loss(max(e, 1e-12), d) for e, d in losses], delta=at)
    return epsilon


def _number(value: Any) -> float | None:
    """A number, which JSON may hold as a word; None if it is none."""
    if isinstance(value, str):
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.get(value)
    return float(value) if isinstance(value, (int, float)) else None


def part_of(told: Mapping[str, Any], path: str) -> Any:
    """The part of a release that ``path`` names; None if there is no such part."""
    if path in ("stdout", "files"):
        return told.get(path)
    return (told.get("values") or {}).get("" if path == "the release" else path)


def hidden_by(path: str, runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Any:
    """Noise that left our sight and was added to a part of the release, or None.

    ``runs`` are recordings and replays of one pair, each with other noise. The part must differ by
    the same amount in all, and vary between them: then it is data plus noise. A draw that varies
    just as the part does is that noise, and its law and scale are known. One number of it hides one
    sum: two with it, which move apart, are not hidden. Not claimed: the law of noise that is made
    of several draws.
    """
    rows = [(_row(part_of(first, path)), _row(part_of(second, path))) for first, second in runs]
    if len({-1 if row is None else len(row) for pair in rows for row in pair}) != 1:
        return None
    if not rows or not rows[0][0]:
        return None
    parts = np.array([first for first, _ in rows])
    moved = np.array([second for _, second in rows]) - parts
    size = 1e-9 * (1 + np.abs(parts).max())
    places = np.flatnonzero(np.abs(moved[0]) > size)
    steady = np.abs(moved - moved[0]).max() <= size
    if not steady or not len(places) or not (np.ptp(parts[:, places], axis=0) > size).all():
        return None
    drawn = [list(first.get("lost_values") or ()) for first, _ in runs]
    for number, draw in enumerate(drawn[0] if len({len(d) for d in drawn}) == 1 else ()):
        values = [_row(draws[number]["values"]) for draws in drawn]
        if None in values or len({len(v) for v in values if v is not None}) != 1:
            continue
        columns = np.array(values).T
        slopes = [_slope(columns, parts[:, place], size) for place in places]
        if None in slopes:
            continue
        sums: dict[int, float] = {}
        for place, (column, slope) in zip(places, (s for s in slopes if s), strict=True):
            step = moved[0][place] / slope
            if abs(sums.setdefault(column, step) - step) > 10 * size / abs(slope):
                return None
        scale = _number(draw["scale"])
        width = min(abs(s[1]) for s in slopes if s)
        return {**draw, "scale": None if scale is None else scale * width}
    return {"law": "made of several draws", "scale": None, "name": "noise", "at": "", "in": ""}


def _row(value: Any) -> list[float] | None:
    """A part's numbers, all finite; None of anything else, and of more than are told."""
    row = [_number(v) for v in (value if isinstance(value, list) else [value])]
    return None if any(v is None or not math.isfinite(v) for v in row) else row  # type: ignore[return-value]


def _slope(columns: Any, part: Any, size: float) -> tuple[int, float] | None:
    """The column of a draw that explains how ``part`` varies, and with which factor."""
    for number, column in enumerate(columns):
        step = column[1] - column[0] if len(column) > 1 else 0.0
        if step:
            slope = float((part[1] - part[0]) / step)
            rest = (part - part[0]) - slope * (column - column[0])
            if slope and np.abs(rest).max() <= 10 * size:
                return number, slope
    return None
