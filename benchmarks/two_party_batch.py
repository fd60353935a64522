"""CPU seconds per Poisson batch of 60,000 records: one party's coins, and two parties'."""

from __future__ import annotations

from harness import MACHINE, quickest

from dpaudit.randomness import KeyedStream
from dpaudit.training.private.run import HonestCoins, OneParty
from dpaudit_mitigations.two_party_batch import TwoPartyBatch

RECORDS, BATCHES, REPEATS = 60_000, 20, 9


def main() -> None:
    print(f"{MACHINE}, {RECORDS:,} records, rate 0.01, best of {REPEATS}")
    coins = [HonestCoins(KeyedStream.from_seed(party)) for party in (1, 2)]
    for name, how in (
        ("one-party", OneParty()),
        ("two-party", TwoPartyBatch()),
        ("two-party:how=thinning", TwoPartyBatch(how="thinning")),
    ):

        def batches(how=how) -> None:
            for _ in range(BATCHES):
                how.draw(coins[: how.parties], RECORDS, rate=0.01)

        seconds = quickest(batches, calls=REPEATS)
        print(f"{name:<26}{1000 * seconds / BATCHES:8.2f} ms of CPU")


if __name__ == "__main__":
    main()
