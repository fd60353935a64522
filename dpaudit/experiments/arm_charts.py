"""Charts of arms under attack: successes, what a defence costs, and releases along a key."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from dpaudit import wording
from dpaudit.experiments.results import Arm, ArmAttack
from dpaudit.report import Axis, Chart, Column, Line, Mark, Panel, Series

__all__ = ["error_chart", "keys_in", "phases_chart", "successes_chart"]

_MOST_ROWS = 24  # of successes; more arms share a row per source and mitigation
_MARKS_SAY = (
    "Filled: the attack shows more than the claimed ε. Hollow: it does not; it may beat chance "
    "(dashed) as far as the claim allows."
)
_MOST_PHASES, _MOST_BINS, _MOST_NUMBERS = 12, 1024, 64

Arms = Sequence[tuple[str, Arm]]


def keys_in(arms: Arms) -> bool:
    """Whether every attack on every arm used a key: then the attacker is the key holder."""
    keyed = [arm.has_key(attack) for _, arm in arms for attack in arm.attacked]
    return bool(keyed) and all(keyed)


def successes_chart(arms: Arms) -> Chart | None:
    """Success with its interval per arm; many arms share a strip per source and mitigation."""
    attacked = [(label, arm) for label, arm in arms if arm.attacked]
    if not attacked:
        return None
    who = "Key holder’s" if keys_in(arms) else "Attacker’s"
    strips = len(attacked) > _MOST_ROWS
    lines: dict[str | int, list[tuple[str, Arm]]] = {}
    for i, (label, arm) in enumerate(attacked):
        lines.setdefault(arm.group if strips else i, []).append((label, arm))
    strips_shown = list(lines.values())[:_MOST_ROWS]
    names = [name if isinstance(name, str) else attacked[name][0] for name in lines]
    attacks = list(dict.fromkeys(a.attack for _, arm in attacked for a in arm.attacked))
    several = len(attacks) > 1
    series = []
    for k, attack in enumerate(attacks):
        shift = (k - (len(attacks) - 1) / 2) * 0.5 / len(attacks)
        marks = tuple(
            _success_mark(arm, a, y + shift, label + (f", {attack}" if several else ""))
            for y, line in enumerate(strips_shown)
            for label, arm in line
            for a in arm.attacked
            if a.attack == attack
        )
        group = k if several else None
        series.append(Series(marks=marks, group=group, legend=attack if several else ""))
    every = [a for line in strips_shown for _, arm in line for a in arm.attacked]
    low, high = _share_range([end for a in every for end in a.ends])
    caption = f"Success with its interval. {_MARKS_SAY}"
    if strips:
        count = wording.count(len(attacked))
        caption += f" Each mark is one of {count} arms, grouped by source and mitigation."
    if len(lines) > len(strips_shown):
        caption += (
            f" The first {_MOST_ROWS} of {wording.count(len(lines))} groups are drawn; all are in "
            "the table."
        )
    listed = _first([f"{label} {best.rate}" for label, arm in attacked if (best := arm.best)])
    return Chart(
        kind="rows",
        title=f"{who} success",
        caption=caption,
        alt=f"{who} success by arm: {listed}.",
        panels=(Panel(series=tuple(series), lines=_guessing(every, vertical=True)),),
        x=Axis(
            label=f"{who.lower()} success: right candidate identified",
            form="proportion",
            low=low,
            high=high,
        ),
        y=Axis(categories=tuple(names[:_MOST_ROWS])),
    )


def _success_mark(arm: Arm, attack: ArmAttack, y: float, name: str) -> Mark:
    low, high = attack.ends
    beyond = arm.exceeded(attack)
    return Mark(
        x=attack.success,
        y=y,
        low=low,
        high=high,
        name=name,
        says=attack.rate,
        filled=beyond,
        alarm=beyond,
    )


def _first(arms: Sequence[str]) -> str:
    """A chart's first twelve arms in words."""
    more = f"; and {len(arms) - 12} more arms, in the table" if len(arms) > 12 else ""
    return "; ".join(arms[:12]) + more


