"""Replays a pipeline: records it on a data set, replays it on neighbours, judges what differs."""

from __future__ import annotations

import inspect
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.datasets import json_text, read_dataset, records_of
from dpaudit.audit.mechanism.neighbour_search import Pair
from dpaudit.audit.mechanism.pair import audit_pair
from dpaudit.audit.mechanism.releases import EncodedReleases
from dpaudit.audit.options import ClaimOptions, MechanismOptions, Progress
from dpaudit.audit.replay.child import Child
from dpaudit.audit.replay.judge import (
    Difference,
    Group,
    Spent,
    grouped,
    hidden_by,
    says_of,
    spent_on,
)
from dpaudit.audit.replay.pairs import Pairs
from dpaudit.audit.replay.request import Divergence, Primitive, ReplayOptions, ReplayResult
from dpaudit.errors import DpauditError, SamplerCrashError, UsageError
from dpaudit.options import from_keywords, split_keywords, takes
from dpaudit.provenance import collect, with_identity
from dpaudit.randomness import KeyedStream
from dpaudit.results.text import one_line
from dpaudit.targets.identity import identify
from dpaudit.targets.sandbox.policy import joined
from dpaudit.types import BlindSpot, Interval

__all__ = ["replay", "replay_pipeline"]

_DELTA = 1e-5
"""The δ of a run's ε where no claim names one."""
_CONFIRMED = 4
"""Groups of differences that are confirmed with new releases, at most."""
_CONFIRMING = 10.0
"""Seconds for one of them, at most."""
_PROBES = 6
_LOST = "noise that left our sight"
_SHARE = 0.6
"""Share of the time limit for pairs; the rest is for confirmations."""


@takes(ReplayOptions, ClaimOptions)
def replay(
    pipeline: str | Callable[..., Any],
    data: Any = None,
    *,
    options: ReplayOptions | None = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> ReplayResult:
    """Run a pipeline on neighbouring data sets with its noise frozen, and see where the data shows.

    ``pipeline`` is a function at the top level of a module, or ``python:MODULE:FUNCTION``; it gets
    one data set and returns what it releases. It runs in a sandboxed process of its own. ``data``
    is a list of records, an array (n,) or (n, d), a data frame, or a file's path.

    Formal guarantee: see :class:`~dpaudit.audit.replay.request.ReplayResult`.

    Raises:
        UsageError: no function that another process can import, or options that do not fit.
        SamplerError: the pipeline's process died at once.
    """
    target, form = _target_of(pipeline), None
    if not isinstance(data, (str, Path, type(None))):
        form = "frame" if hasattr(data, "columns") else "array" if hasattr(data, "dtype") else None
    keywords.setdefault("form", form)
    if data is not None:
        keywords["data"] = data
    own, claim = split_keywords(keywords, ReplayOptions, ClaimOptions)
    how = from_keywords(ReplayOptions, own, options)
    return replay_pipeline(target, how, claim=from_keywords(ClaimOptions, claim), progress=progress)


def _target_of(pipeline: str | Callable[..., Any]) -> str:
    if isinstance(pipeline, str):
        return pipeline
    name = getattr(pipeline, "__qualname__", "")
    try:
        file = inspect.getsourcefile(pipeline)
    except TypeError:
        file = None
    if not file or "<" in name or not name:
        raise UsageError(
            f"pipeline={name or pipeline!r}: no function at the top level of a module's file, so "
            "no other process can import it; define it there"
        )
    return f"python:{os.path.relpath(file)}:{name}"


@dataclass
class _Evidence:
    """What the runs showed."""

    differences: list[Difference] = field(default_factory=list)
    moved: list[tuple[list[dict[str, Any]], Pair, int]] = field(default_factory=list)
    spent: list[tuple[Spent, Pair, int]] = field(default_factory=list)
    calls: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    lines: set[tuple[str, int]] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)
    unseen: dict[str, None] = field(default_factory=dict)
    booked: list[tuple[float, float]] = field(default_factory=list)
    died: dict[str, int] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    lost: dict[str, None] = field(default_factory=dict)
    own: set[tuple[str, str]] = field(default_factory=set)
    runs: int = 0
    pairs: int = 0
    draws: int = 0
    seconds: float = 0.0
    raised: str = ""


