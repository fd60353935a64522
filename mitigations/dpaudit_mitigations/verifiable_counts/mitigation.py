"""Verifiable counts as a mitigation: binomial noise from jointly flipped coins, with proofs.

:func:`run_session` has both parties in this process: messages as bytes, only the terms shared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.accounting.mechanisms import binomial_coins, binomial_epsilon
from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import on_tensors, tensor
from dpaudit.numeric.lattice import in_dtype
from dpaudit.numeric.normal import check_query, check_sigma, check_whole
from dpaudit.protocols import Array, Host, NoiseSource, Stream
from dpaudit.types import EpsilonBounds, Rehearsal
from dpaudit_mitigations.rehearsal import Meter, converse
from dpaudit_mitigations.verifiable_counts.group import open_counts
from dpaudit_mitigations.verifiable_counts.messages import LARGEST_RELEASE, wire_bytes
from dpaudit_mitigations.verifiable_counts.parties import Prover, Verifier
from dpaudit_mitigations.verifiable_counts.terms import MOST_BINS, MOST_COINS, CountTerms
from dpaudit_mitigations.verifiable_counts.transcript import Transcript

__all__ = ["VerifiableCounts", "draw_heads", "run_session"]


@dataclass(frozen=True, kw_only=True)
class CountSession:
    """The released numbers, the transcript, the seconds per party, and the messages' bytes."""

    released: list[int]
    transcript: Transcript
    seconds: Mapping[str, float]
    wire: int


def run_session(
    counts: Sequence[int], *, coins: int, stream: Stream, key: Ed25519PrivateKey | None = None
) -> CountSession:
    """Release ``counts`` with ``coins`` coins each; prover and verifier have separate streams.

    The verifier signs with ``key``; without one, with a key made from its stream.
    """
    of_verifier, of_prover = stream.child("verifier"), stream.child("prover")
    if key is None:
        key = Ed25519PrivateKey.from_private_bytes(of_verifier.child("identity").bytes(32))
    terms = CountTerms.fresh(bins=len(counts), coins=coins, stream=of_verifier.child("session"))
    meter = Meter()
    with meter.working("prover"):
        openings = open_counts(counts, stream=of_prover.child("counts"))
        prover = Prover(terms, openings, stream=of_prover)
    verifier = Verifier(terms, stream=of_verifier)
    converse({"prover": prover, "verifier": verifier}, meter=meter)
    public, signature = key.public_key().public_bytes_raw(), verifier.sign(key)
    return CountSession(
        released=verifier.released or [],
        transcript=Transcript(terms, **verifier.messages, verifier=public, signature=signature),
        seconds=dict(meter.seconds),
        wire=meter.wire,
    )


_CHUNK = 1 << 22  # bytes at a time