def _guessing(attacks: Iterable[ArmAttack], *, vertical: bool = False) -> tuple[Line, ...]:
    """Lines at the success of guessing, at most five."""
    return tuple(Line(at=c, vertical=vertical) for c in sorted({a.guessing for a in attacks})[:5])


def _share_range(shares: Sequence[float]) -> tuple[float, float]:
    """An axis of shares: up to 100 %, down to just below chance or the least share."""
    return max(-0.02, min(0.45, min(shares) - 0.03)), 1.02


def error_chart(arms: Arms) -> Chart | None:
    """What a defence costs (L2 error) against what it leaves to the attacker."""
    points = [
        (label, arm.l2_error, attack, arm.exceeded(attack))
        for label, arm in arms
        if arm.l2_error is not None and 0 < arm.l2_error < math.inf and (attack := arm.best)
    ]
    if len(points) < 3:
        return None
    who = "key holder’s" if keys_in(arms) else "attacker’s"
    errors = [error for _, error, _, _ in points]
    low, high = _share_range([a.success for _, _, a, _ in points])
    marks = (
        Mark(
            x=error,
            y=attack.success,
            name=label,
            says=f"error {wording.quantity(error)}, success {attack.rate}",
            filled=beyond,
            alarm=beyond,
        )
        for label, error, attack, beyond in points
    )
    series = tuple(Series(marks=(mark,)) for mark in marks)
    listed = _first(
        [f"{n} error {e:,.4g}, success {wording.percent(a.success)}" for n, e, a, _ in points]
    )
    return Chart(
        kind="plot",
        title="Error against protection",
        caption="Error against protection: a defence at the lower left protects and costs little. "
        f"{_MARKS_SAY}",
        alt=f"L2 error against the {who} success: {listed}.",
        panels=(Panel(series=series, lines=_guessing(a for _, _, a, _ in points)),),
        x=Axis(
            label="L2 error of the release (left is better)", log=max(errors) / min(errors) > 20
        ),
        y=Axis(label=f"{who} success", form="proportion", low=low, high=high),
        names=len(points) <= 12,
    )


class _Phases(NamedTuple):
    """Edges of the bins, density in each as a multiple of the uniform one, and what is on the axis.

    ``without`` is the density along a direction that someone without the key guessed; empty where
    it was not measured.
    """

    edges: list[float]
    heights: list[float]
    what: str
    without: list[float]


def phases_chart(arms: Arms) -> Chart | None:
    """Where releases fall along the key: flat for honest noise, one spike per period if not."""
    drawable = [(label, p, arm) for label, arm in arms if (p := _phases(arm))]
    if not drawable:
        return None
    chosen = drawable
    if len(drawable) > _MOST_PHASES:  # the most successful of each group
        best: dict[str, tuple[str, _Phases, Arm]] = {}
        for item in sorted(drawable, key=lambda item: -max(a.ends[0] for a in item[2].attacked)):
            best.setdefault(item[2].group, item)
        groups = dict.fromkeys(arm.group for *_, arm in drawable)
        chosen = [best[group] for group in groups][:_MOST_PHASES]
    tops = [max(p.heights) for _, p, _ in chosen]
    blind = [f"{label} at most {max(p.without):.2g}" for label, p, _ in chosen if p.without]
    listed = "; ".join(
        f"{label} at most {top:.2g} times uniform"
        for (label, *_), top in zip(chosen, tops, strict=True)
    )
    caption = (
        "Density of releases along the key, as a multiple of the uniform density (dashed). "
        "Honest noise is flat."
    )
    if len(chosen) < len(drawable):
        caption += (
            f" {len(chosen)} of {wording.count(len(drawable))} arms: the most successful of each "
            "source and mitigation."
        )
    if blind:
        caption += " Dark outline: along a direction guessed without the key."
        listed += f"; without the key {', '.join(blind)}"
    return Chart(
        kind="plot",
        title="Releases along the key",
        caption=caption,
        alt=f"Phase of the releases along the key, by arm: {listed}.",
        panels=tuple(_phase_panel(label, p, arm.exceeds_claim) for label, p, arm in chosen),
        x=Axis(label=chosen[0][1].what),
        y=Axis(label="times uniform", zero=True, high=1.08 * max(2, *tops)),
        columns=min(len(chosen), 2 if len(chosen) <= 4 else 3),
        numbers=_phase_numbers([(label, p) for label, p, _ in chosen]),
    )


