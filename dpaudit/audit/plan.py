"""The calls of an audit: how many rows of which dimension, decided before any noise is drawn."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dpaudit.audit.options import MINIMUM_SAMPLES, AuditOptions
from dpaudit.audit.progress import TimeLimit
from dpaudit.claims import Claim
from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.protocols import Facts, Preparing, Session
from dpaudit.randomness import KeyedStream
from dpaudit.types import BlindSpot

__all__ = ["Call", "Plan", "drawing_seconds", "make_plan", "plan_audit", "special_shapes"]

DRAWING_SECONDS = 600.0

MAIN_DIM = 64
_BLOCK_VALUES = 1 << 18  # largest answer: 2 MiB of doubles, which fit a cache
_SHORT_CALLS = 81_920  # more than 2^16, so that a 16-bit seed repeats
_SHORT_BATCH = 1_280
_SHORT_DIM = 8
_SHORT_SHARE = 0.08
# d → (share of all values, maximum number of rows)
# hidden directions show in few dimensions, triggers in odd ones
_SWEEP = {
    1: (0.08, None),
    2: (0.03, None),
    3: (0.03, None),
    4: (0.03, None),
    8: (0.02, None),
    12: (0.01, 2_000),
    16: (0.03, None),
    24: (0.01, 2_000),
    32: (0.06, None),
    48: (0.02, 2_000),
    96: (0.02, 2_000),
    5: (0.002, None),
    7: (0.002, None),
    13: (0.002, None),
    100: (0.004, None),
    128: (0.03, 8_000),
    256: (0.01, None),
    1000: (0.004, None),
    1024: (0.004, None),
    4096: (0.10, None),
}
_SHAPES = 4096  # random d and n are at most this
# shares of all values: one row each of random d, one call each of a random n with d = 1
_RANDOM_D = 0.02
_RANDOM_N = 0.005
# shares of all values: shapes that are drawn once more, at the end, and the largest of these
_AGAIN = 0.01
_AGAIN_LARGEST = 0.002
_LARGE = 1_000_000  # samples, from which further processes are started
_MOST_SHAPES = 100
_FEWEST_SHAPES = 10
_PROCESSES = 40  # are started one right after the other, for a few values each
_FIRST_VALUES = 64
_PROCESS_SHARE = 0.01
_VALUES = (1.0, -1.0, 1000.5, 1e6)
_VALUE_SHARE = 0.01

Purpose = Literal[
    "first", "other process", "processes", "fork", "short", "sweep", "shape", "main", "value"
]


@dataclass(frozen=True, slots=True)
class Call:
    """``calls`` requests in sequence for ``n`` vectors of ``d`` values each, and their purpose.

    Each of "processes" goes to a process of its own.
    """

    n: int
    d: int
    calls: int = 1
    purpose: Purpose = "main"
    value: float = 0.0

    @property
    def size(self) -> int:
        """Total number of values."""
        return self.calls * self.n * self.d


def make_plan(
    samples: int,
    *,
    dim: int | None,
    available: int | None = None,
    takes_value: bool = False,
    shapes: np.random.Generator | None = None,
) -> tuple[Call, ...]:
    """Plan calls for about ``samples`` values, at most.

    A few vectors first (a sampler that fails does so early), then up to 81,920 calls of one vector
    each (where seeds repeat, state leaks and triggers hide), a few vectors of a fork and of three
    other processes, started one after the other in the course of the audit, and long calls; from a
    million values on, at the end, the first 64 values of up to 40 processes started at once. With a
    fixed ``dim`` all vectors have it. Otherwise the auditor draws the short ones at d = 8, sweeps
    d = 1 … 4096, and takes the rest at d = 64; from a million values on, ``shapes`` draws up to 100
    further d, of one row each, and up to 100 n for d = 1, and which of these and of the sweep's
    small calls are made once more after the long ones. With ``takes_value`` some are drawn for
    values other than 0. A recorded file with ``available`` rows is read through once, in blocks.

    Raises:
        UsageError: samples or dim below 1, or fewer samples than one vector.
    """
    for name, number in (("samples", samples), ("dim", dim)):
        if number is not None and number < 1:
            raise UsageError(f"{name}={number}: must be at least 1")
    if dim is not None and samples < dim:
        raise UsageError(
            f"samples={samples}: less than one vector of dim={dim}; ask for at least {dim}"
        )
    main = dim or MAIN_DIM
    if available is not None:
        return tuple(_long(min(available, samples // main), main))
    rows = max(1, min(16, samples // 100 // main))
    plan = [Call(rows, main, purpose="first")] if samples >= 2 * rows * main else []
    plan += _short(int(_SHORT_SHARE * samples), dim or _SHORT_DIM)
    if dim is None:
        for d, (share, most) in _SWEEP.items():
            many = int(share * samples) // d
            plan += _long(many if most is None else min(many, most), d, "sweep")
        if shapes is not None:
            plan += _random_shapes(samples, shapes)
    again = [] if shapes is None else _again(plan, samples, shapes)
    if samples >= 50 * rows * main:
        plan += [Call(rows, main, purpose="other process"), Call(rows, main, purpose="fork")]
    if takes_value:
        many = int(samples * _VALUE_SHARE) // main
        plan += [Call(many, main, purpose="value", value=value) for value in _VALUES if many]
    processes = _processes(samples, main)
    others = [Call(rows, main, purpose="other process")] * 2 if samples >= 50 * rows * main else []
    room = samples - sum(call.size for call in (*plan, *others, *again, *processes))
    last = _long(room // main, main)
    half = len(last) // 2
    return (*plan, *last[:half], *others[:1], *last[half:], *others[1:], *again, *processes)


def _short(values: int, d: int) -> list[Call]:
    calls = min(_SHORT_CALLS, values // d)
    batch = max(1, min(_SHORT_BATCH, _BLOCK_VALUES // d))
    return [Call(1, d, min(batch, calls - start), "short") for start in range(0, calls, batch)]


def _processes(samples: int, d: int) -> list[Call]:
    rows = -(-_FIRST_VALUES // d)
    many = min(_PROCESSES, int(_PROCESS_SHARE * samples) // (rows * d))
    fits = samples >= _LARGE and many > 1
    return [Call(rows, d, many, "processes")] if fits else []


def _long(rows: int, d: int, purpose: Purpose = "main") -> list[Call]:
    step = max(1, _BLOCK_VALUES // d)
    return [Call(min(step, rows - start), d, purpose=purpose) for start in range(0, rows, step)]


def _random_shapes(samples: int, shapes: np.random.Generator) -> list[Call]:
    plan: list[Call] = []
    for share, by_d in ((_RANDOM_D, True), (_RANDOM_N, False)):
        many = min(_MOST_SHAPES, int(share * samples / (_SHAPES / 2)))
        chosen = shapes.choice(_SHAPES, _MOST_SHAPES, replace=False)[:many] + 1
        if many >= _FEWEST_SHAPES:
            plan += [Call(1, int(x)) if by_d else Call(int(x), 1) for x in chosen]
    return [replace(call, purpose="shape") for call in plan]


def _again(plan: Sequence[Call], samples: int, shapes: np.random.Generator) -> list[Call]:
    """Some shapes of a large plan, once more: noise that is kept per shape comes again."""
    if all(call.purpose != "shape" for call in plan):
        return []
    room, calls = int(_AGAIN * samples), list[Call]()
    largest = _AGAIN_LARGEST * samples
    once = [c for c in plan if c.purpose in ("sweep", "shape") and c.size <= largest]
    for i in shapes.permutation(len(once)):
        if once[i].size <= room:
            calls.append(replace(once[i], purpose="shape"))
            room -= once[i].size
    return calls


def special_shapes(plan: Sequence[Call]) -> tuple[BlindSpot, ...]:
    """What the plan's choice of d leaves out: a flaw at some d that was not drawn."""
    tried = len({call.d for call in plan if call.d <= _SHAPES})
    if tried == 1:
        return ()
    return (
        BlindSpot(
            test="the plan",
            flaw="a flaw at one d",
            size=100 * tried / _SHAPES,
            unit="% of all d up to 4,096 were drawn",
            says=f"noise that is wrong at one d of 1 … {_SHAPES:,} alone: {tried} of them were "
            f"drawn, so it is found with probability {tried / _SHAPES:.1%} at most",
        ),
    )


