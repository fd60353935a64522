"""Processes that audit together: what each knows, and errors that reach all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from dpaudit.errors import SamplerError, UsageError
from dpaudit.results.text import one_line

__all__ = ["Ranks", "ranks"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that audit together; ``group`` is None in a single one."""

    rank: int
    size: int
    group: Any
    timeout: float

    def gather(self, value: T) -> list[T]:
        """Every process's value, in the order of ranks.

        Raises:
            SamplerError: a process did not answer in time.
        """
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(values, value, group=self.group)
        except (RuntimeError, dist.DistError) as error:
            raise SamplerError(
                f"timeout={self.timeout:g}: a process of {self.size} did not answer in time; call "
                f"the audit on all of them ({one_line(error)})"
            ) from error
        return values

    def together(self, what: str, call: Callable[[], T]) -> T:
        """``call()`` on every process: where one raises, all do.

        Raises:
            UsageError: a process raised one; all raise the first.
            SamplerError: a process raised something else; all name every process that did.
        """
        value, error = None, None
        try:
            value = call()
        except Exception as raised:  # whatever the user's code raises
            error = raised
        text = one_line(str(error) if isinstance(error, UsageError) else repr(error))
        errors = self.gather(None if error is None else (isinstance(error, UsageError), text))
        if usage := [e[1] for e in errors if e and e[0]]:
            raise UsageError(usage[0]) from error
        if any(errors):
            named = [f"rank {rank}: {e[1]}" for rank, e in enumerate(errors) if e]
            raise SamplerError(f"{what} raised: {'; '.join(named)}") from error
        return value  # type: ignore[return-value]


@contextmanager
def ranks(timeout: float) -> Iterator[Ranks]:
    """The processes of ``torch.distributed``; until the end none waits longer than ``timeout`` s.

    Raises:
        SamplerError: not all of them came.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        yield Ranks(0, 1, None, timeout)
        return
    core: Any = dist.distributed_c10d
    size = dist.get_world_size()
    try:  # twice the time: a process whose peers failed waits for them before it answers
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=2 * timeout + 5))
    except (RuntimeError, dist.DistError) as error:
        raise SamplerError(
            f"timeout={timeout:g}: not all {size} processes came to the audit; call it on each "
            f"({one_line(error)})"
        ) from error
    others = {g: g._get_backend(torch.device("cpu")).options._timeout for g in _gloo(group)}
    try:
        for other in others:
            core._set_pg_timeout(timedelta(seconds=timeout), other)
        yield Ranks(dist.get_rank(), size, group, timeout)
    finally:
        for other, before in others.items():
            core._set_pg_timeout(before, other)
        dist.destroy_process_group(group)


def _gloo(own: Any) -> list[Any]:
    """The groups of this process that work on the CPU, but for ``own``."""
    groups = dist.distributed_c10d._world.pg_map
    return [g for g in groups if g is not own and "cpu" in {d.type for d in g._device_types}]
