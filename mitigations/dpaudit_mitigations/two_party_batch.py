"""A batch that two parties draw: neither alone decides on, or knows, who is in it.

For DP-SGD whose accountant counts on amplification by subsampling: that is lost towards whoever
knows the coins, as the key holder of backdoored coins does (``batch-reader``).
"""

from __future__ import annotations

import hmac
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import BatchCoins
from dpaudit.randomness import coin_words, members

__all__ = ["SealedShare", "TwoPartyBatch"]

_LABEL = b"dpaudit two-party batch 1"


@dataclass(frozen=True)
class SealedShare:
    """One party's share of one batch's coins, and the salt that hides it in its commitment."""

    party: int
    share: bytes = field(repr=False)
    salt: bytes = field(repr=False)

    @classmethod
    def of(cls, party: int, coins: BatchCoins) -> SealedShare:
        """The next share of party 1's or 2's ``coins``, salted by the operating system."""
        return cls(party, coins.share(), secrets.token_bytes(32))

    @property
    def commitment(self) -> bytes:
        """What a party sends before it sees the other's share: HMAC-SHA256(salt, party ‖ share)."""
        return hmac.digest(self.salt, _LABEL + bytes([self.party]) + self.share, "sha256")


class TwoPartyBatch:
    """Poisson batches by the coins of two parties, of whom one need be honest.

    For each batch both parties commit to 32 bytes, then open them to the trainer; each share makes
    a word of 64 bits per record. ``how="xor"``: a record is in the batch if the exclusive or of its
    two words is below rate·2^64. ``how="thinning"``: if both words are below √rate·2^64.

    Threat model: the owner of one party's coins knows that party's shares and sees the releases. It
    sees neither the other's shares nor the batch: these go to the trainer, in private, and nowhere
    else.

    Formal guarantees, if the honest party's share is uniform and independent of the other's (which
    the commitments ensure), and ChaCha20 is a random function. *To anyone else*: a Poisson batch of
    ``rate``, under either. *To the owner of the other's coins*, ``xor``: the same, so amplification
    by subsampling at ``rate`` is kept in full; ``thinning``: a Poisson sample, at rate √rate, of
    those whom its coins let in; amplification at √rate is left. Proof: given one party's words, the
    other's are uniform and independent. The exclusive or with a constant maps uniform words to
    uniform words, so given all that the owner knows, each record is in the batch with probability
    ``rate``, independently. Two coins of √rate are both heads with probability rate; given the
    owner's, the other is heads with probability √rate. :meth:`known` is the same in one number, and
    ``dpaudit.accounting.dpsgd`` makes an ε of it.

    Cost: 64 bytes per party and batch, two words per record for one. Not claimed: anything if both
    parties' coins are known; that the trainer uses the batch, or keeps it to itself; that a party
    opens its share (one that refuses once it knows the batch chooses between batches: stop there,
    and never draw that batch again). Ours; commitments before coins: Blum 1983.
    """

    trusts = "one of the two parties, for its coins; the trainer, to keep the batch to itself"
    parties = 2

    def __init__(self, *, how: str = "xor") -> None:
        """By the exclusive or of words, or by two coins that must both be heads.

        Raises:
            UsageError: another ``how`` than xor or thinning.
        """
        if how not in ("xor", "thinning"):
            raise UsageError(f"how={how}: must be xor or thinning")
        self.how = how

    def draw(
        self, coins: Sequence[BatchCoins], records: int, *, rate: float
    ) -> npt.NDArray[np.bool_]:
        """Who of ``records`` is in the next batch: the whole exchange in this process.

        Raises:
            UsageError: a rate outside (0, 1].
        """
        first, second = coins
        shares = SealedShare.of(1, first), SealedShare.of(2, second)
        commitments = shares[0].commitment, shares[1].commitment
        return self.opened(shares, commitments, records=records, rate=rate)

    def opened(
        self,
        shares: tuple[SealedShare, SealedShare],
        commitments: tuple[bytes, bytes],
        *,
        records: int,
        rate: float,
    ) -> npt.NDArray[np.bool_]:
        """The batch of two opened shares.

        Raises:
            UsageError: a share that is not what its party had committed to; a rate outside (0, 1].
        """
        for party, (one, commitment) in enumerate(zip(shares, commitments, strict=True), 1):
            if one.party != party or not hmac.compare_digest(one.commitment, commitment):
                raise UsageError(
                    f"share={party}: is not what party {party} had committed to; stop the run, and "
                    "do not draw this batch again"
                )
        first, second = (coin_words(one.share, records) for one in shares)
        if self.how == "xor":
            return members(first ^ second, rate=rate)
        each = math.sqrt(rate)
        return members(first, rate=each) & members(second, rate=each)

    def known(self, rate: float) -> float:
        """Nothing (1) under ``xor``; under ``thinning`` the first party's coin, of √rate."""
        return 1.0 if self.how == "xor" else math.sqrt(rate)
