"""The verifier: commits to shares and coin, and derives every opened candidate again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.errors import MessageError, UsageError
from dpaudit.protocols import Stream
from dpaudit_mitigations.codec import Digest, Hex64, Record
from dpaudit_mitigations.joint_seeds.checks import release_digest, wrong_candidates
from dpaudit_mitigations.joint_seeds.commitments import share_commitment
from dpaudit_mitigations.joint_seeds.messages import (
    Abort,
    Choice,
    Offer,
    Release,
    ReleaseReceipt,
    Salt,
    SealedShares,
    Shares,
    Verdict,
)
from dpaudit_mitigations.joint_seeds.record import SignedChain
from dpaudit_mitigations.joint_seeds.terms import SessionTerms, in_steps

__all__ = ["Verifier"]


class Verifier:
    """One session of the verifier's side: :meth:`offer`, :meth:`receive`, :meth:`receipt`.

    It learns neither the query nor the noise: of the used candidate it knows its own share only.
    All secrets come from ``stream``, which must be fresh, secret and never used again; above all
    the server must not be able to guess its coin. ``key`` signs. ``record`` is what becomes the
    transcript.

    Raises:
        UsageError: a key that is not the terms'.
    """

    def __init__(
        self, *, terms: SessionTerms, key: Ed25519PrivateKey, stream: Stream, threads: int = 1
    ) -> None:
        if key.public_key().public_bytes_raw() != terms.verifier:
            raise UsageError("key: is not the verifier's in the terms; give the right key")
        self.record = SignedChain()
        self._terms, self._key, self._stream, self._threads = terms, key, stream, threads

    def offer(self) -> bytes:
        """The first message."""
        nonce = self._secret("session")
        shares = tuple(
            share_commitment("verifier share", nonce, index, self._share(index))
            for index in range(self._terms.candidates)
        )
        coin = share_commitment("coin", nonce, 0, self._coin())
        body = Offer(coin=coin, nonce=nonce, shares=shares, terms=self._terms)
        return self._send(body, sealed=Salt(salt=self._secret("salt")))

    def receive(self, frame: bytes) -> bytes | None:
        """The answer to the server's next message; None to the release (call :meth:`receipt`).

        Raises:
            MessageError: a message refused. Nothing is published; after the shares, :meth:`abort`
                records that for good.
        """
        kind, _ = self.record.receive(frame, sender="server")
        if kind == "commit":
            shares = tuple(self._share(index) for index in range(self._terms.candidates))
            return self._send(Shares(), sealed=SealedShares(shares=shares))
        if kind == "noises":
            coin = self._coin()
            used = self.record.coin_choice(coin, self._terms.candidates)
            return self._send(Choice(coin=coin, used=used))
        if kind == "openings":
            wrong = self.wrong()
            return self._send(Verdict(outcome="caught" if any(wrong) else "accepted", wrong=wrong))
        return None

    def wrong(self) -> tuple[bool, ...]:
        """For each candidate whether its opening does not hold, after deriving all again."""
        return wrong_candidates(self.record, threads=self._threads)

    def receipt(self, values: npt.NDArray[np.float64]) -> bytes:
        """The last message, when ``values`` (dim,) have been published as the release.

        Raises:
            MessageError: they are not the release that the server signed.
        """
        if self.record.last != "release":
            raise MessageError("receipt: the server has signed no release")
        digest = release_digest(in_steps(values, self._terms), self._terms, threads=self._threads)
        if digest != self.record.body(Release).digest:
            raise MessageError("release: what was published is not what the server signed")
        return self._send(ReleaseReceipt(digest=digest))

    def abort(self) -> bytes:
        """Close the record because the server withheld or spoiled what it owes, which is cheating.

        Raises:
            MessageError: the server owes nothing, or not yet anything that could favour it.
        """
        missing = self.record.owed()
        if missing is None:
            raise MessageError("abort: the server has no shares yet, or the session is over")
        return self._send(Abort(missing=missing))

    def _share(self, index: int) -> Hex64:
        return Hex64(self._secret("share", index) + self._secret("nonce", index))

    def _coin(self) -> Hex64:
        return Hex64(self._secret("coin") + self._secret("coin nonce"))

    def _send(self, body: Record, *, sealed: Record | None = None) -> bytes:
        return self.record.sign(body, key=self._key, sealed=sealed)

    def _secret(self, *labels: str | int) -> Digest:
        return Digest(self._stream.child("verifier", *labels).entropy())