def growing_plan(samples: int, *, dim: int | None) -> tuple[Call, ...]:
    """Calls for a sequential audit: small ones first.

    Each is an eighth of what was drawn before, up to a full block.
    """
    d = dim or MAIN_DIM
    plan: list[Call] = []
    drawn = 0
    while drawn + d <= samples:
        rows = max(1, min(max(1024, drawn // 8), _BLOCK_VALUES, samples - drawn) // d)
        plan.append(Call(rows, d))
        drawn += rows * d
    return tuple(plan)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The calls of an audit of a sampler, decided before any value is drawn.

    ``planned`` is the number of values; ``flat``: a recording gives rows of one value, to be joined
    to rows of the plan's length. All the auditor's randomness comes from ``root``.
    """

    sampler: str
    claim: Claim
    options: AuditOptions
    calls: tuple[Call, ...]
    planned: int
    flat: bool
    limit: TimeLimit
    root: KeyedStream

    @property
    def weight(self) -> float:
        """The factor on the battery's p-values: a sequential audit bets half of α."""
        return 2.0 if self.options.sequential else 1.0


def drawing_seconds(options: AuditOptions) -> float:
    """Seconds that drawing may take, and so may the start of what is drawn from."""
    return DRAWING_SECONDS if options.time_limit is None else options.time_limit


def plan_audit(session: Session, *, claim: Claim, options: AuditOptions) -> Plan:
    """Plan the calls of ``session``, once it has started.

    Errors are those of :func:`dpaudit.audit.run_audit`.
    """
    dim, samples, sequential = options.dim, options.samples, options.sequential
    limit = TimeLimit(drawing_seconds(options), time.monotonic())
    fixed = dim is not None and 0 < dim <= samples
    if isinstance(session, Preparing) and not sequential and fixed:
        calls = make_plan(samples, dim=dim)
        session.prepare(sum(call.purpose == "other process" for call in calls))
    facts = session.facts
    flat = facts.dim == 1 and facts.available is not None
    if facts.dim is not None and dim not in (None, facts.dim) and not flat:
        raise UsageError(
            f"dim={dim}: {session.name} only gives vectors of {facts.dim}; leave --dim out"
        )
    root = KeyedStream.from_seed(options.seed).child("audit")
    shapes = root.child("shapes").numpy()
    calls = _calls(facts, samples, dim if dim is not None else facts.dim, sequential, shapes)
    planned = sum(call.size for call in calls)
    if facts.available is not None and planned < MINIMUM_SAMPLES:
        raise SamplerOutputError(
            f"{session.name} holds {planned} values; an audit needs at least {MINIMUM_SAMPLES}"
        )
    return Plan(
        sampler=session.name,
        claim=claim,
        options=options,
        calls=calls,
        planned=planned,
        flat=flat,
        limit=limit,
        root=root,
    )


def _calls(
    facts: Facts,
    samples: int,
    dim: int | None,
    sequential: bool,
    shapes: np.random.Generator,
) -> tuple[Call, ...]:
    takes_value = "noise for a value" in facts.accepts
    rest = functools.partial(make_plan, dim=dim, takes_value=takes_value, shapes=shapes)
    if facts.available is not None or not sequential:
        rows = facts.available
        if rows is not None and dim:
            rows = rows * (facts.dim or dim) // dim
        return rest(samples, available=rows)
    first = growing_plan(samples // 2, dim=dim)
    return (*first, *rest(samples - sum(call.size for call in first)))
