"""A cell on its way to a worker and back, as JSON text that is checked on arrival; no pickle.

Floats survive exactly (``repr`` and back); NaN and infinities are written as Python's ``json``
does. Numbers depend on the code that makes them, so a worker must have the same version and
sources of dpaudit.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from msgspec import Struct

from dpaudit.codec import convert_value, to_dict
from dpaudit.errors import MessageError, UsageError
from dpaudit.experiments.measure import Cell
from dpaudit.experiments.placement.work import Outcome, attempt
from dpaudit.registry import PACKAGES, source_hash
from dpaudit.results.foreign import RefusedError
from dpaudit.types import CellFailure, CellResult

__all__ = ["answer", "difference", "identity", "parse", "request"]


@functools.cache
def identity() -> dict[str, str]:
    """The version of dpaudit, and the SHA-256 of the sources of its packages."""
    return {
        "version": version("dpaudit"),
        **{package: source_hash(package) for package in PACKAGES},
    }


def difference(own: Mapping[str, str], worker: Mapping[str, str]) -> str:
    """How a worker's identity differs from the runner's, and the fix; empty if it does not."""
    unlike = next((name for name in own if own[name] != worker.get(name)), None)
    if unlike is None:
        return ""
    if unlike == "version":
        reason = f"has dpaudit {worker.get('version', '?')}, this is {own['version']}"
    else:
        reason = (
            f"has different sources of {unlike} "
            f"(sha256 {worker.get(unlike, '')[:12]}, here {own[unlike][:12]})"
        )
    return f"{reason}; install the same dpaudit on it and restart the worker"


_ENVIRONMENT = ("DPAUDIT_DATA", "DPAUDIT_CACHE", "DPAUDIT_CHECKPOINTS")


class _Answer(Struct, frozen=True, forbid_unknown_fields=True):
    done: CellResult | None = None
    failed: CellFailure | None = None
    refused: str = ""


def request(cell: Cell) -> str:
    """The text for a worker: the cell, the runner's identity, and where the runner has its data."""
    return json.dumps(
        {
            "cell": {"kind": cell.kind, "settings": to_plain(cell.settings)},
            "identity": identity(),
            "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        }
    )


def answer(text: str) -> str:
    """Do the cell of a :func:`request`; runs on a worker, and raises nothing.

    The runner's data folders apply where the worker's own environment names none.
    """
    task = json.loads(text)
    unlike = difference(task["identity"], identity())
    if unlike:
        return json.dumps({"refused": unlike})
    cell = Cell(task["cell"]["kind"], task["cell"]["settings"])
    with _environment(task["environment"]):
        outcome = attempt(cell)
    if isinstance(outcome, CellFailure):
        return json.dumps({"failed": to_dict(outcome)})
    return json.dumps({"done": to_dict(outcome)})


def parse(text: object, cell: Cell) -> Outcome:
    """The outcome of ``cell`` in a worker's :func:`answer`.

    Raises:
        UsageError: the worker is another version of dpaudit.
        MessageError: it does not answer this cell.
    """
    try:
        reply = convert_value(
            json.loads(text) if isinstance(text, str) else None, _Answer, words=False
        )
    except (ValueError, RefusedError) as error:
        raise MessageError(
            f"cell={cell.id}: a worker's answer is not as dpaudit writes it ({error})"
        ) from error
    if reply.refused:
        raise UsageError(f"a worker {reply.refused}")
    outcome = reply.failed if reply.done is None else reply.done
    if outcome is None:
        raise MessageError(f"cell={cell.id}: a worker's answer is neither a result nor a failure")
    if (outcome.cell, outcome.kind) != (cell.id, cell.kind):
        raise MessageError(f"cell={cell.id}: a worker's answer is about another cell")
    if not (math.isfinite(outcome.seconds) and outcome.seconds >= 0):
        raise MessageError(f"cell={cell.id}: a worker's answer took seconds={outcome.seconds}")
    return outcome


def to_plain(value: Any) -> Any:
    """Mappings and sequences as dicts and lists, numbers as they are."""
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    added = {
        name: value
        for name, value in values.items()
        if name in _ENVIRONMENT and name not in os.environ
    }
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
