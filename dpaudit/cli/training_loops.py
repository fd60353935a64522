"""``dpaudit training``: a training function of the user's own, from their module."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from dpaudit.audit.nothing import nothing_counted
from dpaudit.audit.options import MechanismOptions, PrivacyClaim, TrainingOptions
from dpaudit.audit.training_loops.run import Scoring, audit_with
from dpaudit.cli.formats import formats_of, without_earlier
from dpaudit.cli.options import Output
from dpaudit.cli.progress import AuditProgress
from dpaudit.cli.verdicts import audited, finish
from dpaudit.errors import SamplerCrashError, UsageError
from dpaudit.options import command_of, count_of
from dpaudit.report import describe
from dpaudit.results.text import error_text, one_line
from dpaudit.samplers.sandbox.policy import asking

__all__ = ["training"]

_SCORES = ("score", "loss", "scores")


def training(
    target: str,
    *,
    data: str,
    canaries: str | None,
    score: str | None,
    claim: PrivacyClaim,
    options: TrainingOptions,
    to: Output,
) -> None:
    """Audit, print, write, and exit with the verdict's code."""
    formats = without_earlier(formats_of(to.also, out=to.out), to.out)
    more = {"data": None if data == "data" else data, "canaries": canaries, "score": score}
    command = command_of("training", target, claim.options, options, **more)

    def work(progress: Callable[[int, int], None]) -> Any:
        module, train = _module(target)
        result = audit_with(
            _named(module, train),
            _made(module, data),
            canaries=_canaries(module, canaries),
            scoring=Scoring(**_scoring(module, score)),
            claim=claim,
            options=options,
            progress=progress,
        )
        tests = (dataclasses.replace(t, reproduce=command) if t.finding else t
                 for t in result.tests)  # fmt: skip
        return dataclasses.replace(result, mechanism=f"training {target}", tests=tuple(tests))

    with asking(None, visible=(), passed=()) as held:
        result = audited(
            work,
            command=command,
            shown=AuditProgress(
                "runs of train", "all runs done; counting guesses", total=options.runs
            ),
            nothing=lambda reason, seconds: dataclasses.replace(
                nothing_counted(
                    f"training {target}",
                    reason,
                    claim=claim,
                    attack="",
                    options=MechanismOptions(alpha=options.alpha, seed=options.seed, by=options.by),
                    seconds=seconds,
                ),
                samples_requested=0,
            ),
            out=to.out,
            also=formats,
            output=to.output,
            held=held,
        )
    finish(describe(result), out=to.out, also=formats, output=to.output, verbose=to.verbose)


def _module(target: str) -> tuple[ModuleType, str]:
    """The module that ``target``, ``./file.py:NAME`` or ``package.module:NAME``, names."""
    place, colon, name = target.removeprefix("python:").rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"target={one_line(target)}: write ./training.py:train")
    path = Path(place)
    try:
        if place.endswith(".py"):
            sys.path.insert(0, str(path.resolve().parent))
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.is_file():
                raise UsageError(f"target={one_line(target)}: no file {one_line(place)}")
            module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = module
            spec.loader.exec_module(module)
            return module, name
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place), name
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        if error.name == place:
            raise UsageError(f"target={one_line(target)}: no module {one_line(place)}") from None
        raise SamplerCrashError(f"{one_line(place)} raised {error_text(error)}") from error
    except Exception as error:
        raise SamplerCrashError(f"{one_line(place)} raised {error_text(error)}") from error


def _named(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name):
        raise UsageError(f"{module.__name__} has no {one_line(name)}; define it, or name another")
    return getattr(module, name)


def _made(module: ModuleType, name: str) -> Any:
    """An object of the module, or what a function of it without parameters returns."""
    found = _named(module, name)
    if not inspect.isfunction(found):
        return found
    try:
        return found()
    except Exception as error:
        raise SamplerCrashError(f"{name} raised {error_text(error)}") from error


def _canaries(module: ModuleType, given: str | None) -> Any:
    if given is None:
        return _made(module, "canaries") if hasattr(module, "canaries") else None
    if given[:1].isdigit():
        return count_of(given, what="canaries", example="500", name="canaries")
    return _made(module, given)


def _scoring(module: ModuleType, given: str | None) -> dict[str, Any]:
    """The function named, as ``score``, ``loss`` or ``scores`` by its name; else what is there."""
    if given is None:
        return {name: getattr(module, name) for name in _SCORES if hasattr(module, name)}
    kind = next((kind for kind in ("scores", "loss") if given.endswith(kind)), "score")
    return {kind: _named(module, given)}
