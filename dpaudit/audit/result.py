"""The verdicts of audits: on a closed sampler, and on a whole mechanism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from dpaudit.report import Described
from dpaudit.types import (
    Amount,
    BlindSpot,
    Count,
    Interval,
    Level,
    Number,
    PowerPoint,
    Provenance,
    Share,
    TestResult,
    Verdict,
    brief,
    smallest_p,
)

__all__ = [
    "AuditResult",
    "MechanismResult",
    "StatedClaim",
    "at_least",
    "with_command",
    "without_secrets",
]

_RECOVERED = "w"  # in the details of a test: a unit vector that reads the noise
R = TypeVar("R", "AuditResult", "MechanismResult")


def at_least(low: float, alpha: float, method: str) -> Interval:
    """The interval of a lower bound shown with confidence 1 − ``alpha``."""
    return Interval(low=low, high=math.inf, confidence=1 - alpha, method=method)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult(Described):
    """The verdict on one closed sampler against one claim.

    ``cause`` is the likeliest cause of a finding in a few words, empty where none is recognised.
    ``remarks`` are sentences that belong to the verdict: noise that can be computed, an audit that
    stopped early. ``shortened`` says how many values fitted into the time limit, if not all did.
    ``dims`` are the vector lengths drawn, ``dims_refused`` those that the sampler refused.
    ``power`` is the detectability map around this audit: the sizes of flaws found with probability
    ≥ 0.9, by number of values. ``sandbox`` says how the sampler was confined: ``full``,
    ``partial: …`` with what was lacking, ``none``, or ``not needed`` where none of its code ran
    here; empty if the caller opened the sampler.

    Guarantee: if the sampler is exactly what it claims, independently from value to value, the
    verdict is ``finding`` with probability at most ``alpha``. Not claimed: that ``no-finding``
    means honest; see ``cannot_rule_out``.
    """

    kind: ClassVar[str] = "audit"

    verdict: Verdict
    reason: str
    sampler: str
    claim: str
    alpha: Level
    tests: tuple[TestResult, ...]
    samples: Count
    samples_requested: Count
    dims: tuple[int, ...]
    dims_refused: tuple[int, ...] = ()
    sequential: bool = False
    cause: str = ""
    remarks: tuple[str, ...] = field(default=(), metadata={"document": "if any"})
    shortened: str = field(default="", metadata={"document": "if any"})
    sandbox: str = ""
    seconds: Amount
    cannot_rule_out: tuple[BlindSpot, ...]
    power: tuple[PowerPoint, ...] = ()
    provenance: Provenance

    def __repr__(self) -> str:
        count = f"{self.samples:,} values"
        smallest = smallest_p(self.tests)
        return brief(self, self.verdict, self.sampler, self.claim, count, smallest)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedClaim:
    """A claim other than (ε, δ) and μ, as it was stated, and what was shown in its own terms.

    ``claim`` is as a reader writes it (``0.5-zCDP``), ``unit`` the letter of its parameter and
    ``value`` the claimed one, ``shown`` a lower bound for it; the three are empty or None for a
    table. ``says`` is the same in words, empty if nothing was tested.
    """

    claim: str
    unit: str
    value: Amount | None
    shown: Interval | None
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismResult(Described):
    """The verdict on one whole mechanism against a claimed (ε, δ).

    It comes from releases at two neighbours, or from one run.

    Guarantee: with probability at least 1 − ``alpha`` every lower bound in it (``epsilon`` at the
    claimed δ, ``delta`` at the claimed ε, ``mu``, all of ``curve``, pairs (δ, ε)) is true and the
    verdict is ``finding`` only if the claim is false, if releases are independent of each other.
    Not claimed: that ``no-finding`` means private; other neighbours, and other events, were not
    looked at. ``neighbours`` is empty for a one-run audit; ``mu``, ``delta`` and ``curve`` are left
    out where the method has none.

    ``attack`` is the attack that was named, or empty; ``details`` then says how many of its guesses
    of the neighbour were right (``success``: ``right``, ``of``, ``by_coin``, a 95 % ``interval``),
    and for a support attack how many releases it judges possible at the value that they were made
    from (``feasible_at_truth``, of how many). Without an attack, ``last_bits_excluded`` is true if
    findings in the last bits are advisory; ``claimed`` is ``mu`` if μ-Gaussian DP alone was
    claimed, and ``claim_epsilon`` what that implies at ``claim_delta``; so it is where ``stated``
    is another claim, which is judged in its own terms. ``sandbox`` is as for samplers. Of an audit
    that could stop at any time, ``details["sequential"]`` has ``looks`` (releases, log₁₀ of the
    capital against the claim, bound for ε), the capital ``needed``, and why it ``stopped``:
    ``contradicted``, ``futile`` with the probability of a ``mistake``, or ``limit``. All its bounds
    held together at every look.
    """

    kind: ClassVar[str] = "mechanism"

    verdict: Verdict
    reason: str
    mechanism: str
    method: str
    attack: str = ""
    neighbours: tuple[tuple[Number, ...], ...]
    claim_epsilon: Amount
    claim_delta: Share
    claim_mu: Amount | None
    stated: StatedClaim | None = None
    alpha: Level
    epsilon: Interval
    delta: Interval | None
    mu: Interval | None
    curve: tuple[tuple[Number, Number], ...]
    tests: tuple[TestResult, ...]
    samples: Count
    samples_requested: Count
    sandbox: str = ""
    seconds: Amount
    advice: tuple[str, ...]
    cannot_rule_out: tuple[BlindSpot, ...]
    power: tuple[PowerPoint, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    provenance: Provenance

    def __repr__(self) -> str:
        claim = f"claims ({self.claim_epsilon:.4g}, {self.claim_delta:.4g})-DP"
        if self.claim_mu is not None and self.details.get("claimed") == "mu":
            claim = f"claims {self.claim_mu:.4g}-GDP"
        if self.stated is not None:
            claim = f"claims {self.stated.claim}"
        count = f"{self.samples:,} releases"
        bound = f"ε ≥ {math.floor(100 * self.epsilon.low) / 100:g}"
        return brief(self, self.verdict, self.mechanism, claim, count, bound)


def without_secrets(result: R) -> R:
    """The result without what a test recovered (a key's direction): that is never written."""
    tests = tuple(
        replace(t, details={k: v for k, v in t.details.items() if k != _RECOVERED})
        for t in result.tests
    )
    return replace(result, tests=tests)


def with_command(result: R, command: str) -> R:
    """The result with the command that reproduces its findings."""
    tests = tuple(replace(t, reproduce=command) if t.finding else t for t in result.tests)
    return replace(result, tests=tests)
