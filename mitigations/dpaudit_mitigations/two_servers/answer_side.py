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
from functools import partial
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
from dpaudit_mitigations.transport.connection import Log, ask, follow
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

__all__ = ["Answer", "AnswerSide", "Contact", "Question", "Seeds"]


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


class Answer:
    """One release at server 1, as a state machine without sockets; its memory is the journal.

    :attr:`stage` names the call that the message just returned is for: ``terms``, then ``publish``,
    whose message is an offer and the noisy answer's frames (made anew each time it is iterated, for
    a retry). Interrupted, refused or killed, it is over; another one for the same question resumes.
    """

    def __init__(
        self, question: Question, *, side: AnswerSide, peer: str, seed: bytes | None = None
    ) -> None:
        """Answer ``question`` for ``side``, to server 2, whose certificate names it ``peer``.

        Raises:
            UsageError: an invalid question.
        """
        check_release(question.release, question.round)
        check_values(question.values)
        if not (question.sigma > 0 and math.isfinite(question.sigma)):
            raise UsageError(f"sigma={question.sigma}: must be a finite number > 0")
        self.stage = "new"
        self._question, self._side, self._seed = question, side, seed
        self._journal, self._seeds, self._name = side.journal, side.seeds, question.name
        self._facts = {
            "sigma": question.sigma,
            "noise_sigma": question.peer_sigma,
            "dim": int(question.values.size),
            "source": question.source,
            "query": hashlib.sha256(question.values.data.cast("B")).hexdigest(),
            "dtype": question.values.dtype.name,
            "peer": peer,
            "made_by": version("dpaudit"),
        }

    @property
    def done(self) -> bool:
        """Whether it is over, published (there is a receipt) or not."""
        return self.stage == "done"

    def step(self, message: bytes | None) -> Iterable[bytes] | None:
        """Ask for server 2's terms, if the journal has none; then offer and answer; then settle.

        None at once if the release is published.

        Raises:
            MessageError: server 2's message is not its terms, or no receipt for what was sent.
            UsageError: a name that the journal has for another release, a question that server 2's
                terms do not allow, or a release that cannot be finished.
        """
        stage, self.stage = self.stage, "done"  # unless this step succeeds
        if stage == "done" or (message is None) != (stage == "new"):
            raise MessageError(f"release {self._name}: step out of order, or after the end")
        data: Any = message
        if stage == PUBLISH:
            self._settle(unpack(data, PublicationReceipt))
        elif stage == TERMS:
            self._begin(unpack(data, ReleaseTerms))
        elif self._journal.state(self._name) is None:
            self.stage = TERMS
            return ()
        self._check_facts()
        if self._journal.state(self._name) == PUBLISHED:
            self._seeds.erase(self._name)
            return None
        self.stage = PUBLISH
        return _Messages(partial(self._messages, self._seeds.read(self._name)))

    @property
    def receipt(self) -> PublicationReceipt:
        """Server 2's receipt, from the journal; only of a published release."""
        facts = self._journal.facts(self._name)
        payload, published = bytes.fromhex(facts["payload"]), bytes.fromhex(facts["published"])
        release, number = self._question.release, self._question.round
        return PublicationReceipt(
            release=release, round=number, payload=payload, published=published
        )

    def _begin(self, terms: ReleaseTerms) -> None:
        """Make the release *drawn*."""
        _check_terms(self._question, terms)
        self._seeds.make(self._name, self._seed)
        self._journal.advance(self._name, None, DRAWN, **self._facts, bound=terms.bound)

    def _check_facts(self) -> None:
        """Check that the release begun under this name is this one."""
        facts = self._journal.facts(self._name)
        changed = [fact for fact, value in self._facts.items() if facts[fact] != value]
        if self._question.bound not in (None, facts["bound"]):
            changed.append("bound")
        if changed:
            raise UsageError(
                f"release={self._name}: begun with another {' and '.join(changed)}; "
                "a name is for one release, take a new one"
            )

    def _messages(self, stream: Stream) -> Iterator[bytes]:
        """The offer, then the noisy answer's frames, each chunk drawn while earlier ones travel."""
        question, facts = self._question, self._journal.facts(self._name)
        agreed = {fact: facts[fact] for fact in ("sigma", "dim", "bound", "noise_sigma")}
        offer = Offer(release=question.release, round=question.round, **agreed)
        step = granularity(offer.bound, sigma=min(offer.sigma, offer.noise_sigma))
        most = most_steps(offer.bound, step=step)
        draw = (
            self._side.draw(step, stream)
            if self._side.draw
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
        for _, _, largest in ahead(fill, offer.dim, threads=self._side.threads):
            if largest > most:
                raise UsageError(
                    f"source={question.source}: noise beyond the bound; raise the bound"
                )
            yield next(frames)
        last = next(frames)
        self._note_sent(last[-32:].hex())
        yield last

    def _note_sent(self, payload: str) -> None:
        if self._journal.state(self._name) == DRAWN:
            self._journal.advance(self._name, DRAWN, SENT, payload=payload)
        elif self._journal.facts(self._name)["payload"] != payload:
            raise UsageError(
                f"release={self._name}: the noisy answer differs from the first one, so it is not "
                "sent again; finish it with the dpaudit, noise source and machine that began it"
            )

    def _settle(self, receipt: PublicationReceipt) -> None:
        sent = self._name, self._journal.facts(self._name).get("payload")
        if (f"{receipt.release}@{receipt.round}", receipt.payload.hex()) != sent:
            raise MessageError(f"release {self._name}: the receipt is not for what was sent")
        published = receipt.published.hex()
        self._journal.advance(self._name, SENT, PUBLISHED, published=published)


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages that can be made anew."""

    make: Callable[[], Iterator[bytes]]

    def __iter__(self) -> Iterator[bytes]:
        return self.make()


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
        self.journal = Journal(journal / "answer.sqlite", kind="two-servers-answer")
        self.seeds, self.draw, self.threads, self._log = Seeds(journal), draw, threads, log
        for name in self.seeds.names():  # of a process killed before it erased them
            if self.journal.state(name) == PUBLISHED:
                self.seeds.erase(name)

    def close(self) -> None:
        """Close the journal."""
        self.journal.close()

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
            MessageError: server 2 has another release under this name, or sent no receipt.
            UsageError: a name that this journal has for another release, an invalid question, one
                that server 2's terms do not allow, or one that cannot be finished.
        """
        party = Answer(question, side=self, peer=contact.peer, seed=seed)
        if not 0 <= patience < _MOST_PATIENCE:
            raise UsageError(f"patience={patience:g}: 0 to {_MOST_PATIENCE:g} seconds")
        end = time.monotonic() + patience
        limits = {TERMS: (10.0, 10.0), PUBLISH: (timeout, _IDLE)}

        def ask(method: str, messages: Iterable[bytes]) -> bytes:
            seconds, idle = limits[method]
            return self._retry(
                contact, end, lambda: contact.ask(method, messages, timeout=seconds, idle=idle)
            )

        if PUBLISH in follow(party, ask):
            self._log("published", peer=contact.peer, method=PUBLISH, release=question.name)
        return party.receipt

    def _retry(self, contact: Contact, end: float, work: Callable[[], bytes]) -> bytes:
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
