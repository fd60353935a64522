"""Third-party mechanisms, for ``dpaudit mechanism``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["DatasetMechanism", "Mechanism", "OpenMechanism", "RecordedMechanism", "TimedMechanism"]


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

        Plain values are those of :func:`dpaudit.samplers.plain.plain`; numbers may be infinite.

        Raises:
            SamplerError: as in :meth:`Mechanism.release`.
        """

    def __enter__(self) -> DatasetMechanism: ...

    def __exit__(self, *exc: object) -> None: ...