def replay_pipeline(
    target: str,
    options: ReplayOptions,
    *,
    claim: ClaimOptions,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay ``target`` as asked; errors are those of :func:`replay`."""
    started = time.monotonic()
    records, columns = _read(options.data)
    claimed = claim.claim() if claim != ClaimOptions() else None
    child = Child(
        target, columns=columns, form=options.form, cover=options.cover, python=options.python,
        seed=options.seed,
    )  # fmt: skip
    audit = _Replay(child, options, records, claimed, started, progress)
    files, versions = identify(child.name)
    with joined() as sandbox, child.open(timeout=options.time_limit):
        evidence = audit.draw()
        divergences = audit.judge(evidence)
    result = audit.conclude(evidence, divergences)
    provenance = collect(seed=options.seed, plugins=())
    command = options.command(target, claim)
    provenance = with_identity(provenance, by=options.by, files=files, versions=versions)
    return replace(
        result,
        sandbox=sandbox.reached,
        provenance=replace(provenance, command=command),
        divergences=tuple(replace(d, reproduce=d.reproduce or command) for d in result.divergences),
        seconds=time.monotonic() - started,
    )


def _read(data: Any) -> tuple[list[Any], list[str] | None]:
    if data is None:
        raise UsageError("data: there is none to begin with; give --data FILE (data=)")
    whole = read_dataset(Path(data), name="data") if isinstance(data, (str, Path)) else data
    records = records_of(whole).records
    if not records:
        raise UsageError("data: has no records, so their fields are unknown; give at least one")
    dicts = all(isinstance(r, dict) for r in records)
    columns = list(dict.fromkeys(str(k) for r in records for k in r)) if dicts else None
    return records, columns


@dataclass
class _Replay:
    child: Child
    options: ReplayOptions
    records: list[Any]
    claim: PrivacyClaim | None
    started: float
    progress: Progress | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def _left(self, share: float = 1.0) -> float:
        return self.started + share * self.options.time_limit - time.monotonic()

    @property
    def delta(self) -> float:
        """The δ at which an ε is given."""
        return self.claim.delta if self.claim is not None else _DELTA

    # -- drawing -------------------------------------------------------------------------------

    def draw(self) -> _Evidence:
        """Record, replay on the same data, then on neighbours until the pairs or the time is up."""
        found = _Evidence()
        self.about = self.child.tell(
            "about", records=[dict(r) if isinstance(r, dict) else r for r in self.records],
            seed=self.options.seed, seconds=max(1.0, self._left(_SHARE)),
        )  # fmt: skip
        base = tuple(self.records)
        known: dict[str, dict[str, Any]] = {}
        first = self._record(base, known, found)
        if "died" in first:
            raise SamplerCrashError(f"pipeline {self.child.name}: {first['died']}; fix it")
        found.raised = one_line(first["raised"], limit=300)
        if not first["raised"]:
            again = self._run(
                found, self.child.replay(base, of=_key(base), seconds=self._limit(first))
            )
            found.own = {(d["kind"], str(d.get("path") or d["at"])) for d in again.get("found", ())}
            if found.own:
                what = ", ".join(sorted({f"{kind} ({where})" for kind, where in found.own})[:4])
                found.unseen[f"randomness or time outside the known primitives: {what}"] = None
        rng = KeyedStream.from_seed(self.options.seed).child("replay").numpy()
        pairs = Pairs(self.records, self.options.neighbours, self.options.limits, rng)
        for pair in pairs:
            if found.pairs >= self.options.pairs or self._left(_SHARE) <= 0:
                break
            if self.progress is not None:
                self.progress(found.pairs, self.options.pairs)
            self._pair(pair, pairs, known, found)
        if self.progress is not None:
            self.progress(self.options.pairs, self.options.pairs)
        return found

    def _limit(self, recorded: Mapping[str, Any]) -> float:
        """Seconds that a run may take: much longer than the first."""
        return min(max(20 * float(recorded.get("seconds", 1.0)), 10.0), max(self._left(), 1.0))

    def _record(
        self, base: tuple[Any, ...], known: dict[str, dict[str, Any]], found: _Evidence
    ) -> dict[str, Any]:
        key = _key(base)
        if key not in known:
            while len(known) >= 4:
                del known[next(iter(known))]
            limit = max(self._left(), 1.0)
            known[key] = self._run(found, self.child.record(base, name=key, seconds=limit))
        return known[key]

    def _run(self, found: _Evidence, result: dict[str, Any]) -> dict[str, Any]:
        """Keep what any run shows, whatever it is compared with."""
        found.runs += 1
        if "died" in result:
            found.died[one_line(result["died"], limit=200)] = found.died.get(result["died"], 0) + 1
            return result
        found.seconds = max(found.seconds, float(result["seconds"]))
        found.draws = max(found.draws, int(result["draws"]))
        found.lines |= {(file, line) for file, line in result["lines"]}
        found.notes.update(dict.fromkeys(result["notes"]))
        found.unseen.update(dict.fromkeys(one_line(u, limit=120) for u in result["unseen"]))
        found.changed = result["changed"] or found.changed
        if result["booked"]:
            found.booked = [(float(e), float(d)) for e, d in result["booked"]]
        for call in result["calls"]:
            key = (call["name"], call["in"] or call["at"], call["law"])
            kept = found.calls.setdefault(key, {**call, "calls": 0, "seeded": ""})
            kept["seeded"] = kept["seeded"] or call.get("seeded") or ""
            kept["calls"] = max(kept["calls"], int(call["call"]) + 1)
        found.lost.update(
            dict.fromkeys(f"{e['name']} at {e['in'] or e['at']}" for e in result["lost"])
        )
        return result

    def _pair(
        self, pair: Pair, pairs: Pairs, known: dict[str, dict[str, Any]], found: _Evidence
    ) -> None:
        recorded = self._record(pair.first, known, found)
        if "died" in recorded:
            return
        before = set(found.lines)
        result = self._run(
            found,
            self.child.replay(pair.second, of=_key(pair.first), seconds=self._limit(recorded)),
        )
        found.pairs += 1
        if "died" in result:
            return
        if found.lines - before:
            pairs.reached(pair)
        selects = bool(recorded["selects"] or result["selects"])
        for one in [*result["found"], *_repeated(result)]:
            if (one["kind"], str(one.get("path") or one["at"])) in found.own:
                continue
            found.differences.append(Difference(one, pair, found.pairs, selects))
        found.moved.append((_floats(result["moved"]), pair, found.pairs))

    # -- judging -------------------------------------------------------------------------------

    def judge(self, found: _Evidence) -> list[Divergence]:
        """What each group of differences is: a finding, with a number where releases show one."""
        groups = [g for g in grouped(found.differences) if not self._followed(g, found)]
        found.spent = [(spent_on(m, self.delta), pair, number) for m, pair, number in found.moved]
        divergences = [self._divergence(group) for group in groups]
        divergences += self._seeds(found)
        over = self._over(found)
        to_confirm = [
            (i, group)
            for i, group in enumerate(groups)
            if divergences[i].outcome == "finding" or group.coins
        ][:_CONFIRMED]
        shares = max(1, len(to_confirm) + (over is not None))
        for i, group in to_confirm:
            divergences[i] = self._confirmed(divergences[i], group.best.pair, shares, group.coins)
        if over is not None:
            sure = any(d.outcome == "finding" and d.epsilon is not None for d in divergences)
            divergences.append(
                over[0] if sure else self._confirmed(over[0], over[1], shares, doubtful=True)
            )
        order = {"finding": 0, "advice": 1}
        return sorted(divergences, key=lambda d: order[d.outcome])

    def _divergence(self, group: Group) -> Divergence:
        best = group.best
        says = says_of(best)
        outcome: Any = "advice" if group.mild else "finding"
        if (group.lost or group.coins) and not group.mild:
            if best.kind in ("release", "domain", "output") and self._constant(best):
                says += "; it is the same whatever the noise"
            else:
                outcome = "advice"
                what = "noise that left our sight" if group.lost else "coins"
                says += f"; {what} may hide it"
        return Divergence(
            kind=best.kind,
            outcome=outcome,
            name=one_line(best.found["name"], limit=80),
            line=_place(best.found["in"]),
            at=_place(best.found["at"]),
            call=int(best.found["call"]),
            path=one_line(best.found.get("path", ""), limit=100),
            first=one_line(best.found["first"], limit=200),
            second=one_line(best.found["second"], limit=200),
            says=says,
            pair=best.number,
            origin=one_line(best.pair.origin, limit=120),
            pairs=len({d.number for d in group.differences}),
        )

    def _followed(self, group: Group, found: _Evidence) -> bool:
        """Whether what differs is data plus noise that left our sight; then it counts as noised."""
        best = group.best
        if best.kind != "release" or not group.lost:
            return False
        runs = []
        for i in range(3):
            seed, seconds = f"/link {i}", max(1.0, self._left())
            first = self.child.record(best.pair.first, name="link", seconds=seconds, seed=seed)
            second = self.child.replay(best.pair.second, of="link", seconds=seconds, seed=seed)
            runs.append((first, second))
        noise = hidden_by(str(best.found.get("path", "")), runs)
        if noise is None:
            return False
        at = noise["in"] or noise["at"] or best.found["in"]
        found.lost.pop(f"{noise['name']} at {at}", None)
        for one in group.differences:
            moved = {**one.found, **noise, "in": at, "at": at}
            for i, (moves, pair, number) in enumerate(found.moved):
                if number == one.number:
                    found.moved[i] = ([*moves, moved], pair, number)
        return True

    def _constant(self, best: Difference) -> bool:
        """Whether that part of the release is always one value, and another on the neighbour."""
        path, values = str(best.found.get("path", "")), []
        for side in (best.pair.first, best.pair.second):
            some = self.child.releases(side, _PROBES, seconds=max(1.0, self._left()))
            told = {repr(_part(one, path)) for one in some}
            if len(told) != 1:
                return False
            values.append(told.pop())
        return values[0] != values[1]

    def _seeds(self, found: _Evidence) -> Iterator[Divergence]:
        for call in found.calls.values():
            if call["seeded"] and call["law"] not in ("integers", "bits", "choice", "permutation"):
                seed = one_line(call["seeded"], limit=40)
                yield Divergence(
                    kind="seed", outcome="finding", name=call["name"], line=_place(call["in"]),
                    at=_place(call["at"]), call=call["call"], path="", first=seed, second=seed,
                    says=f"the noise of {call['name']} comes from the fixed seed {seed}: whoever "
                    "reads the code subtracts it",
                    pair=0, origin="the data set itself", pairs=found.pairs,
                )  # fmt: skip

    def _over(self, found: _Evidence) -> tuple[Divergence, Pair] | None:
        """The pair whose noised inputs add up to most, if that is above the claim or the books."""
        limit, by = self._promised(found)
        most = math.inf if limit is None else limit * (1 + 1e-6) + 1e-9
        above = [s for s in found.spent if s[0].epsilon > most]
        if not above:
            return None
        spent, pair, number = max(
            above, key=lambda s: (not s[1].beyond, s[0].epsilon, -len(s[1].second))
        )
        sum_text = f"ε = {spent.epsilon:.4g} at δ = {self.delta:g}"
        says = f"the noised inputs add up to {sum_text}; {by} {limit:.4g}"
        return Divergence(
            kind="budget", outcome="finding", name="", line="", at="", call=-1, path="",
            first=f"{limit:.4g}", second=f"{spent.epsilon:.4g}", says=says, pair=number,
            origin=one_line(pair.origin, limit=120), pairs=1,
        ), pair  # fmt: skip

    def _promised(self, found: _Evidence) -> tuple[float | None, str]:
        if self.claim is not None:
            return self.claim.epsilon, "the claim is"
        if found.booked:
            return sum(e for e, _ in found.booked), "the accountant booked"
        return None, ""

    def _confirmed(
        self, divergence: Divergence, pair: Pair, shares: int, doubtful: bool = False
    ) -> Divergence:
        """With the ε that held-out releases show; a doubtful one is a finding only if they do."""
        claim = self.claim or PrivacyClaim(0.0, 0.0)
        seconds = self._left() / shares
        options = MechanismOptions(
            samples=self.options.samples, alpha=self.options.alpha / shares, seed=self.options.seed,
            time_limit=min(max(seconds, 1.0), _CONFIRMING),
        )  # fmt: skip
        shown: Interval | None = None
        verdict, why = "inconclusive", "there was no time for new releases"
        if seconds > 2.0:
            try:
                encoded = EncodedReleases(self.child, (list(pair.first), list(pair.second)))
                result = audit_pair(
                    encoded, neighbours=encoded.neighbours, claim=claim, options=options
                )
                verdict, shown = result.verdict, result.epsilon
                why = (
                    result.reason or f"{result.samples:,} new releases do not contradict the claim"
                )
            except DpauditError as error:
                why = one_line(error, limit=160)
        confirmed = shown is not None and shown.low > (claim.epsilon if doubtful else 0)
        if verdict == "finding" and confirmed and shown is not None:
            low = f"{math.floor(100 * shown.low) / 100:g}"
            text = f"{divergence.says}. New releases show ε ≥ {low} at δ = {claim.delta:g}"
            return replace(divergence, outcome="finding", says=text, epsilon=shown)
        if doubtful:
            return replace(
                divergence, outcome="advice", says=f"{divergence.says}. Not confirmed: {why}"
            )
        return divergence

    # -- concluding ----------------------------------------------------------------------------

    def conclude(self, found: _Evidence, divergences: Sequence[Divergence]) -> ReplayResult:
        """The verdict, the run's ε, and what was not seen."""
        all_lines = {
            (file, line) for file, lines in self.about.get("lines", {}).items() for line in lines
        }
        unreached = sorted(all_lines - found.lines)
        verdict: Any = (
            "finding" if any(d.outcome == "finding" for d in divergences) else "no-finding"
        )
        reason = _why_inconclusive(found)
        if reason and (verdict == "no-finding" or found.changed):
            verdict = "inconclusive"
        within = [s for s in found.spent if not s[1].beyond] or found.spent
        known = [s for s, _, _ in within if not s.unknown]
        largest = max(within, key=lambda s: s[0].epsilon, default=None)
        unknown = tuple(dict.fromkeys(u for s, _, _ in within for u in s.unknown))[:8]
        shown = [d.pair for d in divergences]
        return ReplayResult(
            verdict=verdict,
            reason=reason if verdict == "inconclusive" else "",
            pipeline=self.child.name,
            claim="" if self.claim is None else self.claim.text,
            claim_epsilon=None if self.claim is None else self.claim.epsilon,
            claim_delta=self.delta,
            alpha=self.options.alpha,
            divergences=tuple(divergences),
            primitives=tuple(_primitives(found)),
            pairs=found.pairs,
            pairs_requested=self.options.pairs,
            runs=found.runs,
            epsilon=None if unknown or largest is None or not known else largest[0].epsilon,
            epsilon_pair="" if largest is None else one_line(largest[1].origin, limit=120),
            unknown=tuple(one_line(u, limit=200) for u in unknown),
            reached=len(all_lines & found.lines),
            lines=len(all_lines),
            unreached=tuple(_ranges(unreached)),
            unseen=(*found.unseen, *(f"{_LOST}: {one_line(p, limit=160)}" for p in found.lost)),
            advice=tuple(one_line(note, limit=300) for note in found.notes),
            sandbox="",
            seconds=0.0,
            run_seconds=found.seconds,
            cannot_rule_out=tuple(_blind_spots(found, len(unreached))),
            provenance=collect(seed=self.options.seed, plugins=()),
            details={
                "pairs": _texts(found, shown), "form": self.about.get("form", ""),
                "hooks": self.about.get("hooks", []),
            },
        )  # fmt: skip


def _key(records: Sequence[Any]) -> str:
    return repr(records)


def _place(text: Any) -> str:
    """A place below the working directory without that."""
    place = one_line(text, limit=300)
    here = os.getcwd() + os.sep
    return place.removeprefix(here)


def _part(release: Mapping[str, Any], path: str) -> Any:
    if path in ("stdout", "files"):
        return release[path]
    leaves = dict(release.get("leaves") or [])
    return leaves.get("" if path == "the release" else path, release.get("raised"))


def _floats(moved: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """JSON's words for infinite numbers as numbers."""
    words = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
    return [
        {
            k: words.get(v, v) if isinstance(v, str) and k not in ("first", "second") else v
            for k, v in one.items()
        }
        for one in moved
    ]


def _repeated(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in result["repeats"]:
        yield {
            "kind": "reuse", "name": one["name"], "at": one["at"], "in": one["in"],
            "call": one["call"], "path": "again", "first": f"the numbers of {one['other']}",
            "second": "the same numbers",
        }  # fmt: skip


def _why_inconclusive(found: _Evidence) -> str:
    if found.changed:
        return f"the pipeline replaced what we put in place: {', '.join(found.changed[:4])}"
    if found.raised:
        return f"it raises on the data set itself: {found.raised}"
    if not found.pairs:
        return "no pair was run in the time limit"
    if not found.draws and (found.own or found.unseen):
        return "no known noise primitive was called; noise of native code is not seen"
    return ""


def _primitives(found: _Evidence) -> Iterator[Primitive]:
    for (name, line, law), call in found.calls.items():
        if law == "seed":
            continue
        yield Primitive(
            name=one_line(name, limit=80), law=one_line(law, limit=60), line=_place(line),
            at=_place(call["at"]), calls=max(1, int(call["calls"])),
            scale=one_line(call["scale"], limit=80), stated=dict(call.get("stated") or {}),
        )  # fmt: skip


def _ranges(lines: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Lines as ``file:3-5``."""
    spans: list[tuple[str, int, int]] = []
    for file, line in lines:
        if spans and spans[-1][0] == file and spans[-1][2] + 1 >= line:
            spans[-1] = (file, spans[-1][1], line)
        else:
            spans.append((file, line, line))
    for file, low, high in spans[:200]:
        yield f"{_place(file)}:{low}" if low == high else f"{_place(file)}:{low}-{high}"


def _texts(found: _Evidence, numbers: Sequence[int]) -> dict[str, list[str]]:
    """The pairs that findings name, as JSON."""
    pairs = {d.number: d.pair for d in found.differences} | {n: p for _, p, n in found.spent}
    texts: dict[str, list[str]] = {}
    for number in dict.fromkeys(numbers):
        if number in pairs and len(texts) < 20:
            sides = [
                json_text(list(side)).strip()
                for side in (pairs[number].first, pairs[number].second)
            ]
            if sum(map(len, sides)) < 1 << 15:
                texts[str(number)] = sides
    return texts


def _blind_spots(found: _Evidence, unreached: int) -> Iterator[BlindSpot]:
    spots = [
        ("neighbours that were not tried", f"{found.pairs} pairs were"),
        ("noise with another law than is stated", "each is taken at its word; dpaudit audit"),
        ("code that means to deceive", "it runs beside our hooks; dpaudit mechanism"),
        ("floating-point noise", "sums are of real numbers; dpaudit mechanism"),
    ]  # fmt: skip
    if unreached:
        spots.append(("branches that were not taken", f"{unreached} lines were not reached"))
    if found.unseen:
        spots.append(
            ("native noise, other processes and threads", "; ".join(list(found.unseen)[:4]))
        )
    for flaw, says in spots:
        yield BlindSpot(
            test="replay", flaw=flaw, size=None, unit="", says=one_line(says, limit=300)
        )
