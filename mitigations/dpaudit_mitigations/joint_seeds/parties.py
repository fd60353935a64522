"""The two parties of a session, as state machines: message in, message out, no I/O.

The server makes the noise from joint seeds, opens the unused candidates, and releases. The verifier
commits to shares and coin, and derives every opened candidate again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.errors import CheatingError, MessageError, UsageError
from dpaudit.protocols import Stream
from dpaudit_mitigations.codec import Digest, Hex64, Record
from dpaudit_mitigations.joint_seeds.derivation import (
    BLOCK,
    Blocks,
    Integers,
    joint_key,
    share_commitment,
    vector_blocks,
)
from dpaudit_mitigations.joint_seeds.messages import (
    Abort,
    Choice,
    Commit,
    Noises,
    Offer,
    Openings,
    Release,
    ReleaseReceipt,
    Salt,
    SealedShares,
    SessionTerms,
    Shares,
    Verdict,
    in_steps,
)
from dpaudit_mitigations.joint_seeds.record import (
    SignedChain,
    candidate_noise,
    noise_commitment,
    query_commitment,
    release_digest,
    wrong_candidates,
)
from dpaudit_mitigations.joint_seeds.transcript import Opening

__all__ = ["SeedServer", "Verifier"]

Array = npt.NDArray[np.float64]


class SeedServer:
    """One session of the server's side: message in, message out; afterwards :attr:`release`.

    ``steps`` (dim,) int64 is the query result rounded to the lattice, in steps of
    ``terms.granularity``; it is read again when the release is made and must not change. All
    secrets come from ``stream``, which must be fresh, secret and never used again
    (``KeyedStream.fresh()``; with one stream two sessions would share shares). No noise is stored:
    the used candidate's is derived once more for the release. ``key`` signs.

    Raises:
        UsageError: steps of another shape or type, or beyond ±``terms.most``; a key that is not the
            terms'.
    """

    def __init__(
        self,
        steps: Integers,
        *,
        terms: SessionTerms,
        key: Ed25519PrivateKey,
        stream: Stream,
        threads: int = 1,
    ) -> None:
        if steps.shape != (terms.dim,) or steps.dtype != np.int64:
            raise UsageError(f"steps: {steps.dtype} {steps.shape}, must be int64 ({terms.dim},)")
        if max(int(steps.max()), -int(steps.min())) > terms.most:
            raise UsageError(f"steps: must lie within ±{terms.most:,}; clip the query first")
        if key.public_key().public_bytes_raw() != terms.server:
            raise UsageError("key: is not the server's in the terms; give the matching private key")
        self.record = SignedChain()
        self.release: Array | None = None
        self._steps, self._terms = steps, terms
        self._key, self._stream, self._threads = key, stream, threads
        self._shares: list[Hex64] = []
        self._theirs: Sequence[Hex64] = ()
        self._query = Hex64()

    @property
    def done(self) -> bool:
        """Whether the session is over."""
        return self.record.finished

    def step(self, message: bytes | None) -> bytes | None:
        """The answer to the verifier's next message; None to the receipt, and to an abort.

        Raises:
            MessageError: a message refused. If it was signed (other terms, other shares than
                committed to) that ends the session.
            CheatingError: the verifier's verdict is that it caught this server.
        """
        if message is None:
            raise MessageError("server: the verifier begins the session")
        kind, sealed = self.record.receive(message, sender="verifier")
        if isinstance(sealed, Salt):
            return self._commit(sealed)
        if isinstance(sealed, SealedShares):
            return self._noises(sealed)
        if kind == "choice":
            return self._send(self.openings())
        if kind == "verdict":
            return self._verdict()
        return None

    def opening(self) -> Opening:
        """What an auditor needs to check the used candidate and the release. Keep it secret.

        Raises:
            MessageError: nothing has been chosen yet.
        """
        if self.record.last not in ("openings", "verdict", "release", "receipt"):
            raise MessageError("opening: exists only after the coin has chosen a candidate")
        used = self.record.used
        return Opening(
            session=self.record.session,
            server=self._shares[used],
            verifier=self._theirs[used],
            query=self._query,
        )

    def share(self, index: int) -> Hex64:
        """Share ‖ nonce of candidate ``index``; uniform."""
        return Hex64(self._secret("share", index) + self._secret("nonce", index))

    def noise(self, index: int) -> Blocks:
        """The noise of candidate ``index``; a dishonest server would have another one here."""
        return candidate_noise(self.candidate_key(index), self._terms)

    def openings(self) -> Openings:
        """Both shares of every candidate but the one used."""
        used = self.record.used
        server, verifier = (
            tuple(None if i == used else share for i, share in enumerate(shares))
            for shares in (self._shares, self._theirs)
        )
        return Openings(server=server, verifier=verifier)

    def candidate_key(self, index: int) -> bytes:
        """The key that both shares of candidate ``index`` make."""
        return joint_key(self.record.session, index, self._shares[index], self._theirs[index])

    def _commit(self, sealed: Salt) -> bytes:
        if self.record.terms != self._terms:
            raise MessageError("message offer: its terms are not the ones agreed on")
        self._shares = [self.share(index) for index in range(self._terms.candidates)]
        self._query = Hex64(sealed.salt + self._secret("query"))
        offered = self.record.offered
        steps = vector_blocks(self._steps)
        body = Commit(
            nonce=Digest(self._secret("session")),
            query=query_commitment(offered, self._query, steps, self._terms, threads=self._threads),
            shares=tuple(
                share_commitment("server share", offered, i, share)
                for i, share in enumerate(self._shares)
            ),
        )
        return self._send(body)

    def _noises(self, sealed: SealedShares) -> bytes:
        offer = self.record.body(Offer)
        for index, share in enumerate(sealed.shares):
            if share_commitment("verifier share", offer.nonce, index, share) != offer.shares[index]:
                raise MessageError(f"message shares: share {index} is not the one committed to")
        self._theirs = sealed.shares
        noises = tuple(self._committed(index) for index in range(self._terms.candidates))
        return self._send(Noises(noises=noises))

    def _committed(self, index: int) -> Digest:
        key, noise = self.candidate_key(index), self.noise(index)
        return noise_commitment(
            self.record.session, index, key, noise, self._terms, threads=self._threads
        )

    def _verdict(self) -> bytes:
        if self.record.body(Verdict).outcome != "accepted":
            raise CheatingError("verdict: candidates differ from their seeds; nothing is released")
        noise = self.noise(self.record.used)
        out = np.empty(self._terms.dim)

        def released(number: int) -> Integers:
            at = slice(number * BLOCK, (number + 1) * BLOCK)
            steps = self._steps[at] + noise(number)
            np.multiply(steps, self._terms.granularity, out=out[at])
            return steps

        digest = release_digest(released, self._terms, threads=self._threads)
        answer = self._send(Release(digest=digest))
        self.release = out
        return answer

    def _send(self, body: Record) -> bytes:
        return self.record.sign(body, key=self._key)

    def _secret(self, *labels: str | int) -> bytes:
        return self._stream.child("server", *labels).entropy()


class Verifier:
    """One session of the verifier's side: it begins, and gives a :meth:`receipt` at the end.

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

    @property
    def done(self) -> bool:
        """Whether the session is over."""
        return self.record.finished

    def step(self, message: bytes | None) -> bytes | None:
        """The offer, or the answer to the server's next message; None to its release.

        After that call :meth:`receipt`.

        Raises:
            MessageError: a message refused. Nothing is published; after the shares, :meth:`abort`
                records that for good.
        """
        if message is None:
            return self._offer()
        kind, _ = self.record.receive(message, sender="server")
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

    def _offer(self) -> bytes:
        nonce = self._secret("session")
        shares = tuple(
            share_commitment("verifier share", nonce, index, self._share(index))
            for index in range(self._terms.candidates)
        )
        coin = share_commitment("coin", nonce, 0, self._coin())
        body = Offer(coin=coin, nonce=nonce, shares=shares, terms=self._terms)
        return self._send(body, sealed=Salt(salt=self._secret("salt")))

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
