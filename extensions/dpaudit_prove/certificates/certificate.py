"""Writes what was proved as data that `checker.py` can check without the prover."""

from __future__ import annotations

import gzip
import hashlib
import heapq
import json
import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpaudit.errors import UsageError
from dpaudit.results.files import write_file
from dpaudit.results.text import one_line
from dpaudit_prove.exploration.engine import Exploration
from dpaudit_prove.exploration.graph import Branch, Graph, likeliest_branches
from dpaudit_prove.exploration.law import SCALE_BITS
from dpaudit_prove.interpreter.values import Token

__all__ = ["certificate_of", "write_certificate"]

FORMAT = "dpaudit-proof/2"


def certificate_of(
    explored: Sequence[Exploration],
    *,
    program: str,
    calls: Sequence[tuple[Any, ...]],
    kwargs: Mapping[str, Any],
    coins: str,
    returned: Sequence[Any] | None = None,
    shows: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The certificate of some explorations, as JSON values.

    Each is of a call, with the arguments `calls`; or all together are of one call, and `returned`
    says what it returns: a `Token` for the value that an exploration ends with, or a constant.
    `shows` is what the laws show: "profile" (`verdicts.profiles.rationals`) or "dependence".

    Raises:
        UsageError: an argument that JSON cannot hold.
    """
    files: dict[str, str] = {}
    for one in explored:
        files |= one.graph.source_hashes
    return {
        "certificate": FORMAT,
        "program": program,
        "files": files,
        "kwargs": {k: _argument(v) for k, v in kwargs.items()},
        "coins": coins,
        "parts": [_part(one, args) for one, args in zip(explored, calls, strict=True)],
        "returned": returned
        and [v.number if type(v) is Token else encode_output(v) for v in returned],
        "shows": dict(shows or {}),
    }


def _part(explored: Exploration, args: tuple[Any, ...]) -> dict[str, Any]:
    """An exploration as an automaton."""
    graph, law = explored.graph, explored.law
    expanded = sorted(explored.visits)
    number = {state: i for i, state in enumerate(expanded)}
    outputs = [encode_output(x) for x in law.mass]
    output_number = {json.dumps(x): i for i, x in enumerate(outputs)}
    best = likeliest_branches(graph)
    onward = _exit_branches(graph, number)

    def target(branch: Branch) -> int | None:
        if branch.to >= 0:
            return number.get(branch.to)
        index = output_number.get(json.dumps(encode_output(graph.outputs[-1 - branch.to])))
        return None if index is None else -1 - index

    def branch_row(branch: Branch) -> list[Any]:
        registers = [_origin_list(o) for o in branch.registers]
        return [list(branch.requests), registers, target(branch)]

    states = []
    for old in expanded:
        state = graph.states[old]
        _, before, via = best[old]
        states.append(
            {
                "register": state.register,
                "domains": [list(d) for d in state.domains],
                "cuts": list(state.cuts),
                "via": None if before < 0 else [number[before], _index(graph, before, via)],
                "onward": onward.get(old, 0),
                "branches": [branch_row(b) for b in state.branches or ()],
            }
        )
    first = branch_row(graph.root)
    return {
        "args": [_argument(a) for a in args],
        "first": first,
        "states": states,
        "outputs": outputs,
        "law": [str(p) for p in law.mass.values()],
        "residual": str(law.residual),
        "exact": explored.exact,
        "visits": [_visits_text(explored.visits[s], exact=explored.exact) for s in expanded],
        "bits": _bits(first, states),
    }


def _bits(first: Any, states: list[Any]) -> list[int] | None:
    """Bits read on the way to each state, and to every end; None if paths differ."""
    totals: dict[int, int] = {}
    todo = [(0, first)]
    while todo:
        before, (requests, _, to) = todo.pop()
        if to is None:
            return None
        now, at = before + sum((count - 1).bit_length() for count in requests), max(to, -1)
        if at not in totals and at >= 0:
            todo += [(now, branch) for branch in states[at]["branches"]]
        if totals.setdefault(at, now) != now:
            return None
    return [totals[at] for at in [*range(len(states)), -1]] if len(totals) > len(states) else None


def write_certificate(certificate: Mapping[str, Any], path: Path) -> str:
    """Write a certificate, compressed; returns its SHA-256. The same proof gives the same bytes."""
    text = json.dumps(certificate, separators=(",", ":"), allow_nan=False)
    data = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    write_file(path, data)
    return hashlib.sha256(data).hexdigest()


def encode_output(x: Hashable) -> Any:
    """An output as `checker.encode` writes it: equal numbers are written alike."""
    if isinstance(x, tuple):
        return [encode_output(v) for v in x]
    if isinstance(x, (int, float, Fraction)) and abs(x) != math.inf:
        return str(Fraction(x))
    if isinstance(x, Token):
        return f"value {x.number}"
    return json.dumps(x) if isinstance(x, str) else f"{type(x).__name__} {x!s}"


def _visits_text(value: Fraction, *, exact: bool) -> str:
    return str(value) if exact else f"{int(value * (1 << SCALE_BITS)):x}"


def _origin_list(origin: Any) -> list[Any]:
    return [_origin_list(part) if isinstance(part, tuple) else part for part in origin]


def _index(graph: Graph, number: int, branch: Branch) -> int:
    return next(i for i, b in enumerate(graph.states[number].branches or ()) if b is branch)


def _exit_branches(graph: Graph, expanded: Mapping[int, int]) -> dict[int, int]:
    """For every state the branch that leads soonest to an end."""
    into: dict[int, list[tuple[int, int, float]]] = {}
    for old in expanded:
        state = graph.states[old]
        for i, branch in enumerate(state.branches or ()):
            cost = math.log(state.total) - math.log(branch.high - branch.low) + 1e-9
            into.setdefault(branch.to, []).append((old, i, cost))
    exits: dict[int, int] = {}
    heap = [(cost, old, i) for to in into if to < 0 for old, i, cost in into[to]]
    heapq.heapify(heap)
    while heap:
        cost, old, i = heapq.heappop(heap)
        if old in exits:
            continue
        exits[old] = i
        for before, j, more in into.get(old, ()):
            if before not in exits:
                heapq.heappush(heap, (cost + more, before, j))
    return exits


def _argument(value: Any) -> Any:
    if isinstance(value, Fraction):
        return {"/": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_argument(v) for v in value]
    raise UsageError(
        f"args={one_line(repr(value), limit=80)}: a certificate holds numbers, text and lists only"
    )
