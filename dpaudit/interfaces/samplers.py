"""Somebody else's noise: ``dpaudit.samplers``."""

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
            SamplerError: it died, did not respond within ``timeout`` seconds, or answered with
                something else.
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
class PreparingSampler(Protocol):
    """What a repeatable sampler has that can start later processes ahead, to save the wait for each.

    Apart from :class:`RepeatableSampler`, so that asking for it reads no ``dim``, which may wait
    for the sampler's start.
    """

    def prepare(self, others: int) -> None:
        """Start the processes of the next ``others`` calls of ``again`` now; inside ``with``. It changes no number."""


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
