"""Verifiable counts: coins proved and verified per CPU second of one core.

    OMP_NUM_THREADS=1 python benchmarks/verifiable_counts.py

CPU seconds of this process, medians of sessions in turn; bases and tables are made before the clock
starts.
"""

from __future__ import annotations

import statistics

from harness import MACHINE, clocked, cpu

from dpaudit.accounting.mechanisms import binomial_coins
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.verifiable_counts.group import open_counts
from dpaudit_mitigations.verifiable_counts.parties import Prover, Verifier
from dpaudit_mitigations.verifiable_counts.terms import CountTerms
from dpaudit_studies.evidence import options

SEED = KeyedStream.from_seed("bench")
TARGET = 5_000


def session(bins: int, coins: int, stream: KeyedStream) -> tuple[float, float, int]:
    """CPU seconds of prover and verifier, and bytes of all messages."""
    terms = CountTerms.fresh(bins=bins, coins=coins, stream=stream.child("session"))
    prover = Prover(
        terms,
        open_counts([100] * bins, stream=stream.child("counts")),
        stream=stream.child("prover"),
    )
    verifier = Verifier(terms, stream=stream.child("verifier"))
    first, _, committing = clocked(lambda: prover.step(None))
    second, _, challenging = clocked(lambda: verifier.step(first))
    third, _, responding = clocked(lambda: prover.step(second))
    checking = cpu(lambda: verifier.step(third))
    return committing + responding, challenging + checking, len(first) + len(second) + len(third)


def row(name: str, coins: int, runs: list[tuple[float, float, int]]) -> float:
    proving, checking = (statistics.median(run[i] for run in runs) for i in (0, 1))
    both = coins / (proving + checking)
    print(
        f"{name:34}{coins / proving:10,.0f}{coins / checking:10,.0f}"
        f"{both:10,.0f}{runs[0][2] / coins:9.2f}",
        flush=True,
    )
    return both


def main() -> None:
    repeats = options(__doc__, repeats=9).repeats
    print(MACHINE)
    least, most = binomial_coins(1.0, 1e-10), binomial_coins(0.1, 1e-10)
    alone = [least + least % 2, 332, most + most % 2, 28_452]
    shapes = [*((1, coins) for coins in alone), (16, 332), (256, 166), (64, 2_652)]
    for bins, coins in shapes:
        session(bins, coins, SEED)  # bases, tables
    print(f"coins per CPU second{'':7}{'proved':>10}{'verified':>10}{'both':>10}{'bytes':>9}")
    for bins, coins in shapes:
        runs = [session(bins, coins, SEED.child(bins, coins, i)) for i in range(repeats)]
        both = row(f"{bins} × {coins:,}", bins * coins, runs)
        print(f"{'':34}{'above' if both >= TARGET else 'BELOW'} {TARGET:,}")


if __name__ == "__main__":
    main()
