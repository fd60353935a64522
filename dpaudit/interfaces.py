"""The small shapes a plug-in can have. Protocols, not base classes: nothing to inherit, nothing to register.

A *noise source* makes noise, a *host* turns data into neighbouring query results, a *mitigation* stands between a
source and a release, an *attack* maps releases and candidates to scores, a *closed sampler* is somebody else's noise,
a *test* maps its blocks to evidence, a *run logger* tells another tool of a run. ``dpaudit.testing`` has a conformance
check for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from dpaudit.types import CellFailure, CellResult, EpsilonBounds, Evidence, Rehearsal, RunStart

__all__ = [
    "Attack",
    "Block",
    "ClosedSampler",
    "GameAttack",
    "Host",
    "LearningAttack",
    "LocalMechanism",
    "Mechanism",
    "Mitigation",
    "NoiseSource",
    "ProbingAttack",
    "ProtocolMitigation",
    "ReleasingSource",
    "RepeatableSampler",
    "RunLogger",
    "SearchingTest",
    "StartedSampler",
    "Stream",
    "SubmissionPolicy",
    "SupportAttack",
    "Test",
    "TimedMechanism",
    "ValueSampler",
]


class Stream(Protocol):
    """Keyed randomness: the same key and labels give the same numbers everywhere."""

    def child(self, *labels: str | int) -> Stream:
        """An independent stream for a part of the work."""

    def entropy(self) -> bytes:
        """32 bytes to seed something with; always the same ones."""

    def bytes(self, n: int) -> bytes:
        """The next ``n`` cryptographically strong bytes."""

    def numpy(self) -> np.random.Generator:
        """A fast generator seeded with 256 bits of this stream (statistical quality, not cryptographic)."""

    def torch(self, device: torch.device) -> torch.Generator:
        """The same for a CUDA device."""


@runtime_checkable
class NoiseSource(Protocol):
    """Makes noise inside the process, as torch tensors."""

    @property
    def claim(self) -> str:
        """What this source says it is, e.g. ``gaussian:sigma=1`` (true or not)."""

    @property
    def sigma(self) -> float:
        """Standard deviation of one coordinate as claimed."""

    @property
    def dim(self) -> int | None:
        """The only dimension it can serve, or None for any."""

    def sample(
        self, n: int, d: int, *, stream: Stream, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> torch.Tensor:
        """``n`` noise vectors, shape (n, d); float64 on the CPU unless told otherwise."""

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """What adding it to the host's query really gives at ``delta``, towards someone who knows every secret in it."""


@runtime_checkable
class ReleasingSource(NoiseSource, Protocol):
    """A noise source that must see the query: noise on a lattice, snapping, sums that go wrong."""

    def release(self, query: torch.Tensor, *, stream: Stream) -> torch.Tensor:
        """Release each row of ``query`` (n, d); same shape and dtype back. What it says is not ``query + sample``."""


@runtime_checkable
class Host(Protocol):
    """Turns data into pairs of neighbouring query results of known L2 sensitivity.

    ``differences`` are those that the query's definition allows, for whatever data: all d unit vectors of a histogram, not
    the non-empty bins. Where they are too many to list, a method ``slack(direction) -> float`` says how far another
    neighbour's may be from the nearest of ``differences``, Δ for the whole ball of a clipped gradient; none is 0.
    """

    @property
    def dim(self) -> int:
        """Length d of a query result."""

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity Δ of the query."""

    def neighbours(self, n: int, *, stream: Stream) -> torch.Tensor:
        """``n`` random pairs (D, D′), shape (n, 2, d), float64: query results of D and of a neighbour D′."""

    def differences(self, direction: torch.Tensor) -> torch.Tensor:
        """⟨q(D) − q(D′), direction⟩ for neighbours D′ of any D, shape (m,), float64; see the class."""


@runtime_checkable
class Mitigation(Protocol):
    """Stands between a noise source and a release.

    It may have a method ``mixes(sigma) -> (own, added) | None``, for attackers who know it: the scale at which the source's
    noise is in a release (0: nothing that its key fits), and that of independent Gaussian noise beside it; None, as no such
    method, where that is not all there is to it. It may have ``epsilon_after(source, delta, *, host, releases)``: ``epsilon``
    for so many releases with one ``source`` and its secrets.
    """

    trusts: str
    """Who must be trusted for what, in a line."""

    def release(self, query: torch.Tensor, source: NoiseSource, *, stream: Stream) -> torch.Tensor:
        """Release each row of ``query`` (n, d) with noise; same shape and dtype back."""

    def scale(self, sigma: float) -> float:
        """The noise scale that such a release honestly claims when the source claims ``sigma``."""

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """What such a release really gives at ``delta``, towards someone who knows every secret in ``source``."""


@runtime_checkable
class ProtocolMitigation(Mitigation, Protocol):
    """A mitigation of several parties; its ``release`` gives what they would publish, by the law alone, for many rows."""

    def rehearse(self, query: torch.Tensor, source: NoiseSource, *, stream: Stream) -> Rehearsal:
        """Run the whole protocol once on ``query`` (1, d), every party with the code that it runs alone."""


@runtime_checkable
class Attack(Protocol):
    """Maps releases and candidates to scores."""

    def score(self, releases: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Scores (t, m), higher is likelier, of ``candidates`` (t, m, d) or (m, d) for ``releases`` (t, d)."""

    def evidence(self, releases: torch.Tensor, candidates: torch.Tensor, truth: torch.Tensor) -> Mapping[str, Any]:
        """JSON-ready material for a picture of how the attack sees these releases; may be empty."""


