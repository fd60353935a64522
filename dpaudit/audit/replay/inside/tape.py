"""The tape of one run: calls of noise primitives in order, and what differs on a replay."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .values import UnknownValueError, base, distance, numbers, pack, same, shown, unpack

HERE = os.path.dirname(os.path.abspath(__file__))
COINS = frozenset({"uniform", "integers", "bits", "choice", "permutation", "bernoulli"})
"""Laws of coins, whose number may follow the number of records: subsamples and shuffles."""


class StoppedError(BaseException):
    """The replay cannot go on: the run takes another way than the recorded one."""


class Tape:
    """Records the calls of a run, or replays them: a call then returns what was recorded.

    ``events`` are dicts of plain values. On a replay, ``found`` are the differences, each with its
    ``kind`` and place, and ``moved`` says for each noised input how far it moved. ``replaced``: the
    data sets have as many records, so one is changed.
    """

    def __init__(self, seed: str, events: list[dict[str, Any]] | None = None) -> None:
        self.replays = events is not None
        self.events: list[dict[str, Any]] = [e for e in events or () if not e.get("key")]
        self.keyed: dict[str, Any] = {e["key"]: e for e in events or () if e.get("key")}
        self.groups: list[str] = []
        self.replaced = False
        self.joins: dict[str, Any] = {}
        self.now: list[dict[str, Any]] = []
        self.cursor = 0
        self.shuffled = False
        self.stopped = False
        self.found: list[dict[str, Any]] = []
        self.moved: list[dict[str, Any]] = []
        self.notes: dict[str, str] = {}
        self.metas: list[Any] = []
        self.selects = 0
        self.draws = 0
        self.seeded: dict[str, dict[str, str]] = {}
        self.booked: list[tuple[float, float]] = []
        self.keys: dict[Any, int] = {}
        self.where = self.mixed = ""
        self.thread = threading.get_ident()
        self.place: Callable[[], tuple[str, str]] = place
        self._seed, self._counter = seed, 0

    # -- coins ---------------------------------------------------------------------------------
    def entropy(self, n: int) -> bytes:
        """``n`` bytes that follow from the seed and the number of calls so far."""
        self._counter += 1
        return hashlib.shake_256(f"{self._seed}/{self._counter}".encode()).digest(n)

    # -- calls ---------------------------------------------------------------------------------
    def call(
        self,
        name: str,
        make: Callable[[], Any],
        *,
        law: str,
        shape: Any = None,
        scale: Any = None,
        given: Any = None,
        stated: dict[str, Any] | None = None,
        seeded: str = "",
        keep: bool = True,
    ) -> tuple[Any, dict[str, Any]]:
        """The output of a primitive and its event: made now, or as it was recorded.

        ``given`` is the input that noise is added to, or parameters that the law follows; a
        difference in ``scale`` is one of the law. ``stated`` is what the library says of the call:
        sensitivity and its norm, ε, δ. ``seeded`` is the generator's seed if somebody chose it.
        ``keep`` False: the output is made again on a replay. Calls for a group of records
        (:meth:`for_group`) are found by its key, in any order.
        """
        if threading.get_ident() != self.thread:
            self.notes["threads"] = f"{name} is called by other threads, whose order is not fixed"
        at, line = self.place()
        now = {
            "name": name, "law": law, "shape": shape, "scale": _packed(scale), "at": at,
            "in": line, "given": _packed(given), "stated": stated or {}, "call": len(self.now),
            "seeded": seeded,
        }  # fmt: skip
        self.now.append(now)
        self.draws += law not in COINS
        if self.groups:
            of = f"{name} of {self.groups[-1]}"
            self.keys[of] = self.keys.get(of, 0) + 1
            now["key"] = f"{of}, {self.keys[of]}"
        before = None
        if self.replays and not self.stopped:
            before = self.keyed.pop(now["key"], None) if self.groups else self._expected(now)
        if before is None or not before.get("kept"):
            made = make()
            if not self.replays:
                now["kept"] = keep
                try:
                    now["out"] = pack(made) if keep else None
                except UnknownValueError as error:
                    now["kept"] = False
                    self.notes[f"output {name}"] = f"{name} returns a {error}, which is made again"
            return made, now
        now["before"] = before
        self._compare(now, before)
        output = unpack(before["out"])
        if law in COINS and shape != before["shape"]:
            output = _lengthened(output, make(), whole=law in ("choice", "permutation"))
        return output, now

    def _expected(self, now: dict[str, Any]) -> dict[str, Any] | None:
        """The recorded event for a call."""
        if self.cursor >= len(self.events):
            self.stop("control flow", now, "no further call", f"{now['name']} is called")
            return None
        before = self.events[self.cursor]
        self.cursor += 1
        now["expected"] = before["law"]
        if before["name"] != now["name"] or (before["in"] or before["at"]) != (
            now["in"] or now["at"]
        ):
            first = f"{before['name']} at {before['in'] or before['at']}"
            self.stop("control flow", now, first, f"{now['name']} at {now['in'] or now['at']}")
            return None
        if before["shape"] != now["shape"]:
            if now["law"] in COINS:
                text = f"the number of coins of {now['name']} follows the number of records"
                self.notes[f"coins {now['at']}"] = text
                self.shuffled |= now["law"] in ("choice", "permutation")
            else:
                self.stop("shape", now, shown(before["shape"]), shown(now["shape"]))
                return None
        return before

    def for_group(self, key: Any, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``, whose calls are those of one group of records, such as a city's."""
        self.groups.append(repr(key))
        try:
            return function(*args)
        finally:
            self.groups.pop()

    def _compare(self, now: dict[str, Any], before: dict[str, Any]) -> None:
        first, second = unpack(before["scale"]), unpack(now["scale"])
        differ = before["scale"] != now["scale"] and not same(first, second)
        if differ and isinstance(first, dict) and isinstance(second, dict):
            names = [k for k in {**first, **second} if not same(first.get(k), second.get(k))]
            first, second = ({k: side.get(k) for k in names} for side in (first, second))
            differ = bool(set(names) - set(now["stated"]))
        if differ and isinstance(first, list) and len(first) == len(second):
            apart = [i for i, part in enumerate(first) if not same(part, second[i])]
            first, second = ([side[i] for i in apart] for side in (first, second))
        if differ:
            self.differ("scale", now, first, second)
        if before["seeded"] != now["seeded"]:
            at = self.seeded.get(now["seeded"], {})
            self.differ("seed", {**now, **at}, before["seeded"] or "none", now["seeded"] or "none")
        for name, value in now["stated"].items():
            if name in before["stated"] and before["stated"][name] != value:
                self.differ("scale", now, before["stated"][name], value, path=name)

    def moves(self, now: dict[str, Any], first: Any, second: Any, **more: Any) -> None:
        """Note how far an input of a primitive moved, and whether that is more than is stated."""
        far = distance(first, second)
        if not far["linf"]:
            return
        stated = now["stated"]
        entry = {
            "name": now["name"], "law": now["law"], "at": now["at"], "in": now["in"],
            "call": now["call"], "first": shown(first), "second": shown(second), **far,
            "stated": stated, "scale": _number(unpack(now["scale"])), **more,
        }  # fmt: skip
        self.moved.append(entry)
        norm, bound = stated.get("norm"), stated.get("sensitivity")
        rounding = 1e-12 * max(1.0, _size(first), _size(second))
        if bound is not None and far[norm or "l2"] > bound * (1 + 1e-9) + rounding:
            self.differ(
                "sensitivity", now, first, second, distance=far[norm or "l2"], stated=bound,
                norm=norm or "l2",
            )  # fmt: skip

    def seeds(self, seed: Any) -> None:
        """Note where the pipeline sets a generator's seed."""
        at, line = self.place()
        self.seeded[repr(base(seed))] = {"at": at, "in": line}

    # -- differences ---------------------------------------------------------------------------
    def differ(
        self, kind: str, event: dict[str, Any], first: Any, second: Any, **more: Any
    ) -> None:
        """Note a difference between the recorded run and this one."""
        self.found.append(
            {
                "kind": kind,
                "name": event.get("name", ""),
                "at": event.get("at", ""),
                "in": event.get("in", ""),
                "call": event.get("call", -1),
                "law": event.get("law", ""),
                "expected": event.get("expected", ""),
                "shuffled": self.shuffled,
                "first": first if isinstance(first, str) else shown(first),
                "second": second if isinstance(second, str) else shown(second),
                **more,
            }
        )

    def stop(self, kind: str, event: dict[str, Any], first: Any, second: Any) -> None:
        """Note that the runs part here; the rest cannot be compared.

        Raises:
            StoppedError: always; a pipeline that catches it goes on with fresh noise.
        """
        self.stopped = True
        self.differ(kind, event, first, second)
        raise StoppedError

    def finish(self) -> None:
        """Note calls of the recorded run that this one did not make."""
        for event in self.keyed.values():  # of groups that nobody is in any more
            then = numbers(unpack(event["given"]))
            if then is not None and event.get("inside") and not self.stopped:
                self.moves(event, then, 0 * then)
        if self.replays and not self.stopped and self.cursor < len(self.events):
            event = self.events[self.cursor]
            self.differ("control flow", event, f"{event['name']} is called", "no further call")

    def select(self) -> None:
        """Note that coins chose what happens next."""
        self.selects += 1


