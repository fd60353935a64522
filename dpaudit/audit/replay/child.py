"""The sandboxed process that runs the pipeline (auditor's side): :mod:`.inside` is what it runs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpaudit.errors import SamplerCrashError, SamplerTimeoutError, UsageError
from dpaudit.protocols import Dataset, Facts, Reply, Request
from dpaudit.targets.endpoints.channel import Channel
from dpaudit.targets.plain import jsonable
from dpaudit.targets.sandbox.view import files_of_module

__all__ = ["Child"]

_INSIDE = Path(__file__).with_name("inside") / "main.py"
_MOST = 1 << 28


class Child(Channel):
    """A pipeline in a process of its own, which imports it once and forks for every run.

    Nothing is patched in this process. As a session it releases with fresh noise, a dict of the
    parts of a release, what was raised, printed and written.
    """

    def __init__(
        self,
        target: str,
        *,
        columns: Sequence[str] | None,
        form: str | None,
        cover: Sequence[str],
        python: Path | None,
        seed: str,
    ) -> None:
        """``target`` is ``python:MODULE:FUNCTION``; ``python`` another interpreter to run it.

        Raises:
            UsageError: it is no such name, or there is no such file.
        """
        place, colon, member = target.removeprefix("python:").rpartition(":")
        if not colon or not place or not member:
            raise UsageError(f"pipeline={target}: write python:MODULE:FUNCTION, e.g. ./p.py:run")
        if place.endswith(".py") and not Path(place).is_file():
            raise UsageError(f"pipeline={target}: no such file (from {Path.cwd()}); check the path")
        if python is not None and not python.is_file():
            raise UsageError(f"python={python}: no such file; give the path of an interpreter")
        path = str(Path(place).resolve()) if place.endswith(".py") else place
        spec = {
            "kind": "python", "place": path, "member": member, "role": "mechanism",
            "columns": columns, "form": form, "cover": list(cover),
        }  # fmt: skip
        interpreter = Path(sys.executable) if python is None else python.absolute()
        folder = interpreter.parent.parent
        needs = [*files_of_module(path), str(_INSIDE), *([] if python is None else [str(folder)])]
        super().__init__(
            f"python:{place}:{member}",
            spec,
            facts=Facts({"releases of a data set"}),
            needs=lambda: needs,
            interpreter=lambda: [str(interpreter), str(_INSIDE)],
        )
        self._seed, self._releases = seed, 0

    def tell(self, do: str, *, seconds: float, **more: Any) -> dict[str, Any]:
        """What the child answers to a question.

        Raises:
            UsageError: the pipeline cannot be imported.
            SamplerError: the child died or gave no answer in time.
        """
        question = {"do": do, "seconds": seconds, **more}
        body = self._exchange(question, _MOST, seconds + 5.0, f" ({do})")
        try:
            answer = json.loads(bytes(body))
        except (ValueError, RecursionError):
            raise self._foreign(f" ({do})") from None
        if not isinstance(answer, dict):
            raise self._foreign(f" ({do})")
        return answer

    def record(
        self,
        records: Sequence[Any],
        *,
        name: str,
        seconds: float,
        seed: str = "",
        lines: bool = True,
    ) -> dict[str, Any]:
        """Run on ``records`` and keep the tape under ``name``; with a ``seed``, tell the values."""
        return self.tell(
            "record", records=jsonable(list(records)), seed=f"{self._seed}{seed}", lines=lines,
            seconds=seconds, values=bool(seed), **{"as": name},
        )  # fmt: skip

    def replay(
        self, records: Sequence[Any], *, of: str, seconds: float, seed: str = "", lines: bool = True
    ) -> dict[str, Any]:
        """Run on ``records`` with the tape ``of``; with a ``seed``, tell the values."""
        return self.tell(
            "replay", records=jsonable(list(records)), seed=f"{self._seed}{seed}", lines=lines,
            of=of, seconds=seconds, values=bool(seed),
        )  # fmt: skip

    def releases(self, records: Any, n: int, *, seconds: float) -> list[dict[str, Any]]:
        """``n`` releases of ``records`` with fresh noise, their parts under ``values``.

        Raises:
            SamplerTimeoutError: the time was up.
            SamplerError: the child or a run died.
        """
        until = time.monotonic() + seconds
        self._releases += 1
        answer = self.tell(
            "release", records=jsonable(list(records)), n=n, seconds=seconds,
            seed=f"{self._seed}/fresh {self._releases}",
        )  # fmt: skip
        found = list(answer["releases"])
        why = next((one["error"] for one in found if "error" in one), "")
        if why or len(found) < n:
            late = time.monotonic() > until - 0.1
            why = why or f"{len(found)} of {n} releases in {seconds:.3g} s"
            error = SamplerTimeoutError if late else SamplerCrashError
            raise error(f"pipeline {self.name}: {why}; give more --time-limit")
        return [{**one, "values": dict(one["leaves"])} for one in found]

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """Releases of a data set with fresh noise; see :class:`~dpaudit.protocols.Session`.

        Raises:
            SamplerError: as :meth:`releases`.
        """
        assert isinstance(request.input, Dataset)  # noqa: S101 all that it accepts
        found = self.releases(request.input.records, request.n, seconds=timeout)
        return Reply([_told(one) for one in found])


def _told(release: dict[str, Any]) -> Any:
    """A release as one plain value: a number if it is one, else its parts by name."""
    parts = {path or "value": value for path, value in release["values"].items()}
    more = {name: release[name] for name in ("raised", "stdout") if release[name]} | {
        f"file {name}": text for name, text in release["files"].items()
    }
    return {**parts, **more}