@runtime_checkable
class SupportAttack(Protocol):
    """Says which values cannot have led to a release: exact arithmetic or replay, no statistics, nothing learned."""

    def feasible(self, releases: npt.NDArray[np.float64], value: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Whether each unit (coordinate, pair) of releases (t, k) can have come from ``value`` (k,), shape (t, u).

        One False rules the value out. Always all True at the value that a release was made from, if the mechanism is
        the one that the attack is for. Each row is judged by itself, so that independent releases give independent
        events; an attack that must look at several first offers ``settled(*releases)``, which returns one that no
        longer does, and is asked for that before anything is counted.

        Raises:
            UsageError: shapes that do not fit, or numbers that are not finite.
        """


@runtime_checkable
class LearningAttack(Protocol):
    """Learns from releases at two known values what tells such releases apart.

    With the class attribute ``timed = True`` releases have one more column, the last: the seconds that the call took.
    """

    timed: bool

    def learn(
        self,
        first: npt.NDArray[np.float64],
        second: npt.NDArray[np.float64],
        *,
        neighbours: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
    ) -> Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
        """A map from other releases (t, k) to numbers (t,), larger where the second neighbour is likelier.

        ``first`` and ``second`` (t, k) were released at the two ``neighbours``, query results (m,).
        """


@runtime_checkable
class ProbingAttack(Protocol):
    """Brings the neighbours itself: pairs that a mechanism may fail to hide from each other."""

    def pairs(self) -> Sequence[tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
        """Pairs of neighbouring values (m,) with a few words on what each probes."""


@runtime_checkable
class GameAttack(Protocol):
    """Plays a game of its own: people who submit what their devices privatised, and an adversary who sees that alone."""

    def play(self, users: int, *, stream: Stream) -> Mapping[str, Any]:
        """Let ``users`` people play; JSON-ready results. The same stream gives the same game."""


@runtime_checkable
class LocalMechanism(Protocol):
    """Privatises objects, whole numbers from 0, on their owners' devices: one report of each."""

    @property
    def epsilon(self) -> float:
        """The exact ε of one report: the largest log ratio of its probabilities between two objects."""

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> Any:
        """A report of each object (n,), independent of each other: one of the shapes in ``dpaudit.local.reports``."""

    def log_likelihood(self, reports: Any, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), shape (n, u), up to a constant of each report."""


@runtime_checkable
class SubmissionPolicy(Protocol):
    """What a device does between its owner's objects and what it submits: all of them, a few, the same again, unlinkably."""

    trusts: str
    """Who must be trusted for what, in a line."""
    linked: bool
    """Whether the server can tell which submissions are one person's."""

    def submit(
        self, objects: npt.NDArray[np.int64], mechanism: LocalMechanism, *, stream: Stream
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """Submissions of everybody's ``objects`` (users, n), in the order of time: reports, and whose row each is.

        Where not ``linked`` the reports' order says nothing, and the second array is for the experiment alone.
        """

    def epsilon(self, mechanism: LocalMechanism, *, objects: int, users: int, delta: float) -> float:
        """An upper bound on one person's ε at ``delta`` towards the server, for so many objects of each of so many users."""


@runtime_checkable
class ClosedSampler(Protocol):
    """Somebody else's noise: numpy blocks and nothing else. Used as a context manager."""

    @property
    def name(self) -> str:
        """What the user called it."""

    @property
    def dim(self) -> int | None:
        """The only dimension it can serve, or None."""

    @property
    def available(self) -> int | None:
        """How many rows it holds (a recorded file), or None for no end."""

    def draw(self, n: int, d: int, *, timeout: float) -> npt.NDArray[np.float64]:
        """``n`` vectors, shape (n, d), finite.

        Raises:
            SamplerError: it died, kept silent for ``timeout`` seconds, or answered with something else.
        """

    def __enter__(self) -> ClosedSampler: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class RepeatableSampler(ClosedSampler, Protocol):
    """A closed sampler that can also be called very often and started once more."""

    def draw_calls(
        self, calls: int, n: int, d: int, *, timeout: float
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """``calls`` calls of ``n`` vectors each, one after the other: values (calls·n, d) and each call's seconds.

        Raises:
            SamplerError: as in :meth:`draw`.
        """

    def again(self) -> ClosedSampler:
        """The same sampler, to be started afresh in a process of its own (its own ``with``)."""


@runtime_checkable
class StartedSampler(ClosedSampler, Protocol):
    """A closed sampler that takes time to start, and knows ``dim`` and the like only afterwards."""

    def start(self, *, timeout: float) -> None:
        """Wait until it is ready.

        Raises:
            SamplerError: it died, or was not ready after ``timeout`` seconds.
        """


@runtime_checkable
class ValueSampler(ClosedSampler, Protocol):
    """A closed sampler that is told which value its noise is for."""

    @property
    def takes_value(self) -> bool:
        """Whether this one really does."""

    def draw_at(self, value: float, n: int, d: int, *, timeout: float) -> npt.NDArray[np.float64]:
        """``n`` noise vectors (n, d) made for ``value``: what it released less ``value``.

        Raises:
            SamplerError: as in :meth:`draw`.
        """


@runtime_checkable
class Mechanism(Protocol):
    """Somebody else's whole mechanism, from a query's value to a release. Used as a context manager."""

    @property
    def name(self) -> str:
        """What the user called it."""

    def release(self, value: npt.NDArray[np.float64], n: int, *, timeout: float) -> npt.NDArray[np.float64]:
        """``n`` independent releases of the query result ``value`` (m,), shape (n, k), finite.

        Raises:
            SamplerError: it died, kept silent for ``timeout`` seconds, or answered with something else.
        """

    def __enter__(self) -> Mechanism: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class TimedMechanism(Mechanism, Protocol):
    """A mechanism whose releases can be made one a call, each call timed."""

    def release_timed(
        self, value: npt.NDArray[np.float64], n: int, *, timeout: float
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """``n`` releases of ``value`` (m,) in as many calls: releases (n, k), and each call's seconds (n,).

        Raises:
            SamplerError: as in :meth:`release`.
        """


class Block(Protocol):
    """One answer as tests see it; derived arrays are computed once and shared by all tests."""

    @property
    def call(self) -> int:
        """Number of the (first) call in its process; 0 for the first one."""

    @property
    def calls(self) -> int:
        """How many equal calls the rows come from, in order; mostly 1."""

    @property
    def process(self) -> int:
        """0, or the number of the other process that it was drawn from (started afresh, the same sampler).

        −1: a forked child of process 0 with its state, right before what the parent drew. Blocks of other processes go
        only to tests with the class attribute ``compares_processes = True``.
        """

    @property
    def value(self) -> float:
        """The value that the noise was made for, where the sampler is told one; 0.0 otherwise."""

    @property
    def seconds(self) -> npt.NDArray[np.float64] | None:
        """What each call took, shape (calls,), where the sampler says so."""

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """As drawn, shape (n, d)."""

    @property
    def z(self) -> npt.NDArray[np.float64]:
        """Mapped through the claimed law to independent N(0, 1), shape (n, d)."""

    @property
    def cells(self) -> npt.NDArray[np.int64]:
        """How many values of z fall in each of 2^14 cells of equal width over [-8, 8); the outer two take the rest."""


@runtime_checkable
class Test(Protocol):
    """Maps a stream of blocks to evidence against the claim. Created as ``factory(claim, stream)``."""

    looks_at: str

    def update(self, block: Block) -> None:
        """Take in one block; memory must not grow with the number of blocks."""

    def evidence(self, *, alpha: float) -> Evidence:
        """What was seen; ``alpha`` is this test's worst-case share, for the blind spots only."""


@runtime_checkable
class SearchingTest(Test, Protocol):
    """A test that goes on searching when all is drawn, in processes of its own if it likes.

    On any test the class attribute ``advisory = True`` keeps its p-value out of the verdict (it is shown, and α is not
    spent on it), ``costly = True`` says that its evidence takes a second and is not asked for in between.
    """

    def search(self, *, deadline: float) -> None:
        """Search until done or ``deadline`` (of ``time.monotonic``); called once, before :meth:`evidence`."""

    def close(self) -> None:
        """Let go of everything, whatever happened; called last, always."""


@runtime_checkable
class RunLogger(Protocol):
    """Tells another tool of a run while it goes on (``dpaudit run … --log NAME``); the store stays the truth.

    Called in this order by one thread that the experiment does not wait for: ``start``, then ``result`` and ``failure`` in
    the order in which cells end, ``end`` if the run came to its end, ``close`` always. What it raises is shown once and
    ends its part, never the run. A run that is resumed starts a new logger with the same ``run.run_id`` and, in
    ``run.earlier``, what was finished before, of which it may know all, some or nothing.
    """

    def start(self, run: RunStart) -> None:
        """The run begins, or goes on."""

    def result(self, cell: CellResult) -> None:
        """A cell is done, and on disk."""

    def failure(self, cell: CellFailure) -> None:
        """A cell failed; it may be tried again when the run is resumed."""

    def end(self, document: Mapping[str, Any]) -> None:
        """All is done; ``document`` is ``results.json``, which lies in the run's folder, with ``report.html``."""

    def close(self) -> None:
        """Let go of everything; called last, once, whatever happened before, also if that was nothing."""
