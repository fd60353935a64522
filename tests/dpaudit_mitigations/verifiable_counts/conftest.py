"""Small sessions that tests share, with every part of a session within reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dpaudit_mitigations.verifiable_counts.group import open_counts
from dpaudit_mitigations.verifiable_counts.messages import Response
from dpaudit_mitigations.verifiable_counts.parties import Prover, Verifier, check_session
from dpaudit_mitigations.verifiable_counts.terms import CountTerms


@dataclass
class Play:
    """One honest session, message by message."""

    terms: CountTerms
    first: bytes
    second: bytes
    third: bytes
    released: list[int]
    stream: Any
    prover: Prover
    verifier: Verifier

    @property
    def response(self) -> Response:
        return Response.decode(self.third, self.terms)

    def check(self, response: Response | bytes) -> list[int]:
        data = response if isinstance(response, bytes) else response.encode(self.terms)
        return check_session(
            self.terms, self.first, self.second, data, stream=self.stream.child("again")
        )


@pytest.fixture(scope="session")
def play():
    def run(counts, *, coins, stream, of_prover=Prover) -> Play:
        terms = CountTerms.fresh(bins=len(counts), coins=coins, stream=stream.child("session"))
        prover = of_prover(
            terms, open_counts(counts, stream=stream.child("counts")), stream=stream.child("prover")
        )
        judge = Verifier(terms, stream=stream.child("verifier"))
        first = prover.step(None)
        second = judge.step(first)
        third = prover.step(second)
        assert judge.step(third) is None
        assert judge.done
        return Play(terms, first, second, third, judge.released, stream, prover, judge)

    return run
