"""The verdict on real training steps, and its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpaudit import wording
from dpaudit.codec import to_dict
from dpaudit.report import Described, Report, Section, check_of, tests_table
from dpaudit.types import BlindSpot, Provenance, TestResult, Verdict

__all__ = ["StepResult", "describe_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult(Described):
    """The verdict on real steps of a training loop, the same on all processes.

    ``tests`` has one row per part; a finding's ``cause`` is the likeliest reason. ``steps`` were
    taken from one state, on ``records`` of all ``processes``; ``sigma`` is the claimed standard
    deviation of the sum's noise, ``parameters`` the number of trained numbers.

    Guarantee: a step that adds N(0, σ²) to the clipped sum of per-record gradients, and is
    deterministic otherwise, is a ``finding`` with probability at most ``alpha``. Not claimed: that
    ``no-finding`` means private; see ``cannot_rule_out``.
    """

    kind: ClassVar[str] = "optimizer"

    verdict: Verdict
    optimizer: str
    alpha: float
    tests: tuple[TestResult, ...]
    steps: int
    processes: int
    records: int
    parameters: int
    sigma: float
    notes: tuple[str, ...]
    cannot_rule_out: tuple[BlindSpot, ...]
    provenance: Provenance

    @property
    def findings(self) -> tuple[TestResult, ...]:
        """The tests that are findings."""
        return tuple(test for test in self.tests if test.finding)

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        if self.verdict == "no-finding":
            return (
                f"No finding: nothing contradicts noise of σ = {self.sigma:.4g} on the clipped sum "
                f"in {self.steps} steps of {self.optimizer}, processes: {self.processes}."
            )
        names = list(dict.fromkeys(test.name for test in self.findings))
        listed = wording.listed(names, word="and")
        return f"Finding: a step of {self.optimizer} is not as claimed: {listed}."

    def __repr__(self) -> str:
        return f"<StepResult: {self.verdict}, {self.optimizer}, {len(self.findings)} findings>"

    def __str__(self) -> str:
        rows = [f"{t.name}: {t.effect}" + f" ({t.cause})" * bool(t.cause) for t in self.findings]
        if self.cannot_rule_out:
            rows = [f"cannot exclude: {'; '.join(spot.flaw for spot in self.cannot_rule_out)}"]
        return "\n  ".join([self.sentence, *rows, *self.notes])


def describe_step(result: StepResult) -> Report:
    """The report of an audit of real training steps."""
    return Report(
        kind="optimizer",
        label="audit of a training step",
        subject=result.optimizer,
        title=f"Audit of a step of {result.optimizer}",
        verdict=result.verdict,
        headline=result.sentence,
        checks=tuple(check_of(test, result.alpha, result.verdict) for test in result.tests),
        sections=(Section(title="What was found", blocks=(tests_table(result.tests),)),),
        blind_spots=result.cannot_rule_out,
        advice=result.notes,
        data=to_dict(result),
        provenance=to_dict(result.provenance),
    )
