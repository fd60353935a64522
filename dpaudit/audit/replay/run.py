"""Replays a pipeline: records it on a data set, replays it on neighbours, judges what differs."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.claims.tables import LARGEST_EPSILON
from dpaudit.audit.mechanism.datasets import json_text, read_dataset, records_of
from dpaudit.audit.mechanism.neighbour_search import Pair
from dpaudit.audit.mechanism.pair import audit_pair
from dpaudit.audit.mechanism.releases import EncodedReleases
from dpaudit.audit.options import ClaimOptions, MechanismOptions, Progress
from dpaudit.audit.replay.child import Child
from dpaudit.audit.replay.evidence import Clock, Drawing, Evidence
from dpaudit.audit.replay.judge import (
    Difference,
    Group,
    Spent,
    grouped,
    hidden_by,
    law_of,
    part_of,
    says_of,
    spent_on,
    surely,
)
from dpaudit.audit.replay.request import Divergence, Primitive, ReplayOptions, ReplayResult
from dpaudit.errors import DpauditError, SamplerError, UsageError
from dpaudit.options import from_keywords, split_keywords, takes
from dpaudit.provenance import collect, with_identity
from dpaudit.report import Outcome
from dpaudit.results.text import one_line
from dpaudit.targets.identity import identify
from dpaudit.targets.sandbox.policy import joined
from dpaudit.types import BlindSpot, Provenance, Verdict

__all__ = ["inconclusive", "replay", "replay_pipeline"]

_DELTA = 1e-5
"""The δ of a run's ε where no claim names one."""
_CONFIRMED = 4
"""Divergences that new releases are asked about, at most, where a finding needs none."""
_SURE = 20.0
"""Seconds for the ε of a finding that needs none, at most; none if it would take much longer."""
_PARTED = ("control flow", "shape", "exception")
"""Kinds of difference after which inputs are not compared."""
_PROBES, _LINKS = 6, 6
_LAWS, _SOME = 4, 14
"""Lines whose noise is recognised by its numbers, at most; and runs for it."""
_LOST = "noise that left our sight"


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


