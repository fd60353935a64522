"""The audit of a mechanism that stops as soon as it is certain, by bets on its releases."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpaudit.audit.betting.releases import ReleaseBets, View, Views, block_sizes
from dpaudit.audit.betting.shown import (
    Look,
    look_at,
    needed,
    row_of,
    sequential_details,
    stated_by,
)
from dpaudit.audit.mechanism.judge import Judgement, kind_of
from dpaudit.audit.mechanism.releases import (
    EncodedReleases,
    Releases,
    release_block,
    same_width,
    turns,
)
from dpaudit.audit.mechanism.views import Learner
from dpaudit.audit.options import MechanismOptions, Progress
from dpaudit.errors import SamplerTimeoutError, UsageError
from dpaudit.results.arrays import Archive
from dpaudit.results.files import write_file
from dpaudit.results.text import one_line
from dpaudit.stats import rounded_down

if TYPE_CHECKING:
    from dpaudit.audit.mechanism.pair import PairAudit

__all__ = ["METHOD", "Drawn", "draw_and_bet", "judgement_of", "resumed", "stopped_text"]

METHOD = "bets on learned events, valid at every moment"

Array = npt.NDArray[np.float64]

_FUTILE = 0.01
"""The audit gives up where the claim would still be refuted with at most this probability."""
_BEFORE_GIVING_UP = 0.1
"""Part of the releases that is drawn in any case, so that what is hard to learn has its time."""
_GIVE_UP_EVERY = 1.25
_SAVE_SECONDS = 10.0
_LEARNING = 0.3
"""Part of the time limit for classifiers."""


class _EncodedLearner:
    """Views of releases of any kind, by an encoding fitted anew at twice as many releases."""

    def __init__(self, releases: EncodedReleases, learner: Learner) -> None:
        self._releases, self._fresh = releases, learner
        self._learner, self._fit_at = learner, 0
        self._last: tuple[Array, Array] | None = None

    def __call__(self, x0: Array, x1: Array) -> list[View]:
        drawn = len(x0) + len(x1)
        if drawn >= self._fit_at:
            self._releases.fit(x0, x1)
            self._learner = dataclasses.replace(self._fresh, seconds=self._learner.seconds)
            self._fit_at, self._last = 2 * drawn, None
        views = self._learner(self._releases.rows(x0), self._releases.rows(x1))
        self._releases.shown(x0, x1)
        known = {id(view.of): self._of_numbers(view.of) for view in views}
        for view in views:
            view.of = known[id(view.of)]
        return views

    def _of_numbers(self, of: Callable[[Array], Array]) -> Callable[[Array], Array]:
        return lambda numbers: of(self._rows(numbers))

    def _rows(self, numbers: Array) -> Array:
        """As encoded last: every statistic asks for the rows of the same block."""
        if self._last is None or self._last[0] is not numbers:
            self._last = numbers, self._releases.rows(numbers)
        return self._last[1]


@dataclasses.dataclass
class Drawn:
    """Releases drawn and bet on so far.

    ``looks`` has (releases, log10 of the capital, bound) after each block, ``stopped`` why the
    drawing ended: ``contradicted``, ``futile``, ``limit``; ``mistake`` the probability that the
    claim would still have been refuted.
    """

    bets: ReleaseBets
    calls: tuple[list[Array], list[Array]] = dataclasses.field(default_factory=lambda: ([], []))
    looks: list[Look] = dataclasses.field(default_factory=list)
    stopped: str = "limit"
    mistake: float = 0.0
    late: str = ""

    @property
    def releases(self) -> Releases:
        """All releases as counted ones, by call."""
        count = [np.concatenate(side) if side else np.empty((0, 1)) for side in self.calls]
        sizes = [len(call) for call in self.calls[0]], [len(call) for call in self.calls[1]]
        width = max(rows.shape[1] for rows in count)
        none = np.empty((0, width))
        return Releases((none, none), (count[0], count[1]), self.late, (([], []), sizes))

    @property
    def details(self) -> dict[str, Any]:
        """What a result keeps of it."""
        more = {"mistake": self.mistake} if self.stopped == "futile" else {}
        return sequential_details(self.bets, self.looks, self.stopped, **more)


def draw_and_bet(pair: PairAudit, *, progress: Progress | None = None) -> Drawn:
    """Draw releases in blocks, each a twentieth of what there is, and bet on each before it comes.

    A fair coin chooses the neighbour of each release. The drawing ends where the claim is
    contradicted, where it would still be with a probability of at most 1 % (asked from a tenth of
    the releases on, by :meth:`ReleaseBets.chance`), or when all are drawn or the time is up.

    Raises:
        UsageError: an attack, which looks in its own way; a file that does not fit.
        SamplerError: the mechanism failed, or nothing was drawn in time.
    """
    options, root = pair.options, pair.root
    if pair.attack is not None:
        raise UsageError(
            f"attack={pair.attack.text}: a sequential audit learns what to bet on itself; leave "
            "--sequential or --attack out"
        )
    drawn = Drawn(_bets(pair))
    file = _File.of(pair)
    if file is not None:
        file.restore(drawn)
    rng, most = root.child("turns").numpy(), 2 * options.samples
    ask_again = max(_BEFORE_GIVING_UP * most, 1_000.0)
    try:
        for size in block_sizes(most, drawn=drawn.bets.drawn):
            if drawn.bets.contradicted or not _draw_block(pair, drawn, size, rng):
                break
            _look(drawn, most, progress)
            if drawn.bets.contradicted:
                break
            if ask_again <= drawn.bets.drawn < most:
                ask_again = _GIVE_UP_EVERY * drawn.bets.drawn
                chance = drawn.bets.chance(most - drawn.bets.drawn, root.child("future").numpy())
                if chance <= _FUTILE:
                    drawn.stopped, drawn.mistake = "futile", chance
                    break
            if file is not None:
                file.save(drawn)
    finally:
        if file is not None and drawn.bets.drawn:
            file.save(drawn, now=True)
    if drawn.bets.contradicted:
        drawn.stopped, drawn.late = "contradicted", ""
    return drawn


def _bets(pair: PairAudit) -> ReleaseBets:
    options = pair.options
    learner = Learner(
        pair.root.child("statistics").numpy(),
        pair.neighbours,
        low_bits=not options.real_numbers,
        more=pair.reached,
        seconds=_LEARNING * options.time_limit,
    )
    views: Views = learner
    if isinstance(pair.mechanism, EncodedReleases):
        views = _EncodedLearner(pair.mechanism, learner)
    return ReleaseBets(pair.claim, alpha=options.alpha, views=views)


def _draw_block(pair: PairAudit, drawn: Drawn, size: int, rng: np.random.Generator) -> bool:
    """Whether a block was drawn, and bet on, before the time was up."""
    second = int(rng.binomial(size, 0.5))
    sizes, rows = (size - second, second), [np.empty((0, 1)), np.empty((0, 1))]
    known = [side[0] for side in drawn.calls if side]
    width = known[0].shape[1] if known else 0
    try:
        for side, n in turns(sizes, rng=rng):
            rows[side] = release_block(pair.mechanism, pair.neighbours[side], n, limit=pair.limit)
            width = same_width(pair.mechanism, rows[side], width, samples=pair.options.samples)
    except SamplerTimeoutError as error:
        if not drawn.bets.drawn:
            raise
        drawn.late = str(error)
        return False
    for side in (0, 1):
        drawn.calls[side].append(rows[side].reshape(-1, width))
    sides = np.repeat([False, True], sizes)
    drawn.bets.update(np.concatenate([r.reshape(-1, width) for r in rows]), sides)
    return True


def _look(drawn: Drawn, most: int, progress: Progress | None) -> None:
    """Write down capital and bound, and show them as they grow."""
    bets = drawn.bets
    drawn.looks.append(look_at(bets, float(bets.drawn)))
    if progress is None:
        return
    if (live := getattr(progress, "note", None)) is not None:
        shown = rounded_down(drawn.looks[-1][2])
        live(f"{capital_text(drawn.looks, needed(bets))}, ε ≥ {shown}")
    progress(bets.drawn, most)


def capital_text(looks: Sequence[Look], enough: float) -> str:
    """The capital so far as a line of blocks, its last power of ten and the one that is needed."""
    blocks = "▁▂▃▄▅▆▇█"
    last = [look[1] for look in looks[-24:]]
    height = [min(1.0, max(0.0, (c + 1) / (enough + 1))) for c in last]
    line = "".join(blocks[round(h * (len(blocks) - 1))] for h in height)
    return f"capital {line} 10^{last[-1]:.1f} of 10^{enough:.1f}"


def judgement_of(drawn: Drawn, pair: PairAudit) -> Judgement:
    """The test of the claim, and the bounds that held at every moment."""
    bets, alpha = drawn.bets, pair.options.alpha
    bounds, view = bets.bounds, bets.leading
    kind = "event" if view is None else view.kind
    by = "" if view is None else view.name.rsplit("/", 1)[0]
    harm, topic = kind_of(kind)
    test = row_of(
        bets,
        alpha=alpha,
        method=METHOD,
        by=by,
        name=f"{kind}, bets",
        looks_at="what was learned from the releases before, block by block",
        effect=f"a capital of 1 grew to 10^{-np.log10(bets.p_value):.1f} "
        f"(10^{needed(bets):.1f} is needed) in {bets.drawn:,} releases"
        + (f", mostly by {by}" if by else ""),
        harm=harm,
        topic=topic,
    )
    stated = stated_by(bets, pair.claim, alpha=alpha, method=METHOD)
    return Judgement((test,), bounds["ε"], bounds["δ"], bounds.get("μ", 0.0), (), stated)


def stopped_text(details: Mapping[str, Any]) -> str:
    """Why the drawing ended, to follow a verdict's reason."""
    how = details["sequential"]
    drawn = int(how["looks"][-1][0]) if how["looks"] else 0
    if how["stopped"] == "futile":
        chance = f"{max(how['mistake'], 1e-3):.1g}"
        return (
            f"; given up after {drawn:,} releases, as by what was learned all of them would refute "
            f"the claim with a probability of at most {chance}"
        )
    return f"; stopped after {drawn:,} releases" if how["stopped"] == "contradicted" else ""


