"""Server 2: takes noisy answers, adds noise of its own, and publishes each release exactly once.

A publication is a whole file or none, written once: private, made durable, then linked.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dpaudit.errors import MessageError, PeerError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.results.files import clear_leftovers, sync_folder
from dpaudit_mitigations.codec import pack, unpack
from dpaudit_mitigations.transport.connection import Log
from dpaudit_mitigations.transport.journal import Journal, durable_write, file_digest, npy_header
from dpaudit_mitigations.transport.server import Handler
from dpaudit_mitigations.transport.vectors import MOST_VALUES, VectorReader
from dpaudit_mitigations.two_servers.agreement import (
    CHUNK,
    PUBLISH,
    TERMS,
    VECTOR,
    Draw,
    Offer,
    PublicationReceipt,
    ReleaseTerms,
    add_steps,
    ahead,
    granularity,
    most_steps,
    secure_draw,
)

__all__ = ["NoiseSide", "Publications"]

_DRAFT = re.compile(r".+@[0-9]+\.[0-9a-f]{16}")


class Publications:
    """A folder of published vectors ``NAME.npy``, with drafts in its ``.drafts``, mode 0700.

    A draft must stay private: it holds noise that a later attempt would draw anew, and the mean of
    the two has less.
    """

    def __init__(self, folder: Path) -> None:
        """Make missing folders, lock out other processes, and check that files can be published.

        Raises:
            UsageError: they cannot be made or written, have no hard links, are another user's, or
                in use by another process.
        """
        self._folder, self._drafts = folder, folder / ".drafts"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._drafts.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(
                self._drafts, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except OSError as error:
            raise UsageError(f"publish={folder}: cannot be written ({error.strerror})") from error
        try:
            self._take()
        except BaseException:
            self.close()
            raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"publish={self._folder}: another process publishes there") from error
        if os.fstat(self._lock).st_uid != os.geteuid():
            raise UsageError(f"publish={self._folder}: its .drafts is another user's")
        trial, public = self._drafts / "trial", self._folder / ".trial"
        try:
            os.fchmod(self._lock, 0o700)
            for path in (trial, public):
                path.unlink(missing_ok=True)
            trial.touch()
            os.link(trial, public)
            for path in (trial, public):
                path.unlink()
        except OSError as error:
            raise UsageError(
                f"publish={self._folder}: nothing can be published there ({error.strerror}); "
                "choose a local folder that this user can write to"
            ) from error

    def path(self, name: str) -> Path:
        """Where ``name`` is published."""
        return self._folder / f"{name}.npy"

    def draft(self, name: str, parts: Iterable[Any]) -> tuple[str, bytes]:
        """Write a durable draft of these buffers, or none; its own name, and its SHA-256."""
        draft, digest = f"{name}.{secrets.token_hex(8)}", hashlib.sha256()

        def hashed() -> Iterator[Any]:
            for part in parts:
                digest.update(part)
                yield part

        durable_write(self._drafts / draft, hashed())
        return draft, digest.digest()

    def publish(self, name: str, draft: str, digest: bytes, *, just_written: bool = False) -> None:
        """Give the durable draft its public name; idempotent. :meth:`discard` deletes the draft.

        Raises:
            MessageError: neither draft nor publication has this digest, or the name is
                another publication's.
        """
        target, source = self.path(name), self._drafts / draft
        if not just_written and not target.exists() and file_digest(source) != digest:
            raise MessageError(f"release {name}: its draft is missing or damaged; not drawn again")
        try:
            os.link(source, target)  # never over another file, unlike a rename
        except (FileExistsError, FileNotFoundError) as error:
            if file_digest(target) != digest:
                raise MessageError(f"release {name}: {target.name} has other content") from error
        sync_folder(self._folder)

    def is_published(self, name: str) -> bool:
        """Whether that public name exists, even as a dangling link."""
        return os.path.lexists(self.path(name))

    def discard(self, draft: str) -> None:
        """Delete a draft that is no longer needed."""
        (self._drafts / draft).unlink(missing_ok=True)

    def discard_others(self, keep: set[str]) -> None:
        """Delete the drafts that killed processes left, except ``keep``; spare other files."""
        clear_leftovers(self._drafts)
        for path in self._drafts.iterdir():
            if path.name not in keep and _DRAFT.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process publish here. May be called repeatedly."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


RECEIVING, NOISED, PUBLISHED = "receiving", "noised", "published"

_BUSY = 5.0  # seconds to wait for an earlier call about the same release (its peer may have died)


class NoiseSide:
    """The handlers of server 2, and its state.

    A release is *receiving* from its first offer on, which fixes its sender and every number that
    it depends on; *noised* once the whole noisy answer has arrived and the sum with our noise is a
    durable private draft; *published* once that draft has its public name. Noise is drawn once per
    call and leaves this process only in the draft: an interrupted call's noise is deleted with its
    draft. A release that the journal has as noised or published is never drawn for again.
    """

    def __init__(
        self,
        *,
        terms: ReleaseTerms,
        peer: str,
        journal: Path,
        publish: Path,
        log: Log,
        dtype: str = "float32",
        draw: Callable[[float], Draw] | None = None,
    ) -> None:
        """Open the journal and finish what an earlier process left noised.

        ``draw(step)`` gives the noise for a call; without it, exact discrete Gaussian noise from a
        fresh CSPRNG. ``dtype`` is the published files'; float32 is the sum rounded. A release whose
        durable draft is missing is logged as failed and stays so: it is not drawn again.

        Raises:
            UsageError: terms that no lattice or no ``dtype`` fits, a dtype other than float32 and
                float64, or folders that cannot be used or are in use by another process.
        """
        if not 1 <= terms.dim <= MOST_VALUES:
            raise UsageError(f"dim={terms.dim}: a release has 1 to {MOST_VALUES:,} values")
        if dtype not in ("float32", "float64"):
            raise UsageError(f"dtype={dtype}: takes float32 or float64")
        self._terms, self._peer, self._log, self._dtype = terms, peer, log, dtype
        self._step = granularity(terms.bound, sigma=terms.sigma)
        if 4 * terms.bound > float(np.finfo(dtype).max):
            raise UsageError(f"bound={terms.bound}: too large for {dtype}; change the query's unit")
        if terms.sigma < float(np.finfo(dtype).smallest_normal):
            raise UsageError(f"sigma={terms.sigma}: too small for {dtype}; change the query's unit")
        self._draw = draw or self._fresh
        self._journal = Journal(journal / "noise.sqlite", kind="two-servers-noise")
        try:
            self._publications = Publications(publish)
        except UsageError:
            self._journal.close()
            raise
        self._guard, self._active = threading.Condition(), set[str]()
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    @property
    def handlers(self) -> dict[str, Handler]:
        """By method, for ``transport.server.serve``."""
        return {TERMS: self.answer_terms, PUBLISH: self.publish}

    def close(self) -> None:
        """Close the journal and the folder."""
        self._journal.close()
        self._publications.close()

    def _recover(self) -> None:
        for name in self._journal.releases(NOISED):
            try:
                self._finish(name)
                self._log("published", release=name, reason="finished after a restart")
            except MessageError as error:
                self._log("failed", release=name, reason=str(error))
            except OSError as error:
                self._log(
                    "failed", release=name, reason=f"cannot be published now ({error.strerror})"
                )
        self._publications.discard_others(
            {self._journal.facts(name)["draft"] for name in self._journal.releases(NOISED)}
        )

    def answer_terms(self, peer: str, request: Iterator[bytes]) -> Iterator[bytes]:
        """What this server publishes; asks for nothing."""
        if next(request, None) is not None:
            raise MessageError(f"terms: {peer} sent a message where none is expected")
        yield pack(self._terms)

    def publish(self, peer: str, request: Iterator[bytes]) -> Iterator[bytes]:
        """Take an offer and the frames of a noisy answer; give a receipt once it is published.

        Raises:
            MessageError: anything but the frames of one vector under these terms, or a name used
                for something else.
            PeerError: another party than the one that answers, a timeout, another call about the
                same release, or a full disk: nothing is lost, and the log has the reason.
        """
        if peer != self._peer:
            raise PeerError(f"{peer} is not the answering party, {self._peer}")
        first = next(request, None)
        if first is None:
            raise MessageError("message offer: cut short: nothing came")
        offer = unpack(first, Offer)
        if offer.terms != self._terms:
            raise MessageError(f"release {offer.name}: offered under another dim, bound or sigma")
        with self._exclusive(offer.name), self._report_disk_faults(offer.name, peer):
            state = self._pin(offer, peer)
            if state == RECEIVING:
                self._take(offer, request)
            elif self._digest(offer, request).hex() != self._journal.facts(offer.name)["payload"]:
                raise MessageError(f"release {offer.name}: replayed with another noisy answer")
            facts = self._finish(offer.name, just_written=state == RECEIVING)
        if state != PUBLISHED:
            self._log("published", peer=peer, method=PUBLISH, release=offer.name)
        payload, published = bytes.fromhex(facts["payload"]), bytes.fromhex(facts["published"])
        yield pack(
            PublicationReceipt(
                release=offer.release, round=offer.round, payload=payload, published=published
            )
        )

    def _pin(self, offer: Offer, peer: str) -> str:
        """The release's state, *receiving* if it is new; no fact may have changed."""
        facts = {**offer.facts(), "peer": peer}
        state = self._journal.state(offer.name)
        if state is None:
            if self._publications.is_published(offer.name):
                raise MessageError(f"release {offer.name}: published, but not in this journal")
            self._journal.advance(offer.name, None, RECEIVING, **facts)
            return RECEIVING
        earlier = self._journal.facts(offer.name)
        changed = [name for name, value in facts.items() if earlier[name] != value]
        if changed:
            raise MessageError(f"release {offer.name}: replayed with other {' and '.join(changed)}")
        return state

    def _take(self, offer: Offer, request: Iterator[bytes]) -> None:
        """Add our noise to each received chunk in a draft; make it durable, then note it."""
        reader = self._reader(offer)

        def parts() -> Iterator[Any]:
            yield npy_header(offer.dim, self._dtype)
            values = np.empty(min(CHUNK, offer.dim), self._dtype)
            noises = ahead(self._draw(self._step), offer.dim)
            for (_, count, noise), steps in zip(noises, reader.parts(request), strict=True):
                add_steps(noise, steps, self._step, values[:count])
                yield values[:count]
            _nothing_more(offer, request)

        draft, published = self._publications.draft(offer.name, parts())
        facts = {"payload": reader.digest.hex(), "published": published.hex(), "draft": draft}
        try:
            self._journal.advance(offer.name, RECEIVING, NOISED, **facts)
        except BaseException:
            self._publications.discard(draft)
            raise

    def _digest(self, offer: Offer, request: Iterator[bytes]) -> bytes:
        """The digest of a vector whose values are not needed."""
        reader = self._reader(offer)
        for _ in reader.parts(request):
            pass
        _nothing_more(offer, request)
        return reader.digest

    def _reader(self, offer: Offer) -> VectorReader:
        return VectorReader(
            kind=VECTOR,
            session=offer.session,
            count=offer.dim,
            chunk=CHUNK,
            dtype="int32",
            bound=most_steps(offer.bound, step=self._step),
            keep=False,
        )

    def _finish(self, name: str, *, just_written: bool = False) -> dict[str, str]:
        facts = self._journal.facts(name)
        if self._journal.state(name) == NOISED:
            self._publications.publish(
                name, facts["draft"], bytes.fromhex(facts["published"]), just_written=just_written
            )
            self._journal.advance(name, NOISED, PUBLISHED)
            self._publications.discard(facts["draft"])
        return facts

    def _fresh(self, step: float) -> Draw:
        return secure_draw(sigma=self._terms.sigma, step=step, stream=KeyedStream.fresh())

    @contextmanager
    def _report_disk_faults(self, name: str, peer: str) -> Iterator[None]:
        """Log our own disk's faults with the reason; tell the peer of a fault: it may retry."""
        try:
            yield
        except (OSError, UsageError) as error:
            reason = (
                f"cannot be written ({error.strerror})"
                if isinstance(error, OSError)
                else str(error)
            )
            self._log("failed", peer=peer, method=PUBLISH, release=name, reason=reason)
            raise PeerError(f"release {name}: not finished now; see its log") from error

    @contextmanager
    def _exclusive(self, name: str) -> Iterator[None]:
        """Allow one call per release at a time."""
        with self._guard:
            if not self._guard.wait_for(lambda: name not in self._active, timeout=_BUSY):
                raise PeerError(f"release {name}: another call about it is running; try again")
            self._active.add(name)
        try:
            yield
        finally:
            with self._guard:
                self._active.discard(name)
                self._guard.notify_all()


def _nothing_more(offer: Offer, request: Iterator[bytes]) -> None:
    if next(request, None) is not None:
        raise MessageError(f"release {offer.name}: a message after the last frame")
