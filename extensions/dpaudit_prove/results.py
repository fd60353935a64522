"""Results of proofs about programs, and of runs of compiled samplers with chosen coins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from dpaudit.report import Described
from dpaudit.types import Amount, Count, Number, Provenance, Share, Verdict, brief

__all__ = [
    "CERTIFICATE",
    "CoinBytes",
    "CoinCount",
    "Counterexample",
    "DeterminismResult",
    "ProofResult",
    "ProvedBounds",
    "ProvedPoint",
]

CERTIFICATE = "certificate.json.gz"
"""The certificate's file, next to result.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedBounds:
    """A number that is proved to lie in [low, high]; the floats are rounded outwards."""

    low: Number
    high: Number

    def __repr__(self) -> str:
        return brief(self, f"{self.low:.6g} … {self.high:.6g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedPoint:
    """An ε, as it was written, and bounds of the least δ at it, for neighbours in either order.

    ``near`` is the ε as the nearest number, for figures.
    """

    epsilon: str
    delta: ProvedBounds
    near: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """Coins on which the unmodified program was run in Python, and what it returned.

    ``coins`` are pairs (how many values the coin has, which it has), in the order of the requests;
    whole numbers too large for JSON's readers are text. ``says`` is why this refutes the claim.
    """

    output: str
    coins: tuple[tuple[int | str, int | str], ...]
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinCount:
    """How many coin bits a call reads.

    ``constant`` is the one number, None if it varies; then ``information`` bounds the mutual
    information of the number and the output, in bits, if it was computed, and ``law`` has lower
    bounds of the probabilities of the smallest numbers. A request for one of n values counts as
    ⌈log2 n⌉ bits.
    """

    constant: Count | None
    least: Count
    information: ProvedBounds | None = None
    law: tuple[tuple[Count, Share], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofResult(Described):
    """A proof about a program's text, from its exact law.

    Guarantee: if the program's coins are uniform and independent and Python runs its text as the
    interpreter here does, every bound holds, without any probability of error. ``law`` are the
    likeliest outputs with lower bounds of their probabilities; each is larger by at most
    ``residual``, the probability of all paths that were not followed. Not claimed: anything about
    the coins' real source, about compiled code, or about time other than ``coin_count``.

    ``disjoint`` says of a function that returns several values: "shown" if their joint law is a
    product, "refuted" if not, "not shown" if neither could be; empty if that was not asked.
    ``refusal`` says which branch could not be followed, empty if none.
    ``claimed`` bounds the claimed probabilities of the outputs in ``law``, in the same order.
    ``epsilon`` bounds the least ε at ``claim_delta``. ``certificate`` is the SHA-256 of the
    certificate's file, empty if none was written.
    """

    kind: ClassVar[str] = "proof"

    verdict: Literal["proved", "refuted", "undecided"]
    reason: str
    refusal: str = ""
    program: str
    arguments: str
    coins: str
    claim: str
    tolerance: Amount | None = None
    total_variation: ProvedBounds | None = None
    log_ratio: ProvedBounds | None = None
    neighbours: tuple[str, ...] = ()
    claim_epsilon: str = ""
    claim_delta: str = ""
    profile: tuple[ProvedPoint, ...] = ()
    epsilon: ProvedBounds | None = None
    disjoint: Literal["", "shown", "refuted", "not shown"] = ""
    coin_count: CoinCount | None = None
    law: tuple[tuple[str, Share], ...]
    claimed: tuple[ProvedBounds, ...] = ()
    outputs: Count
    residual: Share
    states: Count
    counterexample: Counterexample | None = None
    certificate: str = ""
    seconds: Amount
    cannot_rule_out: tuple[str, ...]
    provenance: Provenance

    def __repr__(self) -> str:
        count = f"{self.states:,} states"
        return brief(self, self.verdict, self.program, self.claim, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinBytes:
    """How many bytes of coins the ``value``-th number of a vector took, over the runs."""

    value: Count
    least: Count
    most: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterminismResult(Described):
    """The behaviour of a compiled sampler under chosen coins, clock and process number.

    Guarantee: each of ``findings`` is a pair of runs whose coins are the same where they should
    matter and whose values differ. "no-finding" says that in ``runs`` runs the same coins gave the
    same values, that no coin reached two values, and that the library has no instruction and no
    import that could bring in anything but what was interposed. Not claimed: that the same holds
    for coins that were not tried; that the law of the values is right.

    ``sources`` is what the sampler asked for, and how often in one run; ``shared`` says whether
    one coin reaches several values.
    """

    kind: ClassVar[str] = "determinism"

    verdict: Verdict
    library: str
    symbol: str
    findings: tuple[str, ...]
    not_controlled: tuple[str, ...]
    coin_bytes: tuple[CoinBytes, ...]
    shared: Literal["yes", "not decided", "no"] = "no"
    sources: Mapping[str, Count]
    runs: Count
    cannot_rule_out: tuple[str, ...]
    seconds: Amount
    provenance: Provenance

    def __repr__(self) -> str:
        return brief(self, self.verdict, self.symbol, f"{self.runs:,} runs")
