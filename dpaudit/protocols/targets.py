"""Third-party noise and mechanisms, as audits see them: ``dpaudit.targets``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "ClosedSampler",
    "DatasetMechanism",
    "Mechanism",
    "OpenMechanism",
    "PreparingSampler",
    "RecordedMechanism",
    "RepeatableSampler",
    "StartedSampler",
    "TimedMechanism",
    "ValueSampler",
]


@runtime_checkable
class ClosedSampler(Protocol):
    """Third-party noise: numpy blocks and nothing else. Used as a context manager."""

    @property
    def name(self) -> str:
        """What the user called it."""

    @property
    def dim(self) -> int | None:
        """The only dimension it can serve, or None."""

    @property
    def available(self) -> int | None:
        """How many rows it holds (a recorded file), or None if unlimited."""

    def draw(self, n: int, d: int, *, timeout: float) -> npt.NDArray[np.float64]:
        """``n`` vectors, shape (n, d), finite.

        Raises:
            SamplerError: it died, did not respond within ``timeout`` seconds, or answered with
                something else.
        """

    def __enter__(self) -> ClosedSampler: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class RepeatableSampler(ClosedSampler, Protocol):
    """A closed sampler that can also make many calls, and be started a second time."""

    def draw_calls(
        self, calls: int, n: int, d: int, *, timeout: float
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """``calls`` calls in sequence of ``n`` vectors each: values (calls·n, d), seconds (calls,).

        Raises:
            SamplerError: as in :meth:`draw`.
        """

    def again(self) -> ClosedSampler:
        """The same sampler, to be started in a new process of its own (its own ``with``)."""


@runtime_checkable
class PreparingSampler(Protocol):
    """A repeatable sampler that can start later processes ahead of time.

    Apart from :class:`RepeatableSampler`, so that an ``isinstance`` check reads no ``dim``, which
    may wait for the sampler's start.
    """

    def prepare(self, others: int) -> None:
        """Start the processes of the next ``others`` calls of ``again`` now; inside ``with``.

        It changes no number.
        """


@runtime_checkable
class StartedSampler(ClosedSampler, Protocol):
    """A closed sampler that takes time to start; ``dim`` and others are known only afterwards."""

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
        """Whether this sampler uses it."""

    def draw_at(self, value: float, n: int, d: int, *, timeout: float) -> npt.NDArray[np.float64]:
        """``n`` noise vectors (n, d) made for ``value``: what it released less ``value``.

        Raises:
            SamplerError: as in :meth:`draw`.
        """


class OpenMechanism(Protocol):
    """A mechanism that is ready to be asked, from a query's value to a release."""

    @property
    def name(self) -> str:
        """What the user called it."""

    def release(
        self, value: npt.NDArray[np.float64], n: int, *, timeout: float
    ) -> npt.NDArray[np.float64]:
        """``n`` independent releases of the query result ``value`` (m,), shape (n, k), finite.

        Raises:
            SamplerError: it died, did not respond within ``timeout`` seconds, or answered with
                something else.
        """


@runtime_checkable
class Mechanism(OpenMechanism, Protocol):
    """A third-party mechanism, from a query's value to a release; a context manager."""

    def __enter__(self) -> Mechanism: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class RecordedMechanism(Mechanism, Protocol):
    """Releases that were made before, at two neighbours; each is given once."""

    @property
    def neighbours(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """What to release, one after the other: query results (m,), if they are ``named``."""

    @property
    def named(self) -> bool:
        """Whether the query results are known; if not, ``neighbours`` have length 0."""

    @property
    def available(self) -> int:
        """How many releases it holds at each neighbour, at least."""


@runtime_checkable
class TimedMechanism(Mechanism, Protocol):
    """A mechanism whose releases can be made one per call, each call timed."""

    def release_timed(
        self, value: npt.NDArray[np.float64], n: int, *, timeout: float
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """``n`` releases (n, k) of ``value`` (m,), one per call, and each call's seconds (n,).

        Raises:
            SamplerError: as in :meth:`release`.
        """


@runtime_checkable
class DatasetMechanism(Protocol):
    """A third-party mechanism from a data set, of whatever form, to releases of whatever form."""

    @property
    def name(self) -> str:
        """What the user called it."""

    def release_any(
        self, dataset: Any, n: int, *, timeout: float
    ) -> npt.NDArray[np.float64] | list[Any]:
        """``n`` independent releases of ``dataset``, plain: an array (n, …) or a list.

        Plain values are those of :func:`dpaudit.targets.plain.plain`; numbers may be infinite.

        Raises:
            SamplerError: as in :meth:`Mechanism.release`.
        """

    def __enter__(self) -> DatasetMechanism: ...

    def __exit__(self, *exc: object) -> None: ...
