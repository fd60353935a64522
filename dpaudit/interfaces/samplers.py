"""Third-party noise: ``dpaudit.samplers``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "ClosedSampler",
    "PreparingSampler",
    "RepeatableSampler",
    "StartedSampler",
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
