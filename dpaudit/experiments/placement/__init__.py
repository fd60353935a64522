"""Where cells are done: in this process, on all cores, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, Self

from dpaudit.errors import UsageError
from dpaudit.experiments.measure import Cell
from dpaudit.experiments.placement.work import Outcome

__all__ = ["Item", "Placement", "place"]

Item = tuple[int, Cell]
"""A cell and its position in the experiment."""


class Placement(Protocol):
    """Does cells; entering it starts or finds workers, leaving it stops what it started."""

    @property
    def workers(self) -> int:
        """How many cells can be done at the same time, as far as is known now."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def run(self, cells: Iterator[Item]) -> Iterator[tuple[int, Outcome]]:
        """Each cell's position and outcome, in the order in which they end.

        ``cells`` is read as workers become free, a bounded number ahead; the next is taken when the
        caller, having kept the last outcome, asks for another. Every cell ends in an outcome, also
        if its worker dies.

        Raises:
            UsageError: the workers cannot be had, or are gone; the cells that were not yielded are
                not done.
        """
        ...


def place(
    where: str = "local", *, jobs: int | str = 1, device: str = "cpu", wait: float = 30.0
) -> Placement:
    """``local`` with so many ``jobs`` (or ``all`` cores), or the Dask scheduler at an address.

    ``wait`` is how many seconds a cluster may be without workers.

    Raises:
        UsageError: no such place, or not so many jobs there.
    """
    if where != "local":
        if not where.startswith(("tcp://", "tls://")):
            raise UsageError(
                f"where={where}: must be local, or a Dask scheduler's address, "
                "tcp://host:8786 or tls://…"
            )
        if jobs != 1:
            raise UsageError(
                f"jobs={jobs}: a cluster has the workers that were started for it; leave --jobs out"
            )
        from dpaudit.experiments.placement.cluster import Cluster

        return Cluster(where, gpu=device != "cpu", wait=wait)
    from dpaudit.experiments.placement.cores import Cores, available
    from dpaudit.experiments.placement.work import Here, check_device

    number = available() if jobs == "all" else jobs
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise UsageError(f"jobs={jobs}: must be a whole number from 1 on, or all")
    check_device(device)
    if number > 1 and device != "cpu":
        raise UsageError(
            f"jobs={jobs}: cells on device={device} take turns on it; leave --jobs out"
        )
    return Here() if jobs == 1 else Cores(number)
