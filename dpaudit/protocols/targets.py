"""Third-party noise and mechanisms, as audits see them: ``dpaudit.targets``.

A target is opened to a session, and a session is asked: one :class:`Request`, one :class:`Reply`,
for noise, releases of a query result and releases of a data set alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from dpaudit.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "Dataset",
    "Facts",
    "Kind",
    "Preparing",
    "Repeatable",
    "Reply",
    "Request",
    "Session",
    "Target",
]

Kind = Literal[
    "noise",
    "noise in calls",
    "noise for a value",
    "noise over a fork",
    "releases",
    "releases in calls",
    "releases of a data set",
]
"""What can be asked for; a target says which kinds it answers (:attr:`Facts.accepts`)."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set of whatever form, as the input of a request."""

    records: Any


@dataclass(frozen=True, slots=True)
class Request:
    """Ask for ``n`` independent vectors of noise, or ``n`` independent releases.

    ``input`` says of what: None is noise, vectors of ``dim`` numbers; a number is noise made for
    this value, what was released less the value; an array (m,) is releases of this query result;
    a :class:`Dataset` is releases of it, of whatever form. With ``calls`` so many calls of ``n``
    are made in sequence, and each is timed. ``forked`` noise is drawn in a fork of the target's
    process, then in itself.

    Raises:
        UsageError: ``n``, ``dim`` or ``calls`` below 1, a value that is not finite, or calls of
            what cannot be timed.
    """

    n: int
    dim: int = 1
    input: float | npt.NDArray[np.float64] | Dataset | None = None
    calls: int | None = None
    forked: bool = False

    def __post_init__(self) -> None:
        for name, number in (("n", self.n), ("dim", self.dim), ("calls", self.calls)):
            if number is not None and number < 1:
                raise UsageError(
                    f"{name}={number}: a request has at least one call, row and column; "
                    "ask for 1 or more"
                )
        if isinstance(self.input, Real) and not math.isfinite(self.input):
            raise UsageError(f"value={self.input}: noise is added to a finite number; choose one")
        if self.calls is not None and self.kind not in ("noise in calls", "releases in calls"):
            raise UsageError(f"calls={self.calls}: {self.kind} cannot be timed; leave calls out")
        if self.kind == "releases in calls" and self.n != 1:
            raise UsageError(f"n={self.n}: a timed call makes one release; ask for n=1")

    @property
    def kind(self) -> Kind:
        """What it asks for."""
        if isinstance(self.input, Dataset):
            return "releases of a data set"
        if isinstance(self.input, Real):
            return "noise for a value"
        if self.input is not None:
            return "releases" if self.calls is None else "releases in calls"
        if self.forked:
            return "noise over a fork"
        return "noise" if self.calls is None else "noise in calls"

    @property
    def rows(self) -> int:
        """How many vectors or releases are asked for, over all calls."""
        return self.n * (self.calls or 1)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a session answers.

    ``values`` is a finite float64 array, shape (n·calls, dim) of noise and (n·calls, k) of releases
    of a query result. Forked noise is (2·n, dim), the fork's rows first, or (0, dim) if the fork
    gave none. Releases of a data set are plain (:func:`dpaudit.targets.plain.plain`): an array
    (n, …), whose numbers may be infinite, or a list. ``seconds`` (calls,) has the time of each call
    of a request with ``calls``; otherwise it is None.
    """

    values: Any
    seconds: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a target: which kinds of request it ``accepts``, and what it says of itself.

    ``dim`` is the only dimension it can serve, or None; ``available`` how many rows it holds (a
    recording: at each neighbour, at least), or None if unlimited; ``claim`` the law of its noise,
    as a claim; ``instead`` the options of ``dpaudit mechanism`` that audit noise without a law.
    ``neighbours`` are the two query results (m,) that releases were recorded at, of length 0 if
    they are not known; None of anything but a recording. ``version`` is the installed version of
    what is called, and ``advice`` what to know of it.
    """

    accepts: Collection[Kind]
    dim: int | None = None
    available: int | None = None
    claim: str | None = None
    instead: str | None = None
    neighbours: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
    version: str | None = None
    advice: str = ""


@runtime_checkable
class Session(Protocol):
    """A target that is open."""

    @property
    def name(self) -> str:
        """What the user called the target."""

    @property
    def facts(self) -> Facts:
        """What is known of it; waits until it has started, for as long as ``open`` was told.

        Raises:
            UsageError: what it should call cannot be found or imported.
            SamplerError: it died, or had not started in time.
        """

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """Answer a request of one of the accepted kinds, within ``timeout`` seconds in all.

        Raises:
            UsageError: it is of another kind, or the target refuses it.
            SamplerError: it died, did not respond within ``timeout`` seconds, or answered with
                something else.
        """


@runtime_checkable
class Target(Protocol):
    """Third-party noise, or a third-party mechanism, that can be opened."""

    @property
    def name(self) -> str:
        """What the user called it."""

    @property
    def facts(self) -> Facts:
        """What is known of it before it starts; its session may know more."""

    def open(self, *, timeout: float) -> AbstractContextManager[Session]:
        """Start it; the session ends with the ``with`` block.

        ``timeout`` is how many seconds its start may take, once something waits for that.
        """


@runtime_checkable
class Repeatable(Protocol):
    """A session whose target can be opened a second time."""

    def again(self) -> Target:
        """The same target, for a process of its own."""


@runtime_checkable
class Preparing(Repeatable, Protocol):
    """A repeatable session whose further processes have seeds that the auditor chose.

    They can be started ahead of time: that changes no number.
    """

    def prepare(self, others: int) -> None:
        """Start the processes of the next ``others`` calls of ``again`` now."""
