"""The worker process: ``python -P -m dpaudit.samplers.worker_main NAME``. Foreign code runs here and nowhere else.

Standard input brings one line of JSON that says what to call, then one line a question; answers leave on a private copy
of standard output. The foreign code gets an empty standard input, and its standard output goes to standard error.
"""

from __future__ import annotations

import json
import os
from typing import Any, NoReturn

from dpaudit.errors import DpauditError, SamplerCrashError
from dpaudit.samplers.check import said
from dpaudit.samplers.targets import Target, answered, open_target
from dpaudit.samplers.worker import HEADER

_MAGIC = b"dpa1"


def _write(fd: int, *parts: bytes | memoryview) -> None:
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(fd, view) :]


def _say(fd: int, answer: dict[str, Any]) -> None:
    body = json.dumps(answer).encode()
    _write(fd, HEADER.pack(_MAGIC, 1, len(body)), body)


def _failure(error: BaseException, name: str, call: str, *, ours: bool) -> dict[str, str]:
    if ours and isinstance(error, DpauditError):
        return {"error": type(error).__name__, "message": str(error)}
    return {
        "error": SamplerCrashError.__name__,
        "message": f"sampler {name} raised {said(error)}{call}; mend the sampler",
    }


def _main() -> NoReturn:
    questions = os.fdopen(os.dup(0), "rb")
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    spec = json.loads(questions.readline())
    name = spec["name"]
    target: Target | None = None
    refusal: dict[str, str] = {}
    try:
        target = open_target(spec)
    except BaseException as error:  # noqa: BLE001 foreign code may raise anything, SystemExit too
        refusal = _failure(error, name, " while it was opened", ours=True)
    for line in questions:
        question = json.loads(line)
        if target is None:
            _say(answers, refusal)
        elif not question:
            _say(answers, {"dim": target.dim})
        else:
            n, d, call = question["n"], question["d"], question["call"]
            said_call = f" (call n={n}, d={d})"
            try:
                given = target.draw(n, d, call)
            except BaseException as error:  # noqa: BLE001 as above
                _say(answers, _failure(error, name, said_call, ours=target.ours))
                continue
            try:
                values = answered(given, n, d, name).data.cast("B")
            except BaseException as error:  # noqa: BLE001 the answer's own __array__ is foreign code
                _say(answers, _failure(error, name, said_call, ours=True))
                continue
            _write(answers, HEADER.pack(_MAGIC, 0, len(values)), values)
            del given, values
    os._exit(0)  # not through foreign exit handlers


if __name__ == "__main__":
    _main()
