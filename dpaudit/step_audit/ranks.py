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
    group: Any = None

    def gather(self, value: T) -> list[T]:
        """Every process's value, in the order of ranks; SamplerError if one does not answer."""
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(values, value, group=self.group)
        except RuntimeError as error:
            raise SamplerError(f"a process did not answer in time: {one_line(error)}") from error
        return values

    def together(self, what: str, call: Callable[[], T]) -> T:
        """``call()`` on every process: where one raises, all do, and name every one that did.

        Raises:
            UsageError: a process raised one.
            SamplerError: a process raised something else.
        """
        value, error = None, None
        try:
            value = call()
        except Exception as raised:  # noqa: BLE001 the user's code raises anything
            error = raised
        text = one_line(error if isinstance(error, UsageError) else repr(error))
        errors = self.gather(None if error is None else (isinstance(error, UsageError), text))
        if usage := [e[1] for e in errors if e and e[0]]:
            raise UsageError(usage[0]) from error
        if any(errors):
            named = [f"rank {rank}: {e[1]}" for rank, e in enumerate(errors) if e]
            raise SamplerError(f"{what} raised: {'; '.join(named)}") from error
        return value  # type: ignore[return-value]


@contextmanager
def ranks(timeout: float) -> Iterator[Ranks]:
    """The processes of ``torch.distributed``; meanwhile none waits longer than ``timeout`` seconds.

    Raises:
        SamplerError: not all of them came.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        yield Ranks(0, 1)
        return
    core: Any = dist.distributed_c10d
    try:  # longer: whoever waits in vain for a process that failed must still hear why
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=2 * timeout + 5))
    except RuntimeError as error:
        raise SamplerError(
            f"time_limit={timeout:g}: not all processes came; call the audit on each of them"
        ) from error
    before = {
        g: g._get_backend(torch.device("cpu")).options._timeout
        for g in core._world.pg_map
        if g is not group and torch.device("cpu") in g._device_types
    }
    try:
        for other in before:
            core._set_pg_timeout(timedelta(seconds=timeout), other)
        yield Ranks(dist.get_rank(), dist.get_world_size(), group)
    finally:
        for other, was in before.items():
            core._set_pg_timeout(was, other)
        dist.destroy_process_group(group)
