"""The audit of a target by a request: what ``dpaudit audit`` and ``dpaudit mechanism`` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from dpaudit.audit.request import AuditRequest, Failure
from dpaudit.cli.options import Output, Sandbox
from dpaudit.cli.verdicts import audit_with_progress
from dpaudit.targets.callables import Subject
from dpaudit.targets.identity import identify

if TYPE_CHECKING:
    from dpaudit.audit.result import AuditResult, MechanismResult
    from dpaudit.cli.progress import AuditProgress

__all__ = ["audit_target"]

R = TypeVar("R", bound="AuditResult | MechanismResult")


def audit_target(
    target: str,
    request: AuditRequest[R],
    audit: Callable[..., R],
    *,
    sandbox: Sandbox,
    display: AuditProgress,
    to: Output,
    formats: Sequence[str],
    releases: bool = False,
    tests: tuple[str, ...] | None = None,
) -> R:
    """The result of ``audit(subject, request)`` for ``target`` in ``sandbox``.

    All else is as in :func:`~dpaudit.cli.verdicts.audit_with_progress`.
    """
    identity = identify(target)
    with sandbox.policy() as policy:
        return audit_with_progress(
            lambda progress: audit(
                Subject(target, target=target), request, identity=identity, progress=progress
            ),
            command=request.command(target),
            display=display,
            nothing=lambda reason, seconds: request.inconclusive(
                Failure(
                    name=target,
                    reason=reason,
                    sandbox=policy.reached,
                    identity=identity,
                    seconds=seconds,
                )
            ),
            to=to,
            formats=formats,
            releases=releases,
            tests=tests,
        )
