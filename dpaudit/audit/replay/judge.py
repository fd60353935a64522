"""From differences between runs to findings, and from findings to bounds for ε."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpaudit.accounting import gaussian_epsilon
from dpaudit.accounting.sequences import Loss, compose
from dpaudit.audit.mechanism.neighbour_search import Pair
from dpaudit.results.text import one_line

__all__ = ["Difference", "Group", "Spent", "grouped", "hidden_by", "says_of", "spent_on"]

_LAPLACE = ("laplace", "discrete-laplace")
_NUMBER = re.compile(r"\d+")
_COINS = ("uniform", "integers", "bits", "choice", "permutation", "bernoulli")


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
        if best.kind in ("control flow", "shape"):
            return best.found.get("law") in _COINS
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
    call = f"call {found['call']} of a primitive, {name}," if name else ""
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

    Pure parts add up, Gaussian ones by their μ (Dong, Roth and Su 2022, Corollary 3.3); mechanisms
    with a δ by :func:`~dpaudit.accounting.sequences.compose`. Formal guarantee: an upper bound of
    the privacy loss of this pair for the stated laws as real numbers. Not claimed: that it is
    reached: noisy maxima and thresholds release less than is noised.
    """
    pure, square, unknown = 0.0, 0.0, []
    losses: list[Loss] = []
    for one in moved:
        scale, stated = one.get("scale"), one.get("stated") or {}
        loss = one.get("loss")
        if isinstance(loss, (int, float)):
            pure += float(loss)
        elif one["law"] in _LAPLACE and isinstance(scale, (int, float)) and scale > 0:
            pure += float(one["l1"]) / scale
        elif one["law"] == "normal" and isinstance(scale, (int, float)) and scale > 0:
            square += (float(one["l2"]) / scale) ** 2
        elif stated.get("epsilon"):
            share = 1.0
            if stated.get("sensitivity") and stated.get("norm"):
                share = float(one[stated["norm"]]) / float(stated["sensitivity"])
            epsilon = float(stated["epsilon"]) * max(share, 1.0 if stated.get("delta") else share)
            losses.append(Loss(max(epsilon, 1e-12), float(stated.get("delta") or 0.0)))
        else:
            unknown.append(f"{one['name']} at {one['in'] or one['at']} (law: {one['law']})")
    if not math.isfinite(pure) or not math.isfinite(square):
        return Spent(math.inf, tuple(dict.fromkeys(unknown)))
    parts = (square > 0) + any(loss.delta for loss in losses)
    share = delta / parts if parts else delta
    epsilon = pure + (
        gaussian_epsilon(share, sigma=1 / math.sqrt(square)) if square > 0 and share else 0
    )
    if square > 0 and not share:
        epsilon = math.inf
    if losses:
        epsilon += compose(losses, delta=share if any(loss.delta for loss in losses) else 0.0)
    return Spent(epsilon, tuple(dict.fromkeys(unknown)))


def hidden_by(path: str, runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Any:
    """Noise that left our sight and was added to a part of the release, or None.

    ``runs`` are recordings and replays of one pair, each with other noise. The part must differ by
    the same amount in all, and vary between them: then it is data plus noise. A draw that varies
    just as the part does is that noise, and its law and scale are known. Not claimed: the law of
    noise that is made of several draws.
    """
    pairs = [(_row(first, path), _row(second, path)) for first, second in runs]
    if any(a is None or b is None or len(a) != len(b) for a, b in pairs):
        return None
    parts = np.array([a for a, _ in pairs], dtype=float)
    moved = np.array([b for _, b in pairs], dtype=float) - parts
    with np.errstate(all="ignore"):
        size = 1e-9 * (1 + np.abs(parts).max())
        places = np.abs(moved[0]) > size
        steady = np.abs(moved - moved[0]).max() <= size
        varies = np.ptp(parts[:, places], axis=0) > size if places.any() else np.array([False])
    if not steady or not varies.all():
        return None
    unknown = {"law": "made of several draws", "scale": None, "name": "noise", "at": "", "in": ""}
    draws = list(runs[0][0].get("lost_values", ()))
    for number, draw in enumerate(draws):
        values = np.array([np.ravel(first["lost_values"][number]["values"]) for first, _ in runs])
        slopes = [_slope(values, parts[:, place], size) for place in np.flatnonzero(places)]
        if all(slope is not None for slope in slopes):
            width = min(abs(slope) for slope in slopes if slope is not None)
            scale = draw["scale"]
            return {**draw, "scale": None if scale is None else scale * width}
    return unknown


def _row(run: Mapping[str, Any], path: str) -> Any:
    value = run.get("values", {}).get("" if path == "the release" else path)
    row = value if isinstance(value, list) else [value]
    return row if all(isinstance(v, (int, float)) for v in row) else None


def _slope(values: Any, part: Any, size: float) -> float | None:
    """The factor with which a column of ``values`` explains how ``part`` varies, if one does."""
    for column in values.T:
        step = column[1] - column[0]
        if step:
            slope = float((part[1] - part[0]) / step)
            rest = (part - part[0]) - slope * (column - column[0])
            if slope and np.abs(rest).max() <= 10 * size:
                return slope
    return None
