"""Server 1: answers a query with its own noise, once, and sends the noisy answer to server 2.

Each release's noise seed is on disk: made once, durable before use, erased when published.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MessageError, PeerError, UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KEY_BYTES, KeyedStream
from dpaudit_mitigations.codec import pack, unpack
from dpaudit_mitigations.transport.certificates import Identity
from dpaudit_mitigations.transport.connection import Log, ask
from dpaudit_mitigations.transport.journal import Journal, durable_write
from dpaudit_mitigations.transport.vectors import vector_frames
from dpaudit_mitigations.two_servers.agreement import (
    CHUNK,
    PUBLISH,
    REACH,
    TERMS,
    VECTOR,
    Draw,
    Offer,
    PublicationReceipt,
    ReleaseTerms,
    add_query,
    ahead,
    check_release,
    granularity,
    most_steps,
    secure_draw,
)

__all__ = ["AnswerSide", "Contact", "Question", "Seeds"]


class Seeds:
    """Files ``NAME.seed`` of mode 0600 in a folder.

    A stream is bound to its release's name too: if two names share a file (on a case-insensitive
    disk, say), their noises are still independent.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, name: str, seed: bytes | None = None) -> KeyedStream:
        """The stream of a release for which nothing is drawn yet; its seed is made if missing.

        Raises:
            UsageError: the seed cannot be written, or the existing one is damaged.
        """
        if not self._path(name).exists():
            durable_write(self._path(name), seed or secrets.token_bytes(KEY_BYTES), replace=False)
        return self.read(name)

    def read(self, name: str) -> KeyedStream:
        """The stream of a release that has begun.

        Raises:
            UsageError: its seed is missing or damaged.
        """
        try:
            return KeyedStream(self._path(name).read_bytes()).child(name)
        except (OSError, UsageError) as error:
            raise UsageError(
                f"release={name}: begun, but its seed is missing or damaged; noise is never drawn "
                "twice for one release, so it cannot be finished"
            ) from error

    def erase(self, name: str) -> None:
        """Delete the seed: a published release needs none. No promise about the disk's blocks."""
        self._path(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """The releases that have seeds here."""
        return [path.stem for path in self._folder.glob("*.seed")]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.seed"


DRAWN, SENT, PUBLISHED = "drawn", "sent", "published"

_IDLE = 60.0  # seconds without data: server 2 makes a publication durable before it answers
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_MOST_PATIENCE = 1e6

MakeDraw = Callable[[float, Stream], Draw]


@dataclass(frozen=True, slots=True)
class Contact:
    """Where server 2 is, the name it must prove, and who we are."""

    address: str
    peer: str
    identity: Identity

    def ask(self, method: str, messages: Iterable[bytes], *, timeout: float, idle: float) -> bytes:
        """Server 2's answer to one call."""
        limits = {"timeout": timeout, "idle": idle}
        identity, peer = self.identity, self.peer
        return ask(self.address, method, messages, identity=identity, peer=peer, **limits)


@dataclass(frozen=True, slots=True)
class Question:
    """A query result and the name under which it is released; ``source`` describes the noise.

    ``peer_sigma`` is the scale of the noise that server 2 must add, ``bound`` the bound that it
    must have; None accepts server 2's. The bound fixes the lattice's step g, and rounding to it
    adds up to g·√d to the query's sensitivity (at most 2^-10·σ·√d): set the bound if you do not
    trust server 2's.
    """

    values: npt.NDArray[np.floating]
    release: str
    sigma: float
    peer_sigma: float
    round: int = 0
    source: str = "secure-gaussian"
    bound: float | None = None

    @property
    def name(self) -> str:
        """The release with its round."""
        return f"{self.release}@{self.round}"

    def __repr__(self) -> str:
        return f"Question(release={self.release!r}, round={self.round})"  # never the values


class AnswerSide:
    """Server 1's side of its releases, and its journal of them.

    A release is *drawn* once its seed and everything else that the noisy answer depends on are
    durable; *sent* once the whole noisy answer has been made and its digest is durable, before the
    last frame goes out, without which server 2 can do nothing with the others; *published* once
    server 2's receipt is durable, and the seed is erased. A restarted process makes the same noisy
    answer from the same seed, byte for byte, or refuses.

    The journal keeps a SHA-256 of every query, to detect another one under the same name. It
    confirms a guess of the query, so protect the folder as you protect the query.
    """

    def __init__(
        self, *, journal: Path, log: Log, draw: MakeDraw | None = None, threads: int = 2
    ) -> None:
        """Open the journal; ``draw(step, stream)`` makes the noise, by default discrete Gaussian.

        The default is exact. ``draw`` must give the same numbers for the same stream.

        Raises:
            UsageError: the journal cannot be used.
        """
        self._journal = Journal(journal / "answer.sqlite", kind="two-servers-answer")
        self._seeds, self._log, self._draw, self._threads = Seeds(journal), log, draw, threads
        for name in self._seeds.names():  # of a process killed before it erased them
            if self._journal.state(name) == PUBLISHED:
                self._seeds.erase(name)

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def release(
        self,
        question: Question,
        contact: Contact,
        *,
        patience: float = 60.0,
        timeout: float = 600.0,
        seed: bytes | None = None,
    ) -> PublicationReceipt:
        """Release ``question`` through server 2, or resume that; return server 2's receipt.

        ``patience`` is how many seconds to keep trying to reach server 2, ``timeout`` how long one
        try may take. ``seed`` (32 bytes) replaces a fresh one; it is for rehearsals.

        Raises:
            PeerError: server 2 could not be reached in that time; the same call resumes later.
            MessageError: server 2 has another release under this name, or its answer is no receipt.
            UsageError: a name that this journal has for another release, an invalid question, one
                that server 2's terms do not allow, or one that cannot be finished.
        """
        check_release(question.release, question.round)
        check_values(question.values)
        if not (question.sigma > 0 and math.isfinite(question.sigma)):
            raise UsageError(f"sigma={question.sigma}: must be a finite number > 0")
        if not 0 <= patience < _MOST_PATIENCE:
            raise UsageError(f"patience={patience:g}: 0 to {_MOST_PATIENCE:g} seconds")
        end = time.monotonic() + patience
        self._begin(question, contact, end, seed)
        name = question.name
        if self._journal.state(name) != PUBLISHED:
            stream, facts = self._seeds.read(name), self._journal.facts(name)
            offer = Offer(
                release=question.release,
                round=question.round,
                **{fact: facts[fact] for fact in ("sigma", "dim", "bound", "noise_sigma")},
            )
            receipt = self._patiently(
                contact, end, lambda: self._send(offer, question, stream, contact, timeout)
            )
            self._settle(name, receipt)
            self._log("published", peer=contact.peer, method=PUBLISH, release=name)
        self._seeds.erase(name)
        facts = self._journal.facts(name)
        payload, published = bytes.fromhex(facts["payload"]), bytes.fromhex(facts["published"])
        return PublicationReceipt(
            release=question.release, round=question.round, payload=payload, published=published
        )

    def _begin(self, question: Question, contact: Contact, end: float, seed: bytes | None) -> None:
        """Make the release *drawn*, or check that it is the one begun under this name."""
        own = {
            "sigma": question.sigma,
            "noise_sigma": question.peer_sigma,
            "dim": int(question.values.size),
            "source": question.source,
            "query": hashlib.sha256(question.values.data.cast("B")).hexdigest(),
            "dtype": question.values.dtype.name,
            "peer": contact.peer,
            "made_by": version("dpaudit"),
        }
        if self._journal.state(question.name) is None:
            terms = self._patiently(contact, end, lambda: self._terms(contact))
            _check_terms(question, terms)
            self._seeds.make(question.name, seed)
            self._journal.advance(question.name, None, DRAWN, **own, bound=terms.bound)
        facts = self._journal.facts(question.name)
        changed = [fact for fact, value in own.items() if facts[fact] != value]
        if question.bound not in (None, facts["bound"]):
            changed.append("bound")
        if changed:
            raise UsageError(
                f"release={question.name}: begun with another {' and '.join(changed)}; "
                "a name is for one release, take a new one"
            )

    def _terms(self, contact: Contact) -> ReleaseTerms:
        return unpack(contact.ask(TERMS, [], timeout=10.0, idle=10.0), ReleaseTerms)

    def _send(
        self, offer: Offer, question: Question, stream: Stream, contact: Contact, timeout: float
    ) -> PublicationReceipt:
        messages = self._messages(offer, question, stream)
        answer = contact.ask(PUBLISH, messages, timeout=timeout, idle=_IDLE)
        return unpack(answer, PublicationReceipt)

    def _messages(self, offer: Offer, question: Question, stream: Stream) -> Iterator[bytes]:
        """The offer, then the noisy answer's frames, each chunk drawn while earlier ones travel."""
        step = granularity(offer.bound, sigma=min(offer.sigma, offer.noise_sigma))
        most = most_steps(offer.bound, step=step)
        draw = (
            self._draw(step, stream)
            if self._draw
            else secure_draw(sigma=offer.sigma, step=step, stream=stream)
        )
        steps = np.empty(offer.dim, "<i4")

        def fill(at: int, count: int) -> int:
            part = slice(at, at + count)
            return int(add_query(draw(at, count), question.values[part], 1 / step, steps[part]))

        # it reads a chunk when its frame is asked for
        frames = vector_frames(VECTOR, steps, session=offer.session, chunk=CHUNK)
        yield pack(offer)
        yield next(frames)
        for _, _, largest in ahead(fill, offer.dim, threads=self._threads):
            if largest > most:
                raise UsageError(
                    f"source={question.source}: noise beyond the bound; raise the bound"
                )
            yield next(frames)
        last = next(frames)
        self._note_sent(offer.name, last[-32:].hex())
        yield last

    def _note_sent(self, name: str, payload: str) -> None:
        if self._journal.state(name) == DRAWN:
            self._journal.advance(name, DRAWN, SENT, payload=payload)
        elif self._journal.facts(name)["payload"] != payload:
            raise UsageError(
                f"release={name}: the noisy answer differs from the first one, so it is not sent "
                "again; finish it with the dpaudit, noise source and machine that began it"
            )

    def _settle(self, name: str, receipt: PublicationReceipt) -> None:
        facts = self._journal.facts(name)
        sent = name, facts.get("payload")
        if (f"{receipt.release}@{receipt.round}", receipt.payload.hex()) != sent:
            raise MessageError(f"release {name}: the receipt is not for what was sent")
        self._journal.advance(name, SENT, PUBLISHED, published=receipt.published.hex())

    def _patiently(self, contact: Contact, end: float, work: Callable[[], Any]) -> Any:
        """``work()``, retried with growing pauses while server 2 does not respond."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return work()
            except PeerError as error:
                if time.monotonic() + pause > end:
                    raise
                self._log("waiting", peer=contact.peer, reason=str(error))
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def check_values(values: npt.NDArray[np.floating]) -> None:
    """Refuse an invalid query result.

    Raises:
        UsageError: not a vector of float32 or float64, or a value that is not finite.
    """
    if values.ndim != 1 or not values.size or values.dtype.name not in ("float32", "float64"):
        raise UsageError(f"query: {values.dtype} {values.shape}, must be a float32/64 vector")
    if not np.isfinite(values).all():
        raise UsageError("query: contains NaN or infinity; noise cannot protect that")


def _check_terms(question: Question, terms: ReleaseTerms) -> None:
    if terms.dim != question.values.size:
        raise UsageError(
            f"query: has {question.values.size} values, server 2 publishes {terms.dim}; start it "
            f"with --dim {question.values.size}, or give the other query"
        )
    if terms.sigma != question.peer_sigma:
        raise UsageError(
            f"peer_sigma={question.peer_sigma}: server 2 adds noise of scale {terms.sigma}; agree "
            f"on one, or set --peer-sigma {terms.sigma} if that is meant"
        )
    if question.bound not in (None, terms.bound):
        raise UsageError(f"bound={question.bound}: server 2's is {terms.bound}; agree on one")
    granularity(terms.bound, sigma=min(question.sigma, terms.sigma))
    room = terms.bound - REACH * question.sigma
    if not (-room <= question.values.min() and question.values.max() <= room):
        raise UsageError(
            f"query: a value is beyond the bound {terms.bound} less {REACH}·sigma of room for "
            f"noise, {room:g}; clip the query to public limits, or agree on a larger bound"
        )
