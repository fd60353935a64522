"""Counterexamples: coins on which Python itself, unmodified, returns what a verdict says."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from typing import Any

from dpaudit.errors import DpauditError
from dpaudit.results.text import one_line
from dpaudit_prove.exploration.engine import Exploration
from dpaudit_prove.exploration.paths import Coin, coins_of, path_to
from dpaudit_prove.questions import ProofOptions
from dpaudit_prove.replay import ReplayMismatchError, replay, replays
from dpaudit_prove.results import Counterexample
from dpaudit_prove.verdicts.disjoint import Factors, one_coin_apart

__all__ = [
    "InterpreterMismatchError",
    "counterexample_of",
    "counterexample_of_factors",
    "one_coin_changed",
]

_LARGEST_JSON = 1 << 53


class InterpreterMismatchError(DpauditError):
    """Python ran the program otherwise than the interpreter: nothing that was found holds."""


def counterexample_of(
    function: Callable[..., Any],
    args: Sequence[Any],
    explored: Exploration,
    output: Hashable,
    says: str,
    options: ProofOptions,
) -> Counterexample:
    """The coins of a path to ``output``, and what Python returns on them: the same.

    Raises:
        InterpreterMismatchError: Python returns something else, or asks for other coins.
    """
    path = path_to(explored.graph, output)
    assert path is not None  # noqa: S101 (the output has mass)
    coins = coins_of(explored.graph, path)
    returned = _replayed(function, args, coins, options)
    if returned != output:
        raise InterpreterMismatchError(
            f"replay: on the same coins Python returned {one_line(repr(returned), limit=80)}, the "
            f"interpreter {one_line(repr(output), limit=80)}; please report this program"
        )
    return _shown(output, coins, says)


def counterexample_of_factors(
    function: Callable[..., Any],
    factors: Factors,
    place: int,
    output: Hashable,
    says: str,
    options: ProofOptions,
) -> Counterexample:
    """Coins on which the value at ``place`` of independent ones is ``output``.

    Raises:
        InterpreterMismatchError: Python returns no such value, or asks for other coins.
    """
    wanted = {factors.order[place]: output}
    coins: list[Coin] = []
    for i, graph in enumerate(part.graph for part in factors.parts):
        path = path_to(graph, wanted.get(i, graph.outputs[0]))
        assert path is not None  # noqa: S101
        coins += coins_of(graph, path)
    returned = _replayed(function, options.args, coins, options)
    numbers = [v for v in returned if _is_number(v)] if isinstance(returned, tuple) else []
    if output not in numbers:
        raise InterpreterMismatchError(
            f"replay: Python returned {one_line(repr(returned), limit=80)}; please report this"
        )
    return _shown(returned, coins, says)


def one_coin_changed(
    function: Callable[..., Any], explored: Exploration, row: Hashable, options: ProofOptions
) -> str:
    """A sentence of two runs of Python that differ in one coin and in several values, or ""."""
    tapes = []
    for output in [row, *list(explored.law.mass)[:20]]:
        path = path_to(explored.graph, output)
        if path is not None:
            tapes.append([(c.count, c.value) for c in coins_of(explored.graph, path)])
    kwargs = options.kwargs or {}
    with replays(function, options.args, kwargs, **_replaced(options)) as replay_one:

        def run(tape: Sequence[tuple[int, int]]) -> Hashable:
            try:
                return replay_one([Coin(*c) for c in tape])
            except ReplayMismatchError:
                return None

        found = one_coin_apart(run, tapes)
    if found is None:
        return ""
    before, after, first, second = found
    at = next(i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
    return (
        f"; Python returns {one_line(repr(first), limit=80)}, and with coin {at + 1} alone changed "
        f"from {before[at][1]} to {after[at][1]} (of {before[at][0]}) "
        f"{one_line(repr(second), limit=80)}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Fraction))


def _shown(output: Hashable, coins: Sequence[Coin], says: str) -> Counterexample:
    return Counterexample(
        output=one_line(repr(output), limit=200),
        coins=tuple((_whole(c.count), _whole(c.value)) for c in coins),
        says=says,
    )


def _replayed(
    function: Callable[..., Any], args: Sequence[Any], coins: Sequence[Coin], options: ProofOptions
) -> Hashable:
    """What Python itself returns on coins.

    Raises:
        InterpreterMismatchError: it asked for other coins.
    """
    kwargs = options.kwargs or {}
    try:
        return replay(function, args, kwargs, coins, **_replaced(options))
    except ReplayMismatchError as error:
        raise InterpreterMismatchError(
            f"replay: {error}; Python ran the program otherwise than the interpreter: please report"
        ) from error


def _replaced(options: ProofOptions) -> dict[str, Any]:
    """Which generators a replay replaces."""
    kinds = [c for c in options.coins.split(",") if c]
    return {
        "passed": [k for k in kinds if k not in {"random", "numpy", "secrets"}],
        "everywhere": bool({"random", "numpy"} & set(kinds)),
    }


def _whole(value: int) -> int | str:
    return value if value < _LARGEST_JSON else str(value)