def resumed(options: MechanismOptions) -> MechanismOptions:
    """The options with a seed of its own for each time that an audit goes on."""
    if options.resume is None or not options.resume.exists():
        return options
    header = _File(options.resume, {}).header()
    return dataclasses.replace(options, seed=f"{options.seed}/from {header['drawn']}")


@dataclasses.dataclass
class _File:
    """Where releases and capital are kept, for an audit of ``asked``."""

    path: Path
    asked: Mapping[str, Any]
    _saved: float = dataclasses.field(default_factory=time.monotonic)

    @classmethod
    def of(cls, pair: PairAudit) -> _File | None:
        """The file of an audit; None where none was named.

        Raises:
            UsageError: a place that cannot be written, or releases that no file of numbers holds.
        """
        path = pair.options.resume
        if path is None:
            return None
        if not os.access(path.parent, os.W_OK) or path.is_dir():
            raise UsageError(f"resume={path}: cannot be written; name a file in a folder of yours")
        if isinstance(pair.mechanism, EncodedReleases) or pair.mechanism.facts.available:
            raise UsageError(
                f"resume={path}: keeps releases of query results, which are numbers; releases at "
                "data sets and recorded ones are not kept: leave --resume out"
            )
        asked = {
            "mechanism": pair.mechanism.name,
            "claim": pair.claim.text,
            "neighbours": [v.tolist() for v in pair.neighbours],
            "alpha": pair.options.alpha,
            "real_numbers": pair.options.real_numbers,
        }
        return cls(path, asked)

    def save(self, drawn: Drawn, *, now: bool = False) -> None:
        """Write the file, every ten seconds or ``now``."""
        if not now and time.monotonic() - self._saved < _SAVE_SECONDS:
            return
        sizes = {f"sizes{i}": np.array([*map(len, drawn.calls[i])], float) for i in (0, 1)}
        header = json.dumps({**self.asked, "drawn": drawn.bets.drawn}).encode()
        arrays: dict[str, Any] = {
            "header": np.frombuffer(header, np.uint8),
            "looks": np.array(drawn.looks),
            **sizes,
            **drawn.bets.state(),
        }
        try:
            write_file(self.path, lambda file: np.savez(file, **arrays))
        except OSError as error:
            raise self._refused(f"cannot be written ({one_line(error)})") from None
        self._saved = time.monotonic()

    def header(self) -> dict[str, Any]:
        """What the file says of its audit.

        Raises:
            UsageError: it is not such a file.
        """
        try:
            with Archive(self.path) as archive:
                header = json.loads(archive.read("header", most=1 << 16).tobytes())
            return {**header, "drawn": int(header["drawn"])}
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise self._refused(f"is no file of a sequential audit ({one_line(error)})") from None

    def restore(self, drawn: Drawn) -> None:
        """Go on from the file, if there is one.

        Raises:
            UsageError: it is of another audit, or broken.
        """
        if not self.path.exists():
            return
        header = self.header()
        for key, value in self.asked.items():
            if header.get(key) != value:
                was = one_line(str(header.get(key)), limit=80)
                raise self._refused(f"was begun with {key}={was}, not {value}")
        names = ("looks", "sizes0", "sizes1", "rows", "sides")
        try:
            with Archive(self.path) as archive:
                state = {name: archive.read(name, most=1 << 31) for name in names}
                for i, family in enumerate(drawn.bets.families):
                    for name in (f"log{i}", f"best{i}"):
                        state[name] = archive.read(name, most=1 << 20)
                        if state[name].shape != family.values.shape:
                            raise ValueError(f"{name} has another length")
            _check(state)
        except (ValueError, KeyError, OSError) as error:
            raise self._refused(f"is broken ({one_line(error)})") from None
        drawn.bets.restore(state)
        drawn.looks = [(a, b, c) for a, b, c in state["looks"].tolist()]
        for i, side in enumerate((state["sides"] == 0, state["sides"] == 1)):
            ends = np.cumsum(state[f"sizes{i}"].astype(int))[:-1]
            drawn.calls[i].extend(np.split(state["rows"][side], ends))

    def _refused(self, why: str) -> UsageError:
        return UsageError(f"resume={self.path}: {why}; name another file, or delete it")


def _check(state: Mapping[str, Array]) -> None:
    """Refuse arrays that do not belong together.

    Raises:
        ValueError: they do not.
    """
    rows, sides = state["rows"], state["sides"]
    counts = [int(state[f"sizes{i}"].sum()) for i in (0, 1)]
    if rows.ndim != 2 or state["looks"].ndim != 2 or state["looks"].shape[1] != 3:
        raise ValueError("arrays of other shapes")
    if not np.isin(sides, [0, 1]).all() or counts != [int((sides == i).sum()) for i in (0, 1)]:
        raise ValueError("releases and neighbours do not fit")
