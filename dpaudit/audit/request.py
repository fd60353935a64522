"""Audits as they are asked for: one request, whether by a command, a test or a call of Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from dpaudit.audit.options import AuditOptions, MechanismOptions
from dpaudit.audit.result import AuditResult, MechanismResult, nothing_drawn
from dpaudit.options import command_of
from dpaudit.targets.identity import Identity

__all__ = ["NoiseRequest", "Request"]

R = TypeVar("R", bound=AuditResult | MechanismResult, covariant=True)


class Request(Protocol[R]):
    """An audit as it is asked for, apart from its subject."""

    @property
    def options(self) -> AuditOptions | MechanismOptions:
        """How the audit is done."""

    @property
    def claim_text(self) -> str:
        """The claim as a reader writes it."""

    def command(self, target: str) -> str:
        """The command that asks for the same audit of ``target``."""

    def inconclusive(
        self,
        name: str,
        reason: str,
        *,
        sandbox: str = "",
        identity: Identity | None = None,
        seconds: float = 0.0,
    ) -> R:
        """The result if ``name`` failed before anything could be judged, for ``reason``."""


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

    def inconclusive(
        self,
        name: str,
        reason: str,
        *,
        sandbox: str = "",
        identity: Identity | None = None,
        seconds: float = 0.0,
    ) -> AuditResult:
        """The result if the sampler failed before anything could be judged."""
        return nothing_drawn(
            name,
            reason,
            claim=self.claim or "",
            options=self.options,
            sandbox=sandbox,
            what=identity,
            seconds=seconds,
        )
