"""Audits that all ranks of ``torch.distributed`` run together."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from dpaudit.errors import DpauditError, SamplerCrashError, UsageError
from dpaudit.results.text import error_text

__all__ = ["ALONE", "Ranks", "world_size"]

T = TypeVar("T")
_KINDS: dict[bytes, type[DpauditError]] = {b"U": UsageError, b"C": SamplerCrashError}
_VALUE = b"="


@dataclass(frozen=True)
class Ranks:
    """This process among the ranks of the default group, or alone.

    Values go through the group's store: no collective is called, as others may be inside one of the
    training's when a rank fails. That rank raises at once; the others raise the same at their next
    exchange, or when their collective fails, as the connection is closed or the time over.
    ``limit`` is how long one waits for another, by default the store's own.
    """

    rank: int = 0
    size: int = 1
    store: Any = None
    name: str = ""
    limit: timedelta | None = None
    steps: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def here(cls, *, limit: timedelta | None = None) -> Ranks:
        """The ranks of the default group, which must all call this; alone if there is none."""
        if (size := world_size()) == 1:
            return ALONE
        dist: Any = sys.modules["torch.distributed"]
        rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
        return cls(rank, size, store, f"dpaudit/{store.add(f'dpaudit/rank{rank}', 1)}", limit)

    def exchange(self, work: Callable[[], bytes]) -> list[bytes]:
        """What ``work`` returns on each rank.

        Raises:
            UsageError: ``work`` raised it on a rank, which is named.
            SamplerCrashError: ``work`` raised something else on a rank, or one did not answer.
        """
        if self.size == 1:
            return [work()]
        step = next(self.steps)
        keys = [f"{self.name}/{step}/{rank}" for rank in range(self.size)]
        try:
            value = _VALUE + work()
        except Exception as error:
            cause = self._post(error, keys)
            raise _KINDS[cause[:1]](cause[1:].decode()) from error
        self.store.set(keys[self.rank], value)
        for answer in (answers := [self._get(key) for key in keys]):
            if answer[:1] in _KINDS:
                raise _KINDS[answer[:1]](answer[1:].decode())
        self.store.set(f"{keys[self.rank]}/read", b"")
        if self.rank == 0:  # the store may end with this process, so it leaves last
            for key in keys:
                self._get(f"{key}/read")
            for key in keys:
                self.store.delete_key(key)
        return [answer[1:] for answer in answers]

    def together(self, what: str, call: Callable[[], T]) -> T:
        """``call()``, if it raises on no rank; else errors of :meth:`exchange`, with ``what``."""
        values: list[T] = []

        def work() -> bytes:
            try:
                values.append(call())
            except UsageError:
                raise
            except Exception as error:
                raise SamplerCrashError(f"{what} raised {error_text(error)}") from error
            return b""

        self.exchange(work)
        return values[0]

    def _post(self, error: Exception, keys: list[str]) -> bytes:
        """Tell the others of ``error``; return its cause: itself, or what another told before."""
        kind = b"U" if isinstance(error, UsageError) else b"C"
        message = str(error) if isinstance(error, DpauditError) else error_text(error)
        own = kind + f"rank {self.rank} of {self.size}: {message}".encode()
        try:
            said = [bytes(self.store.get(key)) for key in keys if self.store.check([key])]
            own = next((answer for answer in said if answer[:1] in _KINDS), own)
            self.store.set(keys[self.rank], own)
        except RuntimeError:  # the rank that held the store has ended
            pass
        return own

    def _get(self, key: str) -> bytes:
        try:
            self.store.wait([key], self.limit or self.store.timeout)
            return bytes(self.store.get(key))
        except RuntimeError as error:
            limit = self.limit or f"the group's timeout of {self.store.timeout}"
            raise SamplerCrashError(
                f"a rank has ended, or did not answer within {limit}; call the audit on every "
                "rank, and set time_limit=, or init_process_group(timeout=…) where an audit has "
                f"none, to what one may wait for another ({error})"
            ) from None


def world_size() -> int:
    """The number of ranks in the default group of ``torch.distributed``; 1 without one."""
    dist: Any = sys.modules.get("torch.distributed")
    there = dist is not None and dist.is_available() and dist.is_initialized()
    return int(dist.get_world_size()) if there else 1


ALONE = Ranks()
