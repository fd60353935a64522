"""Audits of training that all ranks of ``torch.distributed`` run together."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dpaudit.errors import DpauditError, SamplerCrashError, UsageError
from dpaudit.results.text import error_text

__all__ = ["ALONE", "Ranks", "world_size"]

_KINDS: dict[bytes, type[DpauditError]] = {b"U": UsageError, b"C": SamplerCrashError}
_VALUE = b"="


@dataclass(frozen=True)
class Ranks:
    """This process among the ranks of the default group, or alone.

    Values go through the group's store: no collective is called, as others may be inside one of the
    training's when a rank fails. That rank raises at once; the others raise the same at their next
    exchange, or when their collective fails, as the connection is closed or the time over.
    """

    rank: int = 0
    size: int = 1
    store: Any = None
    name: str = ""
    steps: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def here(cls) -> Ranks:
        """The ranks of the default group, which must all call this; alone if there is none."""
        if (size := world_size()) == 1:
            return ALONE
        dist: Any = sys.modules["torch.distributed"]
        rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
        return cls(rank, size, store, f"dpaudit/{store.add(f'dpaudit/rank{rank}', 1)}")

    def exchange(self, work: Callable[[], bytes]) -> list[bytes]:
        """What ``work`` returns on each rank.

        Raises:
            UsageError: ``work`` raised it, here or on another rank.
            SamplerCrashError: ``work`` raised something else on another rank, or a rank did not
                answer within the group's timeout.
        """
        if self.size == 1:
            return [work()]
        step = next(self.steps)
        keys = [f"{self.name}/{step}/{rank}" for rank in range(self.size)]
        try:
            value = _VALUE + work()
        except Exception as error:
            if cause := self._post(error, keys):
                raise _KINDS[cause[:1]](cause[1:].decode()) from error
            raise
        self.store.set(keys[self.rank], value)
        for answer in (answers := [self._get(key) for key in keys]):
            if answer[:1] in _KINDS:
                raise _KINDS[answer[:1]](answer[1:].decode())
        self.store.set(f"{keys[self.rank]}/read", b"")
        if self.rank == 0:  # the store may end with this process, so it leaves last
            for key in keys:
                self._get(f"{key}/read")
        return [answer[1:] for answer in answers]

    def _post(self, error: Exception, keys: list[str]) -> bytes:
        """Tell the others of ``error``; or return what another told before, which caused it."""
        kind = b"U" if isinstance(error, UsageError) else b"C"
        message = str(error) if isinstance(error, DpauditError) else error_text(error)
        own = kind + f"rank {self.rank} of {self.size}: {message}".encode()
        try:
            said = [bytes(self.store.get(key)) for key in keys if self.store.check([key])]
            cause = next((answer for answer in said if answer[:1] in _KINDS), b"")
            self.store.set(keys[self.rank], cause or own)
        except RuntimeError:  # the rank that held the store has ended
            return b""
        return cause

    def _get(self, key: str) -> bytes:
        try:
            return bytes(self.store.get(key))
        except RuntimeError as error:
            raise SamplerCrashError(
                f"a rank has ended, or did not answer within the group's timeout of "
                f"{self.store.timeout}; call the audit on every rank, and set "
                f"init_process_group(timeout=…) to what one may wait for another ({error})"
            ) from None


def world_size() -> int:
    """The number of ranks in the default group of ``torch.distributed``; 1 without one."""
    dist: Any = sys.modules.get("torch.distributed")
    there = dist is not None and dist.is_available() and dist.is_initialized()
    return int(dist.get_world_size()) if there else 1


ALONE = Ranks()