def draw_heads(count: int, *, coins: int, stream: Stream) -> npt.NDArray[np.int64]:
    """``count`` independent Binomial(``coins``, 1/2), as uniform as the stream, shape (count,)."""
    whole, rest = divmod(coins, 64)
    words = whole + (rest > 0)
    out = np.empty(count, dtype=np.int64)
    at_once = max(1, _CHUNK // (8 * words))
    for at in range(0, count, at_once):
        rows = min(at_once, count - at)
        bits = np.frombuffer(stream.bytes(8 * words * rows), dtype="<u8").reshape(rows, words)
        if rest:
            bits = bits.copy()
            bits[:, -1] &= np.uint64((1 << rest) - 1)
        out[at : at + rows] = np.bitwise_count(bits).sum(1, dtype=np.int64)
    return out


class VerifiableCounts:
    """Counts with noise from coins that neither party chose (Biswas and Cormode, CCS 2023, ΠBin).

    The prover commits (Pedersen, ristretto255) to each count and to n private bits per bin; then
    the verifier draws as many public coins, and each private bit is flipped by its coin. The
    release is count + heads − n/2, with a proof that every committed bit is 0 or 1 and that the
    release is what count, bits and coins give. The bits are proved in blocks (``bit_proofs.py``:
    Bootle and Groth, PKC 2018) rather than one by one. The source's noise is not used, only its σ.

    Threat model: either prover or verifier may be dishonest, with any code, not both together. A
    key holder (the vendor of a backdoored prover) sees releases.

    Formal guarantee: if one of the two is honest, the noise is Binomial(n, 1/2) − n/2 whatever the
    other does, short of not finishing: a prover that commits to no bit, to bits chosen after the
    coins, or that opens something else is refused (under discrete logarithms in ristretto255 and
    SHA-512 as a random oracle); a verifier that chooses coins flips uniform bits. What an honest
    prover sends can be simulated from the release. A vendor who knows every private bit but not the
    verifier's coins sees binomial noise too, as far as SHAKE-256 of 32 secret bytes, which these
    coins are, is random. ε is the exact profile (``dpaudit.accounting.mechanisms``).

    Not claimed: that the counts are true (a prover commits to any counts; not offered here: each
    client commits to its record and proves it before the count, and the verifier gets the sums of
    these commitments as ``counts``); anything against somebody with the transcript *and* the
    prover's bits: together they are the noise, so keep a transcript from the prover's vendor, and
    from anybody to whom a dishonest prover may have hidden a message in its blindings; that a
    prover does not abort a session that it dislikes (it knows the noise before it answers: count
    unfinished sessions as cheating), nor that a verifier does not ask again once it has seen a
    release (each session that the prover answered has spent its ε); that a transcript had a
    verifier at all, unless you know the key that signed it (a prover alone can draw coins and
    sign); constant time: libsodium's multiplications are, Python's integers and the look-up of sums
    of four bases are not, so somebody who times the prover's process on its machine may learn about
    its coins.

    Cost: about 35 µs per coin, proved and verified, for one bin of 332 coins (ε = 0.65, δ = 1e-10),
    10 to 12 µs for thousands; 1.3 to 12 bytes per coin on the wire. n = 4σ² coins per bin: for
    counts and small histograms. The error is that of σ.
    """

    trusts = (
        "prover or verifier (not both cheating), for the noise's law; "
        "the prover, for the counts and to keep its coins secret"
    )

    def __init__(
        self,
        *,
        coins: int | None = None,
        epsilon: float | None = None,
        delta: float = 1e-10,
        rehearsed: int = 200_000,
    ) -> None:
        """Set the ``coins`` per bin; by default 4σ² of the source.

        With ``epsilon``: as few as give (``epsilon``, ``delta``) when one bin changes by one. The
        number is rounded up to an even one. :meth:`rehearse` proves at most ``rehearsed`` coins
        (but at least one bin).

        Raises:
            UsageError: both coins and epsilon, or a number out of range.
        """
        if coins is not None and epsilon is not None:
            raise UsageError(f"coins={coins}, epsilon={epsilon}: give one of them")
        if epsilon is not None:
            coins = binomial_coins(epsilon, delta)
        self._coins = None if coins is None else _even(check_whole("coins", coins, low=1))
        self._rehearsed = check_whole("rehearsed", rehearsed, low=1)

    def coins(self, sigma: float) -> int:
        """Coins per bin where the source claims ``sigma``: even, with a variance of at least σ².

        Raises:
            UsageError: more than 2^24.
        """
        return self._coins or _even(math.ceil(4 * check_sigma(sigma) ** 2))

    @on_tensors
    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """``query`` (n, d), whole numbers, plus heads less their mean, by the law alone.

        Raises:
            UsageError: a value that is not whole or beyond 2^52, or a release that the dtype cannot
                hold.
        """
        counts = _counts(query)
        coins = self.coins(source.sigma)
        heads = draw_heads(counts.numel(), coins=coins, stream=stream.child("verifiable counts"))
        noise = torch.from_numpy(heads - coins // 2).reshape(counts.shape)
        return in_dtype((counts + noise).double(), query.dtype, query.device)

    def scale(self, sigma: float) -> float:
        """√n/2."""
        return math.sqrt(self.coins(sigma)) / 2

    def mixes(self, sigma: float) -> tuple[float, float]:
        """No source noise, and binomial noise (nearly Gaussian) of this scale."""
        return 0.0, self.scale(sigma)

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """The exact profile of n coins if the host's Δ is 1: one bin differs by one."""
        if host.sensitivity != 1:
            return EpsilonBounds(
                low=0.0,
                high=math.inf,
                says="unknown: the binomial profile is for Δ = 1, one bin that differs by one",
            )
        exact = binomial_epsilon(delta, coins=self.coins(source.sigma))
        return EpsilonBounds(low=exact, high=exact, says="exact: the binomial profile, summed")

    def rehearse(self, query: Array, source: NoiseSource, *, stream: Stream) -> Rehearsal:
        """Prove and verify one release of ``query`` (1, d), both parties' code, messages as bytes.

        If it has more coins than ``rehearsed``, only the first bins are proved; a key then states
        how many were measured, and ``prover``, ``verifier`` and ``total`` are extrapolated.
        ``wire`` is exact for all (by message formats).

        Raises:
            UsageError: as :meth:`release`, or other than one row, or more bins than a session
                takes.
        """
        counts = _counts(tensor(query))
        if len(counts) != 1:
            raise UsageError(f"query of {len(counts)} rows: a rehearsal takes one")
        if counts.shape[1] > MOST_BINS:
            raise UsageError(f"d={counts.shape[1]}: at most {MOST_BINS:,} bins; use joint-seeds")
        coins, bins = self.coins(source.sigma), counts.shape[1]
        measured = min(bins, max(1, self._rehearsed // coins))
        session = run_session(
            counts[0, :measured].tolist(), coins=coins, stream=stream.child("session")
        )
        total = sum(session.seconds.values())
        seconds = {
            party: each * bins / measured
            for party, each in {**session.seconds, "total": total}.items()
        }
        if measured < bins:
            seconds[f"measured: {measured} of {bins} bins"] = total
        return Rehearsal(seconds=seconds, wire=wire_bytes(bins=bins, coins=coins))


def _even(coins: int) -> int:
    if not 1 <= coins <= MOST_COINS:
        raise UsageError(
            f"coins={coins}: takes 1 to {MOST_COINS:,} (4σ², σ ≤ {math.sqrt(MOST_COINS) / 2:g})"
        )
    return coins + coins % 2


def _counts(query: torch.Tensor) -> torch.Tensor:
    check_query(query)
    values = query.detach().to("cpu", torch.float64)
    for bad, rule in (
        (values != torch.round(values), "counts are whole numbers; round the query first"),
        (values.abs() > LARGEST_RELEASE // 2, "counts are at most 2^52 in size; rescale the query"),
    ):
        if bad.any():
            row, column = (int(i) for i in bad.nonzero()[0])
            raise UsageError(f"query[{row}, {column}]: {rule}")
    return values.to(torch.int64)
