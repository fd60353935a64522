"""What the bits of one kind of record show of their ε, beside what was said it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpaudit.deployments.apple.bits.sketch_checks import Check
from dpaudit.deployments.apple.model import Finding
from dpaudit.types import Interval

__all__ = ["Claim", "Shown", "ShownVerdict", "judge"]

ShownVerdict = Literal["agrees", "shows more", "shows less", "not identified"]


@dataclass(frozen=True, slots=True)
class Claim:
    """An ε that a record is said to have, by the ``configuration`` (the PrivacyParameter in use) or the ``report`` itself."""

    by: str
    epsilon: float


@dataclass(frozen=True, slots=True)
class Shown:
    """One key's records of one algorithm with one set of parameters: claims, estimate and verdict.

    Formal guarantee: the intervals of all keys of one audit hold together with probability ≥ 1 − α (Bonferroni), under the
    assumption that ``method`` names: independent coins of one bias, laid out as the announced algorithm lays them out.
    Not claimed: that a record does hold its object, nor anything about an algorithm of another form.
    """

    key: str
    algorithm: str
    claims: tuple[Claim, ...]
    coin: float | None
    """ε of a record in this form by the code's coin at the configured PrivacyParameter; None where there is none."""
    records: int
    """Records seen, whether they could be read or not."""
    used: int
    """Records that the estimate rests on."""
    method: str
    """How the interval was made; empty where there is none."""
    flip: Interval | None
    """The probability with which a bit or sign is turned over."""
    sketch: Interval | None
    """ε of one sketch; None where records hold none, or where checks fail."""
    record: Interval | None
    """ε of one record: of all its sketches, or of its sign."""
    verdict: ShownVerdict
    reason: str
    """Why nothing is identified, or what the verdict rests on."""
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()

    in_documents = ("claimed",)

    @property
    def claimed(self) -> float | None:
        """The strictest claim: what the user is promised at the least."""
        return min((c.epsilon for c in self.claims), default=None)


def judge(claims: tuple[Claim, ...], record: Interval | None) -> ShownVerdict:
    """The verdict on the strictest of the ``claims``.

    An interval that reaches up to infinity can contradict a claim but not confirm it.
    """
    if record is None or not claims:
        return "not identified"
    claimed = min(c.epsilon for c in claims)
    if record.low > claimed:
        return "shows more"
    if record.high < claimed:
        return "shows less"
    return "agrees" if record.high < float("inf") else "not identified"
