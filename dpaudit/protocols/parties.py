"""Who takes part: parties of a protocol, devices under local DP, and who decides on a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dpaudit.protocols.noise import Stream

__all__ = [
    "BatchCoins",
    "BatchDraw",
    "Hub",
    "LocalMechanism",
    "Message",
    "Party",
    "SubmissionPolicy",
]

Message: TypeAlias = "bytes | npt.NDArray[Any] | Iterable[bytes]"
"""What a party may send: bytes, a vector, or frames; it receives bytes alone."""


@runtime_checkable
class Party(Protocol):
    """A side of a protocol with one other: a state machine, message in, message out, no I/O.

    Whoever drives it carries the messages (over sockets, in one process, in a test) and has the
    clock. A refusal is final: nothing can be tried again on the same party.
    """

    @property
    def done(self) -> bool:
        """Whether nothing more is to come."""

    def step(self, message: bytes | None) -> Message | None:
        """Take the other side's next message (None: begin); the answer, None if there is none.

        Raises:
            ProtocolError: a message refused, or a step out of order.
        """


@runtime_checkable
class Hub(Protocol):
    """The side of a protocol that several parties talk to, in stages; a state machine like them.

    A refused message changes no state: the round continues without its sender, or with its next.
    """

    @property
    def done(self) -> bool:
        """Whether nothing more is to come."""

    @property
    def expected(self) -> Sequence[str]:
        """The parties whose message of this stage is still due, by name."""

    def step(self, inbox: Mapping[str, Message]) -> Mapping[str, bytes]:
        """Take messages by sender; an empty inbox closes the stage: its answers by recipient.

        Who drives it closes a stage when nobody is expected any more, or when time is up.

        Raises:
            ProtocolError: a message refused; or, as a stage closes, too few messages: the end.
        """


@runtime_checkable
class LocalMechanism(Protocol):
    """Privatises objects, whole numbers from 0, on their owners' devices: one report per object."""

    @property
    def epsilon(self) -> float:
        """The exact ε of one report: the largest log ratio of probabilities between two objects."""

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> Any:
        """Independent reports of objects (n,), a shape of ``dpaudit_local.mechanisms.reports``."""

    def log_likelihood(
        self, reports: Any, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), shape (n, u), up to a constant of each report."""


@runtime_checkable
class SubmissionPolicy(Protocol):
    """What a device submits of its owner's objects: all, a few, the same again, unlinkably."""

    trusts: str
    """Who must be trusted for what, in one line."""
    linked: bool
    """Whether the server can tell which submissions are one person's."""

    def submit(
        self, objects: npt.NDArray[np.int64], mechanism: LocalMechanism, *, stream: Stream
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """Everybody's submissions for ``objects`` (users, n), in time order, and whose row each is.

        Where not ``linked`` the order of reports carries no information, and the second array is
        for the experiment alone.
        """

    def epsilon(
        self, mechanism: LocalMechanism, *, objects: int, users: int, delta: float
    ) -> float:
        """An upper bound on one person's ε at ``delta`` towards the server.

        ``objects`` is the number of objects of each of ``users`` people.
        """


@runtime_checkable
class BatchCoins(Protocol):
    """One party's coins: ``dpaudit.numeric.random_words`` makes a batch of them."""

    def share(self) -> bytes:
        """32 secret bytes that make the coins of the next batch; another 32 at each call."""


@runtime_checkable
class BatchDraw(Protocol):
    """Makes a Poisson batch of the coins of one party or more."""

    trusts: str
    """Who must be trusted for what, in one line."""
    parties: int
    """How many parties' coins it takes."""

    def draw(
        self, coins: Sequence[BatchCoins], records: int, *, rate: float
    ) -> npt.NDArray[np.bool_]:
        """Who of ``records`` is in the next batch, each with probability ``rate``: (records,)."""

    def known(self, rate: float) -> float:
        """The chance of a coin that the owner of the first party's coins knows of each record.

        A record is in the batch if that coin and one of chance ``rate/known``, which stays hidden,
        both say so: ``rate`` if the whole batch is known, 1 if nothing of it is.
        """
