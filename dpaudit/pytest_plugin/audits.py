"""From what a test names to an audit's result, with a command in it that shows a finding again."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from typing import Any, TypeVar

from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.epsilon import MechanismOptions, PrivacyClaim, parse_neighbours, run_mechanism_audit
from dpaudit.audit.epsilon.run import audit_named as mechanism_named
from dpaudit.audit.run import audit_named
from dpaudit.claims import Claim
from dpaudit.errors import UsageError
from dpaudit.pytest_plugin.callables import (
    ONE_PROCESS,
    CallableMechanism,
    CallableSampler,
    Subject,
    same_search_path,
)
from dpaudit.types import AuditResult, MechanismResult

__all__ = ["command", "mechanism_result", "noise_result", "reproducible"]

R = TypeVar("R", bound=AuditResult | MechanismResult)


def noise_result(what: Subject, *, claim: str | None, options: AuditOptions) -> AuditResult:
    """Audit noise, in a process of its own or in this one."""
    if what.target is not None:
        with same_search_path() if what.ours else contextlib.nullcontext():
            return audit_named(what.target, claim=claim, options=options)
    if claim is None:
        raise UsageError("claim=None: a callable does not say what it claims; give one, e.g. gaussian:sigma=1")
    if options.mitigation is not None:
        raise UsageError(f"mitigation={options.mitigation}: works on a registered source only; leave it out")
    with CallableSampler(what.called, name=what.name) as closed:
        found = run_audit(closed, claim=Claim.parse(claim), options=options)
    if found.verdict != "no-finding":
        return found
    return dataclasses.replace(found, cannot_rule_out=(*found.cannot_rule_out, ONE_PROCESS))


def mechanism_result(
    what: Subject, *, claim: PrivacyClaim, neighbours: str | None, attack: str | None, options: MechanismOptions
) -> MechanismResult:
    """Audit a whole mechanism, in a process of its own or in this one."""
    if what.target is not None:
        with same_search_path() if what.ours else contextlib.nullcontext():
            return mechanism_named(what.target, claim=claim, neighbours=neighbours, attack=attack, options=options)
    with CallableMechanism(what.called, name=what.name) as mechanism:
        pair = None if neighbours is None else parse_neighbours(neighbours)
        return run_mechanism_audit(mechanism, claim=claim, neighbours=pair, attack=attack, options=options)


def reproducible(result: R, what: Subject, *, again: str) -> R:
    """The same, with commands that work where the tests run; ``again`` is that for a callable of this process."""
    tests = tuple(
        dataclasses.replace(t, reproduce=again if what.function else _prefixed(t.reproduce, what)) if t.reproduce else t
        for t in result.tests
    )
    return dataclasses.replace(result, tests=tests)


def command(kind: str, what: Subject, options: AuditOptions | MechanismOptions, **more: Any) -> str:
    """The command line that makes this audit; options that are None or as by default are left out."""
    default = type(options)(seed="")
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    changed = {name: value for name, value in given.items() if value != getattr(default, name)}
    words = ["dpaudit", kind, str(what.target)]
    for name, value in (more | changed).items():
        if value is None:
            continue
        option = f"--{name.replace('_', '-')}"
        text = ",".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
        words += [option] if value is True else [option, text]
    return _prefixed(shlex.join(words), what)


def _prefixed(line: str, what: Subject) -> str:
    return line if what.root is None else f"PYTHONPATH={shlex.quote(os.path.relpath(what.root))} {line}"