_state = threading.local()
_runs: list[Tape] = []


def running() -> Tape | None:
    """The tape of the run, even while a primitive is at work; None if no run is on."""
    return _runs[-1] if _runs else None


def current() -> Tape | None:
    """The tape of the run, unless a primitive is at work or no run is on."""
    return None if getattr(_state, "inside", False) else running()


class Inside:
    """Within this block, calls are those of a primitive itself and are not noted."""

    def __enter__(self) -> None:
        _state.inside = getattr(_state, "inside", 0) + 1

    def __exit__(self, *_: object) -> None:
        _state.inside -= 1


INSIDE = Inside()


def begin(tape: Tape) -> None:
    """Make ``tape`` that of the run."""
    _runs.append(tape)


def end() -> None:
    """End the run."""
    _runs.clear()


FOLDERS: list[str] = []
"""Folders with the pipeline's own code."""


def place() -> tuple[str, str]:
    """Where the primitive is called: the line that calls it, and the pipeline's own line."""
    frame = sys._getframe(1)
    at = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((HERE, "<frozen")):
            line = f"{file}:{frame.f_lineno}"
            at = at or line
            if any(file.startswith(folder) for folder in FOLDERS) and "site-packages" not in file:
                return at, line
        frame = frame.f_back  # type: ignore[assignment]
    return at, ""


