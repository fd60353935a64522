"""From a plan to blocks: asks the session under one deadline and counts the values."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dpaudit.audit.block import SampleBlock
from dpaudit.audit.options import Progress
from dpaudit.audit.plan import Call, Plan
from dpaudit.errors import SamplerCrashError, SamplerError, SamplerTimeoutError
from dpaudit.protocols import Preparing, Repeatable, Reply, Request, Session

__all__ = ["Sampling"]

_SHORT_SECONDS = 8.0  # for the many short calls; a slow sampler gets fewer of them
_SHORT_SHARE = 0.1  # of a time limit below 80 s
_SHAPE_SECONDS = 4.0  # for random shapes: some samplers compile anew for each
_SHAPE_SHARE = 0.05
_PROCESS_SECONDS = 4.0  # for the many processes that give a few values each
_FIRST_CALLS = 32  # of a batch whose speed is not known yet
# of the time left: a call that would take longer, at the speed so far, is made in growing parts
_LONG_CALL = 0.25
_FIRST_PART = 1 << 13  # values
_GROWTH = 8
_KEPT_BACK = 0.1  # of the time limit, for calls slower than the earlier ones


class Sampling:
    """Iterate for blocks; then read ``drawn`` (values), ``dims``, ``refused`` (dims) and ``ended``.

    What is asked next never depends on the values seen so far, only on the sampler's speed. A slow
    one gets fewer short calls; and where the plan would not fit into the time limit at the speed of
    the calls before, every call left has its rows reduced in the same proportion (``shortened``),
    so that all parts of the plan are drawn, but for dimensions of the sweep of which one vector
    would take more than a quarter of the time left.

    A sampler that dies, hangs or answers with something that is not noise ends the iteration:
    ``ended`` is the error. The earlier blocks stand; nothing of the incomplete answer is used.
    """

    def __init__(self, session: Session, plan: Plan, *, progress: Progress | None = None) -> None:
        self._session, self._accepts = session, session.facts.accepts
        self._plan, self._limit, self._progress = plan, plan.limit, progress
        self._spread = plan.root.child("atoms").numpy()
        self._others_left = sum(call.purpose == "other process" for call in plan.calls)
        self._other: Session | None = None
        self._others = 0
        self.planned = plan.planned
        self._number = 0  # of the next call to this process
        self._short_left = min(_SHORT_SECONDS, _SHORT_SHARE * plan.limit.seconds)
        self._shapes_left = min(_SHAPE_SECONDS, _SHAPE_SHARE * plan.limit.seconds)
        self._processes_left = min(_PROCESS_SECONDS, _SHAPE_SHARE * plan.limit.seconds)
        self.drawn = 0
        self.blocks = 0
        self.dims: set[int] = set()
        self.refused: set[int] = set()
        self.shortened = False
        self.ended: SamplerError | None = None
        self._rest = plan.planned  # values that the rest of the plan asks for
        self._at_most = math.inf  # seconds per value, by calls too small for a better estimate
        self._rate = 0.0  # seconds per value of the last long call that is not small; 0 before one
        self._largest = 0

    @property
    def speed(self) -> float:
        """Values per second of the last long call; 0 before one."""
        return 1 / self._rate if self._rate else 0.0

    def __iter__(self) -> Iterator[SampleBlock]:
        with contextlib.ExitStack() as others:
            yield from self._all(others)

    def _all(self, others: contextlib.ExitStack) -> Iterator[SampleBlock]:
        for call in self._plan.calls:
            if call.d in self.refused:
                self._rest -= call.size
                continue
            after = self._rest - call.size
            if call.purpose == "sweep" and self._takes_too_long(call.d):
                self.shortened, self._rest = True, after
                continue
            if call.purpose == "shape" and self._shapes_left <= 0:
                self._rest = after
                continue
            try:
                for block in self._blocks(call):
                    self.drawn += block.values.size
                    self.blocks += 1
                    if call.purpose != "shape":
                        self.dims.add(call.d)
                    yield block
                    if (
                        self._other is None
                        and self._others_left
                        and isinstance(self._session, Repeatable)
                    ):
                        self._others_left -= 1
                        self._others += 1
                        # it starts while this one draws
                        other = self._session.again().open(timeout=self._limit.seconds)
                        self._other = others.enter_context(other)
                    if self._progress is not None:
                        self._progress(self.drawn, self.planned)
            except SamplerError as error:
                crashed = isinstance(error, SamplerCrashError)
                swept = call.purpose == "sweep" and call.d not in self.dims
                if not crashed or not (swept or call.purpose == "shape"):
                    self.ended = error
                    return
                # it need not serve every dimension; if it died, the next call reports it
                if swept:
                    self.refused.add(call.d)
                else:
                    self._shapes_left = 0.0
            self._rest = after

    def _takes_too_long(self, d: int) -> bool:
        """Whether one vector would take too much of the time left; no part of it can be asked."""
        return self._rate * d > _LONG_CALL * (self._limit.ends - time.monotonic())

    def _left(self) -> float:
        return self._limit.left(self._session.name)

    def _ask(self, request: Request, session: Session | None = None) -> Reply:
        return (session or self._session).ask(request, timeout=self._left())

    def _blocks(self, call: Call) -> Iterator[SampleBlock]:
        special = {
            "short": self._short,
            "other process": self._other_process,
            "processes": self._processes,
            "fork": self._fork,
        }
        yield from special.get(call.purpose, self._long)(call)

    def _long(self, call: Call) -> Iterator[SampleBlock]:
        """One call, or several for a slow sampler, of as many rows as fit into the time left."""
        todo = call.n  # rows of the plan
        while todo:
            n, planned = self._rows(todo, call.d)
            started = time.monotonic()
            request = Request(*((n * call.d, 1) if self._plan.flat else (n, call.d)))
            if call.value and "noise for a value" in self._accepts:
                request = Request(n, call.d, call.value)
            values = self._ask(request).values.reshape(n, call.d)
            seconds = time.monotonic() - started
            if call.purpose == "shape":
                self._shapes_left -= seconds
            elif call.purpose == "first":  # may include the start of a program
                self._at_most = min(self._at_most, seconds / values.size)
            elif _GROWTH * values.size >= self._largest:
                self._rate = max(seconds / values.size, 1e-12)
                self._largest = max(values.size, self._largest)
            todo -= planned
            self._rest -= planned * call.d
            yield self._block(values, value=call.value)

    def _rows(self, todo: int, d: int) -> tuple[int, int]:
        """Rows to ask for in one call, and how many of the plan's ``todo`` rows they stand for."""
        left = self._left()
        spare = max(left - _KEPT_BACK * self._limit.seconds, 0.0)
        fit = min(1.0, spare / (self._rate * self._rest)) if self._rate else 1.0
        self.shortened = self.shortened or fit < 1
        n = max(1, int(todo * fit))
        rate = self._rate or (self._at_most if math.isfinite(self._at_most) else 0.0)
        if rate * n * d > _LONG_CALL * left:
            in_time = int(_LONG_CALL * left / rate) if self._rate else n * d
            n = max(1, min(in_time, max(_FIRST_PART, _GROWTH * self._largest)) // d)
        return n, min(todo, math.ceil(n / fit)) if fit else todo

    def _block(
        self,
        values: npt.NDArray[np.float64],
        *,
        calls: int = 1,
        process: int = 0,
        value: float = 0.0,
        seconds: npt.NDArray[np.float64] | None = None,
    ) -> SampleBlock:
        # a forked child's answer has its parent's number
        number = 0 if process > 0 else self._number
        block = SampleBlock(
            number,
            values,
            claim=self._plan.claim,
            spread=self._spread,
            calls=calls,
            process=process,
            value=value,
            seconds=seconds,
        )
        if process == 0:
            self._number += calls
        return block

    def _short(self, call: Call) -> Iterator[SampleBlock]:
        """Two blocks, however many questions the sampler's speed makes of the second one."""
        rate = 0.0  # seconds per call
        for part in (min(_FIRST_CALLS, call.calls), max(0, call.calls - _FIRST_CALLS)):
            todo, replies = part, list[Reply]()
            while todo and self._short_left > 0:
                calls = min(todo, max(1, int(self._short_left / rate))) if rate else todo
                started = time.monotonic()
                replies += self._called(call, calls)
                spent = time.monotonic() - started
                rate = max(spent / calls, 1e-9)
                self._at_most = min(self._at_most, rate / (call.n * call.d))
                self._short_left -= spent
                todo -= calls
            if replies:
                values = np.concatenate([reply.values for reply in replies])
                seconds = [reply.seconds for reply in replies if reply.seconds is not None]
                timed = np.concatenate(seconds) if seconds else None
                yield self._block(values, calls=part - todo, seconds=timed)

    def _called(self, call: Call, calls: int) -> list[Reply]:
        if "noise in calls" in self._accepts:
            return [self._ask(Request(call.n, call.d, calls=calls))]
        return [self._ask(Request(call.n, call.d)) for _ in range(calls)]

    def _other_process(self, call: Call) -> Iterator[SampleBlock]:
        if self._other is not None:
            reply, self._other = self._ask(Request(call.n, call.d), self._other), None
            yield self._block(reply.values, process=self._others)

    def _processes(self, call: Call) -> Iterator[SampleBlock]:
        """One call each to processes started one right after the other, while there is time."""
        session, ends = self._session, time.monotonic() + self._processes_left
        if isinstance(session, Preparing) or not isinstance(session, Repeatable):
            return  # a source's processes have the seeds that we give them
        for _ in range(call.calls):
            if time.monotonic() >= ends:
                return
            try:
                with session.again().open(timeout=self._left()) as other:
                    values = self._ask(Request(call.n, call.d), other).values
            except (SamplerCrashError, SamplerTimeoutError):
                return  # it need not serve so many
            self._others += 1
            yield self._block(values, process=self._others)

    def _fork(self, call: Call) -> Iterator[SampleBlock]:
        values = np.empty((0, call.d))
        if "noise over a fork" in self._accepts:
            # a target need not survive a fork; if it died, the next call reports it
            with contextlib.suppress(SamplerCrashError):
                values = self._ask(Request(call.n, call.d, forked=True)).values
        if len(values):
            yield self._block(values[: call.n], process=-1)
            yield self._block(values[call.n :])
