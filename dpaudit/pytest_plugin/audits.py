"""From what a test names to an audit's result, with a command in it that shows a finding again."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Sequence
from typing import Any

from dpaudit.audit import audit_sampler, run_audit
from dpaudit.audit.epsilon import audit_mechanism, run_mechanism_audit
from dpaudit.audit.epsilon.judge import Claimed
from dpaudit.audit.epsilon.neighbours import parse_neighbours
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

__all__ = ["command", "mechanism_result", "noise_result"]

_WORDS = {"mu": "claim_mu", "epsilon": "claim_epsilon", "delta": "claim_delta"}


def noise_result(
    what: Subject,
    *,
    claim: str | None,
    samples: int,
    alpha: float,
    seed: str,
    again: str,
    dim: int | None,
    time_limit: float | None,
    tests: Sequence[str] | None,
    mitigation: str | None,
) -> AuditResult:
    """Audit noise; ``again`` is the command for a callable that only this process has."""
    options: dict[str, Any] = {
        "dim": dim,
        "samples": samples,
        "alpha": alpha,
        "seed": seed,
        "time_limit": time_limit,
        "tests": tests,
    }
    if what.target is not None:
        with same_search_path() if what.ours else contextlib.nullcontext():
            found = audit_sampler(what.target, claim=claim, mitigation=mitigation, **options)
    else:
        if claim is None:
            raise UsageError("claim=None: a callable does not say what it claims; give one, e.g. gaussian:sigma=1")
        if mitigation is not None:
            raise UsageError(f"mitigation={mitigation}: works on a registered source only; leave it out")
        with CallableSampler(what.called, name=what.name) as closed:
            found = run_audit(closed, claim=Claim.parse(claim), **options)
        if found.verdict == "no-finding":
            found = dataclasses.replace(found, cannot_rule_out=(*found.cannot_rule_out, ONE_PROCESS))
    told = tuple(
        dataclasses.replace(t, reproduce=again if what.function else _prefixed(t.reproduce, what)) if t.reproduce else t
        for t in found.tests
    )
    return dataclasses.replace(found, tests=told)


def mechanism_result(
    what: Subject,
    *,
    neighbours: str | None,
    epsilon: float,
    delta: float,
    mu: float | None,
    **options: Any,
) -> MechanismResult:
    """Audit a whole mechanism."""
    if what.target is not None:
        with same_search_path() if what.ours else contextlib.nullcontext():
            return audit_mechanism(
                what.target, neighbours=neighbours, claim_epsilon=epsilon, claim_delta=delta, claim_mu=mu, **options
            )
    with CallableMechanism(what.called, name=what.name) as mechanism:
        return run_mechanism_audit(
            mechanism,
            neighbours=None if neighbours is None else parse_neighbours(neighbours),
            claimed=Claimed(epsilon, delta, mu),
            **options,
        )


def command(kind: str, what: Subject, **options: Any) -> str:
    """The command line that makes this audit; options that are None, False or empty are left out."""
    words = ["dpaudit", kind, str(what.target)]
    for name, value in options.items():
        if value is None or value is False or value == ():
            continue
        option = f"--{_WORDS.get(name, name).replace('_', '-')}"
        text = ",".join(value) if isinstance(value, (list, tuple)) else str(value)
        words += [option] if value is True else [option, f"{value:g}" if isinstance(value, float) else text]
    return _prefixed(shlex.join(words), what)


def _prefixed(line: str, what: Subject) -> str:
    return line if what.root is None else f"PYTHONPATH={shlex.quote(os.path.relpath(what.root))} {line}"