def _phase_panel(label: str, phases: _Phases, beyond: bool) -> Panel:
    series = []
    drawn = (("with the key", phases.heights), ("without the key", phases.without))
    for k, (kind, heights) in enumerate(drawn):
        marks = tuple(
            Mark(
                x=(a + b) / 2,
                y=y,
                width=b - a,
                name=f"{label}, {kind if phases.without else ''} {_bin(a, b)}",
                says=f"{wording.quantity(y, digits=3)} times uniform",
                alarm=beyond and not k,
            )
            for (a, b), y in zip(pairwise(phases.edges), heights, strict=False)
        )
        if marks:
            series.append(
                Series(
                    marks=marks,
                    look="steps" if k else "bars",
                    group=k if phases.without else None,
                    legend=kind if phases.without else "",
                    quiet=bool(k),
                )
            )
    return Panel(title=label, series=tuple(series), lines=(Line(at=1.0),))


def _phase_numbers(arms: Sequence[tuple[str, _Phases]]) -> tuple[Column, ...]:
    """The densities as a table, if all arms have the same few bins."""
    edges = arms[0][1].edges
    if len(edges) - 1 > _MOST_NUMBERS or len(arms) > 4 or any(p.edges != edges for _, p in arms):
        return ()
    columns = [Column(arms[0][1].what, tuple(_bin(a, b) for a, b in pairwise(edges)))]
    for label, p in arms:
        for header, heights in ((label, p.heights), (f"{label}\nwithout the key", p.without)):
            if heights:
                cells = tuple(wording.quantity(y, digits=3) for y in heights)
                columns.append(Column(header, cells, True))
    return tuple(columns)


def _bin(a: float, b: float) -> str:
    return f"{wording.quantity(a, digits=3)} … {wording.quantity(b, digits=3)}"


def _phases(arm: Arm) -> _Phases | None:
    """The first attack's phases; None if missing or malformed."""
    for attack in arm.attacked:
        phases = attack.details.get("phases")
        if not isinstance(phases, Mapping):
            continue
        edges, counts = _numbers(phases.get("edges")), _numbers(phases.get("counts"))
        usable = 0 < len(counts) == len(edges) - 1 <= _MOST_BINS and _is_counted(counts)
        if usable and all(a < b for a, b in pairwise(edges)):
            blind = _numbers(phases.get("without_key"))
            known = len(blind) == len(counts) and _is_counted(blind)
            return _Phases(
                edges,
                _densities(counts, edges),
                str(phases.get("what") or "phase along the key"),
                _densities(blind, edges) if known else [],
            )
    return None


def _is_counted(counts: Sequence[float]) -> bool:
    return min(counts) >= 0 and sum(counts) > 0


def _densities(counts: Sequence[float], edges: Sequence[float]) -> list[float]:
    """Counts as multiples of the uniform density."""
    uniform = sum(counts) / (edges[-1] - edges[0])
    return [n / (b - a) / uniform for n, (a, b) in zip(counts, pairwise(edges), strict=True)]


def _numbers(values: object) -> list[float]:
    """Finite numbers; an empty list if any is not."""
    numbers = [wording.number(v) for v in values] if isinstance(values, (list, tuple)) else []
    finite = [x for x in numbers if x is not None and math.isfinite(x)]
    return finite if len(finite) == len(numbers) else []