def replay_pipeline(
    target: str,
    options: ReplayOptions,
    *,
    claim: ClaimOptions,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay ``target`` as asked; errors are those of :func:`replay`."""
    clock = Clock(options.time_limit)
    records, columns = _read(options.data)
    judge = _judge(target, options, claim, clock, columns)
    provenance = _provenance(judge.child, target, options, claim)
    with joined() as sandbox, judge.child.open(timeout=options.time_limit):
        judge.found = Drawing(judge.child, options, records, clock, progress).draw()
        divergences = judge.divergences()
    divergences = [replace(one, reproduce=provenance.command) for one in divergences]
    result = judge.result(divergences, provenance)
    return replace(result, sandbox=sandbox.reached, seconds=clock.limit - clock.left())


def inconclusive(
    target: str, options: ReplayOptions, claim: ClaimOptions, reason: str
) -> ReplayResult:
    """The result if nothing was run, for a ``reason``."""
    judge = _judge(target, options, claim, Clock(options.time_limit), None)
    result = judge.result([], _provenance(judge.child, target, options, claim))
    return replace(result, verdict="inconclusive", reason=reason)


def _judge(
    target: str,
    options: ReplayOptions,
    claim: ClaimOptions,
    clock: Clock,
    columns: list[str] | None,
) -> _Judge:
    child = Child(
        target, columns=columns, form=options.form, cover=options.cover, python=options.python,
        seed=options.seed,
    )  # fmt: skip
    claimed = None if claim == ClaimOptions() else claim.claim()
    return _Judge(child, options, claimed, clock, Evidence())


def _provenance(
    child: Child, target: str, options: ReplayOptions, claim: ClaimOptions
) -> Provenance:
    files, versions = identify(child.name)
    made = collect(seed=options.seed, plugins=())
    made = with_identity(made, by=options.by, files=files, versions=versions)
    return replace(made, command=options.command(target, claim))


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
class _Judge:
    """From what the runs showed to a verdict."""

    child: Child
    options: ReplayOptions
    claim: PrivacyClaim | None
    clock: Clock
    found: Evidence
    spent: dict[int, Spent] = field(default_factory=dict)
    moved: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def promised(self) -> tuple[PrivacyClaim | None, str]:
        """What the noised inputs may add up to, and who says so."""
        if self.claim is not None or not self.found.booked:
            return self.claim, "the claim is"
        epsilon, delta = map(math.fsum, zip(*self.found.booked, strict=True))
        fits = 0 <= epsilon <= LARGEST_EPSILON and 0 <= delta < 1
        return PrivacyClaim(epsilon, delta) if fits else None, "the accountant booked"

    @property
    def delta(self) -> float:
        """The δ at which an ε is given."""
        promised = self.promised[0]
        if promised is None or (self.claim is None and not promised.delta):
            return _DELTA
        return promised.delta

    def divergences(self) -> list[Divergence]:
        """What each cause of differences is: a finding, advice, or undecided."""
        groups = [g for g in grouped(self.found.differences) if not self._followed(g)]
        self._recognise()
        for number, runs in self.found.moved.items():
            sums = [(spent_on(moved, self.delta), moved) for moved in runs]
            most = max(sums, key=lambda s: (bool(s[0].unknown), s[0].epsilon))
            self.spent[number], self.moved[number] = most
        some = [*map(self._divergence, groups), *self._seeds(), *self._over()]
        asked = [i for i, d in enumerate(some) if d.outcome != "advice" and d.pair]
        if any(d.outcome == "finding" for d in some):
            asked = sorted(asked, key=lambda i: some[i].outcome == "undecided")[:_CONFIRMED]
        for done, i in enumerate(asked):
            seconds = self.clock.left() / (len(asked) - done)
            if some[i].outcome == "finding":  # whatever ε it has
                seconds = min(seconds, _SURE)
                if 2 * self.options.samples * self.found.seconds > 5 * _SURE:
                    continue
            some[i] = self._confirmed(some[i], self.options.alpha / len(asked), seconds)
        order = {"finding": 0, "undecided": 1, "advice": 2}
        return sorted(some, key=lambda d: order[d.outcome])

    def _divergence(self, group: Group) -> Divergence:
        best, says = group.best, says_of(group.best)
        outcome: Outcome = "advice" if group.mild else "finding"
        may_fail = best.kind == "control flow" and self.claim is not None and self.claim.delta > 0
        if (group.lost or group.coins or may_fail) and not group.mild:
            if self._constant(best):
                says += "; it is the same whatever the noise"
            else:
                outcome = "undecided"
                what = _LOST if group.lost else "coins" if group.coins else "a noisy threshold"
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

    def _followed(self, group: Group) -> bool:
        """Whether what differs is data plus noise that left our sight; then it counts as noised."""
        best = group.best
        if best.kind != "release" or not group.lost:
            return False
        noise = hidden_by(str(best.found.get("path", "")), list(self._again(best.pair, _LINKS)))
        if noise is None:
            return False
        at = noise["in"] or noise["at"] or best.found["in"]
        self.found.lost.pop(f"{noise['name']} at {at}", None)
        for one in group.differences:
            self.found.moved[one.number][0].append({**one.found, **noise, "in": at, "at": at})
        return True

    def _again(self, pair: Pair, times: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """A pair recorded and replayed with other noise; fewer times if a run gives no answer."""
        for i in range(times):
            how: dict[str, Any] = {"seed": f"/link {i}", "seconds": self.clock.run}
            try:
                first = self.child.record(pair.first, name="link", **how)
                second = self.child.replay(pair.second, of="link", **how)
            except SamplerError:
                return
            if "died" in first or "died" in second:
                return
            yield first, second

    def _recognise(self) -> None:
        """The law and scale of noise that the pipeline makes of uniform numbers."""
        made = [
            (n, one) for n, runs in self.found.moved.items() for moved in runs for one in moved
            if one.get("of")
        ]  # fmt: skip
        known: dict[tuple[Any, Any], Any] = {}
        for number, one in made:
            key = (one["at"], one["call"])
            if key not in known and len({at for at, _ in known}) < _LAWS:
                some = [one["of"]]
                for _, second in self._again(self.found.tried[number], _SOME):
                    some += [
                        m["of"]
                        for m in second["moved"]
                        if m.get("of") and key == (m["at"], m["call"])
                    ]
                known[key] = law_of(some)
            law = known.get(key)
            if law is not None:
                one |= {"law": law[0], "scale": law[1]}

    def _constant(self, best: Difference) -> bool:
        """Whether that part of the release is always one value, and another on the neighbour."""
        if best.kind not in ("release", "domain", "output"):
            return False
        path, values = str(best.found.get("path", "")), []
        for side in (best.pair.first, best.pair.second):
            try:
                some = self.child.releases(side, _PROBES, seconds=self.clock.run)
            except SamplerError:
                return False
            values.append({repr((part_of(one, path), one["raised"])) for one in some})
        return len(values[0]) == len(values[1]) == 1 and values[0] != values[1]

    def _seeds(self) -> Iterator[Divergence]:
        fixed = {(c["name"], c["in"] or c["at"], c["seeded"]): c for c in self.found.seeds[::-1]}
        for call in fixed.values():
            if call["law"] not in ("integers", "bits", "choice", "permutation"):
                seed = one_line(call["seeded"], limit=40)
                yield Divergence(
                    kind="seed", outcome="finding", name=call["name"], at=_place(call["at"]),
                    line=_place(call["seeded_at"] or call["in"]), call=call["call"],
                    says=f"the noise of {call['name']} comes from the fixed seed {seed}: whoever "
                    "reads the code subtracts it", first=seed, second=seed,
                    pair=0, origin="the data set itself", pairs=len(self.found.tried),
                )  # fmt: skip

    def _over(self) -> Iterator[Divergence]:
        """The pair whose noised inputs add up to most, if that is above the claim or not known."""
        promised, by = self.promised
        tried, moved = self.found.tried, self.moved
        if promised is None or not tried:
            return
        sums = {n: math.inf if s.unknown else s.epsilon for n, s in self.spent.items()}
        sure = {n: surely(all_moved, self.delta) for n, all_moved in moved.items()}
        most, limit = promised.epsilon * (1 + 1e-6) + 1e-9, f"{promised.epsilon:.4g}"
        within = [n for n in tried if not tried[n].beyond and sums[n] > most]
        number = max(
            within or tried,
            key=lambda n: (sure[n] > most, sums[n], _furthest(moved[n]), -len(tried[n].second)),
        )
        spent = self.spent[number]
        if sums[number] <= most:
            return
        second = f"{spent.epsilon:.4g}"
        says = f"the noised inputs add up to ε = {second} at δ = {self.delta:g}; {by} {limit}"
        if sure[number] > most:
            says += "; the noised values are released, so it is reached"
        elif spent.unknown:
            second, says = "not known", f"the ε of {_place(spent.unknown[0])} is not known"
        parts = {id(m): spent_on([m], self.delta) for m in moved[number]}
        one = max(moved[number], key=lambda m: (bool(parts[id(m)].unknown), parts[id(m)].epsilon))
        outcome: Outcome = "finding" if sure[number] > most else "undecided"
        yield Divergence(
            kind="budget", outcome=outcome, first=limit, second=second, says=says,
            name=one_line(one["name"], limit=80), line=_place(one["in"]), at=_place(one["at"]),
            call=int(one["call"]), pair=number, pairs=1,
            origin=one_line(tried[number].origin, limit=120),
        )  # fmt: skip

    def _confirmed(self, one: Divergence, alpha: float, seconds: float) -> Divergence:
        """With the ε that new releases show; one that is undecided is a finding only if they do.

        It is advice only if as many were drawn as asked for, and do not contradict.
        """
        promised = self.promised[0] if one.kind == "budget" else self.claim
        claim = promised or PrivacyClaim(0.0, 0.0)
        judged, why, epsilon = "inconclusive", "there was no time for new releases", None
        if seconds >= 1:
            pair = self.found.tried[one.pair]
            options = MechanismOptions(
                samples=self.options.samples, alpha=alpha, seed=self.options.seed,
                time_limit=seconds, real_numbers=True,
            )  # fmt: skip
            try:
                encoded = EncodedReleases(self.child, (list(pair.first), list(pair.second)))
                result = audit_pair(
                    encoded, neighbours=encoded.neighbours, claim=claim, options=options
                )
                judged, epsilon = result.verdict, result.epsilon
                why = result.reason or f"{result.samples:,} new releases do not contradict that"
            except DpauditError as error:
                why = one_line(error, limit=160)
        if judged == "finding" and epsilon is not None and epsilon.low > 0:
            low = f"{math.floor(100 * epsilon.low) / 100:g}"
            why = f"new releases show ε ≥ {low} at δ = {claim.delta:g}"
            if promised is not None or one.outcome == "finding":
                says = f"{one.says}. N{why[1:]}"
                return replace(one, outcome="finding", says=says, epsilon=epsilon)
            why += ", and there is no claim to compare it with"
        if one.outcome == "finding":
            return one
        sure = judged == "no-finding" and one.kind != "budget"
        outcome: Outcome = "advice" if sure else "undecided"
        return replace(one, outcome=outcome, says=f"{one.says}. Not confirmed: {why}")

    def result(self, divergences: Sequence[Divergence], provenance: Provenance) -> ReplayResult:
        """The verdict, the run's ε, and what was not seen."""
        found, tried = self.found, self.found.tried
        all_lines = {
            (file, line) for file, lines in found.about.get("lines", {}).items() for line in lines
        }
        unreached = sorted(all_lines - found.lines)
        epsilon, largest, unknown = self._largest(divergences)
        reason = self._why_inconclusive(divergences, unknown)
        verdict: Verdict = "inconclusive" if reason else "no-finding"
        if any(d.outcome == "finding" for d in divergences) and not found.changed:
            verdict, reason = "finding", ""
        return ReplayResult(
            verdict=verdict,
            reason=reason,
            pipeline=self.child.name,
            claim="" if self.claim is None else self.claim.text,
            claim_epsilon=None if self.claim is None else self.claim.epsilon,
            claim_delta=self.delta,
            alpha=self.options.alpha,
            divergences=tuple(divergences),
            primitives=tuple(_primitives(found)),
            pairs=len(tried),
            pairs_requested=self.options.pairs,
            runs=found.runs,
            epsilon=epsilon,
            epsilon_pair=one_line(tried[largest].origin, limit=120) if largest else "",
            unknown=unknown,
            reached=len(all_lines & found.lines),
            lines=len(all_lines),
            unreached=tuple(_ranges(unreached)),
            unseen=(
                *found.unseen,
                *(f"{_LOST}: {_place(p)}" for p in found.lost),
                *dict.fromkeys(f"a run without an answer ({p.origin}): {w}" for w, p in found.died),
            ),
            advice=tuple(one_line(note, limit=300) for note in found.notes),
            sandbox="",
            seconds=0.0,
            run_seconds=found.seconds,
            cannot_rule_out=tuple(_blind_spots(found, len(unreached))),
            provenance=provenance,
            details={
                "pairs": _texts(tried, [d.pair for d in divergences]),
                "coins": found.coins, "form": found.about.get("form", ""),
                "hooks": found.about.get("hooks", []),
            },
        )  # fmt: skip

    def _largest(
        self, divergences: Sequence[Divergence]
    ) -> tuple[float | None, int, tuple[str, ...]]:
        """The largest ε of a pair and the pair's number, or None, and why it is not known."""
        tried = self.found.tried
        within = [n for n in self.spent if not tried[n].beyond] or [*self.spent]
        unknown = tuple(dict.fromkeys(_place(u) for n in within for u in self.spent[n].unknown))[:8]
        unknown += tuple(
            f"what may hide the data at {d.line or d.at or d.path}"
            for d in divergences
            if d.outcome != "finding"
            and d.kind not in ("budget", "exception")
            and d.path != "messages"
        )
        largest = max(within, key=lambda n: self.spent[n].epsilon, default=0)
        parted = any(d.outcome == "finding" and d.kind in _PARTED for d in divergences)
        if unknown or parted or self.found.raised or not largest:
            return None, largest, unknown
        return self.spent[largest].epsilon, largest, unknown

    def _why_inconclusive(self, divergences: Sequence[Divergence], unknown: Sequence[str]) -> str:
        """Why no finding means nothing; empty if it means that nothing was found."""
        found, tried, asked = self.found, len(self.found.tried), self.options.pairs
        if found.changed:
            return f"the pipeline replaced what we put in place: {', '.join(found.changed[:4])}"
        if found.raised:
            return f"it raises on the data set itself: {found.raised}"
        if found.died:
            why, pair = min(found.died, key=lambda one: one[1].beyond)
            count = f"{len(found.died):,} of {tried + len(found.died):,} pairs"
            return f"no answer on {count}, e.g. {one_line(pair.origin, limit=120)}: {why}"
        if not tried or (found.late and tried < max(asked / 2, 5 * (asked >= 5))):
            text = f"{tried:,} of {asked:,} pairs were run in the time limit"
            return f"{text}; give more --time-limit"
        if not found.draws and (found.own or found.unseen):
            return "no known noise primitive was called; noise of native code is not seen"
        for one in divergences:
            if one.outcome == "undecided":
                return f"{one.line or one.at or 'the whole run'}: {one.says}"
        if unknown and self.claim is not None:
            return (
                f"the claim cannot be checked, as the ε is not known: {unknown[0]}; "
                "dpaudit mechanism audits releases whatever their noise"
            )
        return ""


def _furthest(moved: Sequence[Mapping[str, Any]]) -> float:
    return max((float(one.get("linf") or 0.0) for one in moved), default=0.0)


def _place(text: Any) -> str:
    """A place below the working directory without that."""
    return one_line(text, limit=300).replace(os.getcwd() + os.sep, "")


def _primitives(found: Evidence) -> Iterator[Primitive]:
    for (name, line, law), call in found.calls.items():
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


def _texts(tried: Mapping[int, Pair], numbers: Sequence[int]) -> dict[str, list[str]]:
    """The pairs that divergences name, as JSON."""
    texts: dict[str, list[str]] = {}
    for number in dict.fromkeys(numbers):
        if number in tried and len(texts) < 20:
            pair = tried[number]
            sides = [json_text(list(side)).strip() for side in (pair.first, pair.second)]
            if sum(map(len, sides)) < 1 << 15:
                texts[str(number)] = sides
    return texts


def _blind_spots(found: Evidence, unreached: int) -> Iterator[BlindSpot]:
    spots = [
        ("neighbours that were not tried", f"{len(found.tried)} pairs were"),
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
