"""Audits as they are asked for: one request, whether by a command, a test or a call of Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from dpaudit.audit.options import AuditOptions, MechanismOptions
from dpaudit.audit.result import AuditResult, MechanismResult
from dpaudit.options import command_of
from dpaudit.provenance import collect, with_identity
from dpaudit.targets.identity import Identity
from dpaudit.types import Provenance

__all__ = ["AuditRequest", "Failure", "NoiseRequest"]

R = TypeVar("R", bound=AuditResult | MechanismResult, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How the audit of ``name`` failed, after ``seconds``, before anything could be judged."""

    name: str
    reason: str
    sandbox: str = ""
    identity: Identity | None = None
    seconds: float = 0.0

    def provenance(self, *, seed: str, by: str) -> Provenance:
        """The provenance of a result without tests."""
        files, versions = ((), {}) if self.identity is None else self.identity
        provenance = collect(seed=seed or "none", plugins=())
        return with_identity(provenance, by=by, files=files, versions=versions)


class AuditRequest(Protocol[R]):
    """An audit as it is asked for, apart from its subject."""

    @property
    def options(self) -> AuditOptions | MechanismOptions:
        """How the audit is done."""

    @property
    def claim_text(self) -> str:
        """The claim as a reader writes it."""

    def command(self, target: str) -> str:
        """The command that asks for the same audit of ``target``."""

    def inconclusive(self, failure: Failure) -> R:
        """The result if nothing could be judged."""


@dataclass(frozen=True, kw_only=True)
class NoiseRequest:
    """An audit of noise against ``claim``; None: against what the sampler itself claims."""

    claim: str | None
    options: AuditOptions

    @property
    def claim_text(self) -> str:
        """The claim as a reader writes it."""
        return self.claim or "its claim"

    def command(self, target: str) -> str:
        """The command that asks for the same audit of ``target``."""
        return command_of("audit", target, self.options, claim=self.claim)

    def inconclusive(self, failure: Failure) -> AuditResult:
        """The result if the sampler gave no value."""
        options = self.options
        return AuditResult(
            verdict="inconclusive",
            reason=failure.reason,
            sampler=failure.name,
            claim=self.claim or "",
            alpha=options.alpha,
            tests=(),
            samples=0,
            samples_requested=options.samples,
            dims=(),
            sandbox=failure.sandbox,
            seconds=failure.seconds,
            cannot_rule_out=(),
            provenance=failure.provenance(seed=options.seed, by=options.by),
        )
