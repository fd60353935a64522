"""From a plan to blocks: asks the sampler, under one deadline, and keeps count of what came and what did not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from dpaudit.audit.block import SampleBlock
from dpaudit.audit.plan import Call
from dpaudit.claims import Claim
from dpaudit.errors import SamplerCrashError, SamplerTimeoutError
from dpaudit.interfaces import ClosedSampler, RepeatableSampler, ValueSampler

__all__ = ["Drawing", "Progress"]

Progress = Callable[[int, int], None]
_SHORT_SECONDS = 8.0  # for the many short calls; a slow sampler gets fewer of them
_FIRST_CALLS = 32  # of a batch whose speed is not known yet


class Drawing:
    """Iterate over it for blocks; then read ``drawn`` (values), ``dims``, ``refused`` (dims) and ``late`` (why it ended).

    What is asked next never depends on the values seen so far; on the sampler's speed it does (fewer short calls from a
    slow one).
    """

    def __init__(
        self,
        sampler: ClosedSampler,
        plan: Iterable[Call],
        *,
        planned: int,
        claim: Claim,
        spread: np.random.Generator,
        deadline: float,
        limit: float,
        progress: Progress | None = None,
    ) -> None:
        """``deadline`` is one of ``time.monotonic``; ``limit`` is what the message about it says, in seconds."""
        self._sampler = sampler
        self._plan = plan
        self._second_process = isinstance(plan, tuple) and any(call.purpose == "second process" for call in plan)
        self._other: ClosedSampler | None = None
        self.planned = planned
        self._claim = claim
        self._spread = spread
        self._deadline = deadline
        self._limit = limit
        self._progress = progress
        self._number = 0  # of the next call to this process
        self._short_left = _SHORT_SECONDS
        self.drawn = 0
        self.dims: set[int] = set()
        self.refused: set[int] = set()
        self.late = ""

    def __iter__(self) -> Iterator[SampleBlock]:
        with contextlib.ExitStack() as others:
            yield from self._all(others)

    def _all(self, others: contextlib.ExitStack) -> Iterator[SampleBlock]:
        for call in self._plan:
            if call.d in self.refused:
                continue
            try:
                for block in self._blocks(call):
                    self.drawn += block.values.size
                    self.dims.add(call.d)
                    yield block
                    if self._second_process and isinstance(self._sampler, RepeatableSampler):
                        self._second_process = False
                        self._other = others.enter_context(self._sampler.again())  # it starts while this one draws
                    if self._progress is not None:
                        self._progress(self.drawn, self.planned)
            except SamplerTimeoutError as error:
                self.late = str(error)
                return
            except SamplerCrashError:
                if call.purpose != "sweep" or call.d in self.dims:
                    raise
                self.refused.add(call.d)  # it need not serve every dimension; if it died, the next call says so

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise SamplerTimeoutError(f"{self._sampler.name}: the time limit of {self._limit:g} s was reached")
        return left

    def _blocks(self, call: Call) -> Iterator[SampleBlock]:
        if call.purpose == "short":
            yield from self._short(call)
        elif call.purpose == "second process":
            yield from self._second(call)
        elif call.purpose == "fork":
            yield from self._fork(call)
        else:
            sampler = self._sampler
            if call.value and isinstance(sampler, ValueSampler):
                values = sampler.draw_at(call.value, call.n, call.d, timeout=self._left())
            else:
                values = sampler.draw(call.n, call.d, timeout=self._left())
            yield self._block(values, value=call.value)

    def _block(
        self,
        values: npt.NDArray[np.float64],
        *,
        calls: int = 1,
        process: int = 0,
        value: float = 0.0,
        seconds: npt.NDArray[np.float64] | None = None,
    ) -> SampleBlock:
        number = 0 if process > 0 else self._number  # a forked child's answer has its parent's number
        block = SampleBlock(
            number,
            values,
            claim=self._claim,
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
        todo = call.calls
        rate = 0.0  # seconds a call
        while todo and self._short_left > 0:
            calls = min(todo, _FIRST_CALLS if not rate else max(1, int(self._short_left / rate)))
            started = time.monotonic()
            if isinstance(self._sampler, RepeatableSampler):
                values, seconds = self._sampler.draw_calls(calls, call.n, call.d, timeout=self._left())
                yield self._block(values, calls=calls, seconds=seconds)
            else:
                many = [self._sampler.draw(call.n, call.d, timeout=self._left()) for _ in range(calls)]
                yield self._block(np.concatenate(many), calls=calls)
            spent = time.monotonic() - started
            rate = max(spent / calls, 1e-9)
            self._short_left -= spent
            todo -= calls

    def _second(self, call: Call) -> Iterator[SampleBlock]:
        if self._other is not None:
            yield self._block(self._other.draw(call.n, call.d, timeout=self._left()), process=1)

    def _fork(self, call: Call) -> Iterator[SampleBlock]:
        forked = getattr(self._sampler, "draw_forked", None)
        pair = None
        if forked is not None:
            with contextlib.suppress(
                SamplerCrashError
            ):  # a target need not survive a fork; if it died, the next call says so
                pair = forked(call.n, call.d, timeout=self._left())
        if pair is not None:
            yield self._block(pair[0], process=-1)
            yield self._block(pair[1])
