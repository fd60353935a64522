"""An audit of a mechanism as it is asked for: by a command, a test or a call of Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.attacks import Attack, NamedAttack, own_attack
from dpaudit.audit.mechanism.question import Question, neighbours_text, question_of
from dpaudit.audit.options import ClaimOptions, DataOptions, MechanismOptions
from dpaudit.audit.request import Failure
from dpaudit.audit.result import MechanismResult, at_least
from dpaudit.options import command_of, from_keywords, split_keywords

__all__ = ["MechanismRequest"]


@dataclass(frozen=True, kw_only=True)
class MechanismRequest:
    """An audit of a mechanism against ``claim``, at what ``data`` compares, maybe by an ``attack``.

    Raises:
        UsageError: ``data`` is neither two query results nor a question on data sets.
    """

    claim: PrivacyClaim
    data: DataOptions
    attack: str | NamedAttack | None = None
    options: MechanismOptions

    def __post_init__(self) -> None:
        _ = self.neighbours  # reads the data sets, if there are some

    @classmethod
    def from_keywords(
        cls,
        keywords: Mapping[str, Any],
        *,
        attack: str | Attack | None = None,
        options: MechanismOptions | None = None,
        **defaults: Any,
    ) -> Self:
        """The request of options as Python callers write them.

        ``defaults`` are for options that neither ``keywords`` nor ``options`` set.

        Raises:
            UsageError: a name that is no option, or a value that does not fit.
        """
        data, claim, how = split_keywords(keywords, DataOptions, ClaimOptions, MechanismOptions)
        return cls(
            claim=from_keywords(ClaimOptions, claim).claim(),
            data=from_keywords(DataOptions, data),
            attack=attack if attack is None or isinstance(attack, str) else own_attack(attack),
            options=from_keywords(MechanismOptions, how, options, **defaults),
        )

    @cached_property
    def question(self) -> Question | None:
        """The question on data sets; None if query results are compared."""
        return question_of(self.data)

    @cached_property
    def neighbours(self) -> str | None:
        """Two query results as text; None for a question, or if an attack brings them."""
        return neighbours_text(self.data.neighbours) if self.question is None else None

    @property
    def attack_text(self) -> str | None:
        """The attack as the command line names it."""
        return self.attack.text if isinstance(self.attack, NamedAttack) else self.attack

    @property
    def claim_text(self) -> str:
        """The claim as a reader writes it."""
        return self.claim.text

    def command(self, target: str) -> str:
        """The command that asks for the same audit of ``target``.

        Data sets that Python gave are written out, which only fits lists.
        """
        data, question = self.data, self.question
        values = (data.neighbours, data.dataset, data.bounds)
        if question is not None and not all(isinstance(v, str | Path | None) for v in values):
            features = data.features if isinstance(data.features, str) else None
            data = DataOptions(neighbours=question.text, features=features)
        elif question is None:
            data = DataOptions(neighbours=self.neighbours)
        return command_of(
            "mechanism", target, self.claim.options, data, self.options, attack=self.attack_text
        )

    def inconclusive(self, failure: Failure) -> MechanismResult:
        """The result if the mechanism gave no release."""
        options, method = self.options, "none: nothing was counted"
        claim, alpha = options.claimed(self.claim), options.alpha
        return MechanismResult(
            verdict="inconclusive",
            reason=failure.reason,
            mechanism=failure.name,
            method=method,
            attack=self.attack_text or "",
            details=claim.details,
            neighbours=(),
            claim_epsilon=claim.epsilon,
            claim_delta=claim.delta,
            claim_mu=claim.mu,
            stated=claim.statement((), alpha),
            alpha=alpha,
            epsilon=at_least(0.0, alpha, method),
            delta=None,
            mu=None,
            curve=(),
            tests=(),
            samples=0,
            samples_requested=options.samples,
            sandbox=failure.sandbox,
            seconds=failure.seconds,
            advice=(),
            cannot_rule_out=(),
            provenance=failure.provenance(seed=options.seed, by=options.by),
        )