def _packed(value: Any) -> Any:
    try:
        return pack(value)
    except UnknownValueError:
        return f"<{type(value).__name__}>"


def _size(value: Any) -> float:
    array = numbers(value)
    if array is None or not array.size:
        return 0.0
    with np.errstate(all="ignore"):
        return float(np.abs(array[np.isfinite(array)]).sum())


def _number(scale: Any) -> float | None:
    array = np.asarray(scale, dtype=object)
    try:
        return float(np.min(array.astype(np.float64)))
    except (TypeError, ValueError):
        return None


def _lengthened(output: Any, made: Any, *, whole: bool) -> Any:
    """Recorded coins for another number of them: the same at first, further ones as ``made``.

    ``whole``: places that may not come twice, such as a permutation: those that are left come in
    their recorded order, and then the new ones.
    """
    if type(output) is not type(made):
        return made
    if isinstance(made, list):
        return _lengthened(np.array(output), np.array(made), whole=whole).tolist()
    if not hasattr(made, "ndim") or made.ndim != output.ndim or made.dtype != output.dtype:
        return made
    places = made.tolist() if whole and made.ndim == 1 else []
    if places and len(set(places)) == len(places):
        kept = [p for p in output.tolist() if p in set(places)]
        new = [p for p in places if p not in set(kept)]
        for i, place in enumerate([*kept, *new][: len(places)]):
            made[i] = place
        return made
    common = tuple(slice(0, min(a, b)) for a, b in zip(made.shape, output.shape, strict=True))
    made[common] = output[common]
    return made
