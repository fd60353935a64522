"""Cells on a running Dask cluster, whose scheduler balances the load and replaces dead workers.

A Dask scheduler executes whatever anyone who reaches it sends: use it on trusted networks only,
or with ``tls://``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import queue
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any, Self

from dpaudit.errors import MissingExtraError, PeerError, UsageError
from dpaudit.experiments.measure import Cell
from dpaudit.experiments.placement.work import (
    Outcome,
    answer,
    difference,
    failure,
    identity,
    parse,
    request,
)

__all__ = ["Cluster", "check_workers", "identity_text", "silence"]

_CONNECT_SECONDS = 8
_AHEAD = 2
_LOOK_SECONDS = 2.0
_RESUME = "finished cells are kept; repeat the command with --resume"


class Cluster:
    """A placement on the workers of a scheduler, each with one thread and this dpaudit.

    Workers may join and leave at any time. A cell whose worker dies is repeated elsewhere, until
    the scheduler's ``distributed.scheduler.allowed-failures`` (3) is exceeded; then it is a
    failure. With ``gpu`` cells go to workers that offer the resource GPU, one each.
    """

    def __init__(self, address: str, *, gpu: bool = False, wait: float = 30.0) -> None:
        """``wait`` is how many seconds to wait while there is no worker."""
        self.address = address
        self.workers = 0
        self._gpu, self._wait = gpu, wait
        self._client: Any = None
        self._looked, self._seen, self._heard = -math.inf, time.monotonic(), time.monotonic()
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Connect, wait for workers and check them.

        Raises:
            MissingExtraError: Dask is not installed.
            UsageError: no scheduler responds, no worker joins, or one is unsuitable.
        """
        try:
            import distributed
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"where={self.address}: needs distributed, which is not installed; "
                "pip install 'dpaudit[scale]'"
            ) from error
        with contextlib.ExitStack() as stack:
            stack.enter_context(silence())
            try:
                self._client = distributed.Client(  # type: ignore[no-untyped-call]
                    self.address, timeout=_CONNECT_SECONDS, set_as_default=False, name="dpaudit"
                )
            except (OSError, TimeoutError) as error:
                raise UsageError(
                    f"where={self.address}: no scheduler responds ({_line(error)}); "
                    "start one with dask scheduler, or leave --where out"
                ) from error
            except (TypeError, ValueError) as error:
                raise UsageError(
                    f"where={self.address}: {_line(error)}; tls:// needs distributed.comm.tls in "
                    "Dask's configuration, e.g. DASK_DISTRIBUTED__COMM__TLS__CA_FILE"
                ) from error
            stack.callback(self._leave)
            self._await_workers()
            check_workers(self._client, self.address, gpu=self._gpu)
            self._closing = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _leave(self) -> None:
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            self._client.close(timeout=3)

    def run(self, cells: Iterator[tuple[int, Cell]]) -> Iterator[tuple[int, Outcome]]:
        """Each cell's outcome, in the order in which they end.

        Raises:
            PeerError: the scheduler stopped responding, or all workers left.
            UsageError: a worker that joined later has another dpaudit.
        """
        ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        here: dict[str, tuple[int, Cell, Any, float]] = {}
        token = secrets.token_hex(4)
        try:
            while True:
                self._check_workers()
                while (
                    len(here) < _AHEAD * max(1, self.workers)
                    and (item := next(cells, None)) is not None
                ):
                    position, cell = item
                    key = f"dpaudit-{token}-{position}"
                    here[key] = (position, cell, self._submit(key, cell), time.monotonic())
                    here[key][2].add_done_callback(lambda future: ended.put(future.key))
                if not here:
                    return
                try:
                    key = ended.get(timeout=0.5)
                except queue.Empty:
                    continue
                outcome = self._collect(*here[key][1:])
                if outcome is None:  # its worker died with the answer: another one repeats it
                    ended.put(key)
                    continue
                yield here[key][0], outcome
                here.pop(key)[2].release()
        finally:
            with contextlib.suppress(OSError, TimeoutError, RuntimeError, CancelledError):
                if here and self._client.status == "running":
                    self._client.cancel([future for _, _, future, _ in here.values()], force=True)

    def _submit(self, key: str, cell: Cell) -> Any:
        resources = {"GPU": 1} if self._gpu else None
        return self._client.submit(answer, request(cell), key=key, pure=False, resources=resources)

    def _collect(self, cell: Cell, future: Any, began: float) -> Outcome | None:
        from distributed.scheduler import KilledWorker

        try:
            return parse(future.result(timeout=5), cell)
        except KilledWorker as error:
            return failure(cell, _short(error), seconds=time.monotonic() - began)
        except TimeoutError:
            self._check_workers()
            return None
        except CancelledError as error:
            raise PeerError(
                f"where={self.address}: the scheduler has stopped; {_RESUME}"
            ) from error
        except ModuleNotFoundError as error:
            raise UsageError(
                f"where={self.address}: a worker has no module {error.name}; "
                "install the same dpaudit on it"
            ) from error

    def _check_workers(self) -> None:
        """Check from time to time that the scheduler responds, and count its workers."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if self._client.status == "running":
            with contextlib.suppress(OSError, TimeoutError):
                self.workers = self._count()
                self._heard = now
        if now - self._heard > _CONNECT_SECONDS or self._client.status == "closed":
            raise PeerError(f"where={self.address}: the scheduler no longer responds; {_RESUME}")
        if self.workers:
            self._seen = now
        elif now - self._seen > self._wait:
            raise PeerError(
                f"where={self.address}: there has been no worker for {self._wait:g} s; {_RESUME}"
            )

    def _count(self) -> int:
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return sum(
            int(w["resources"].get("GPU", 0)) if self._gpu else int(w["nthreads"]) for w in workers
        )

    def _await_workers(self) -> None:
        until = time.monotonic() + self._wait
        while not self._client.scheduler_info(n_workers=-1)["workers"]:
            if time.monotonic() > until:
                raise UsageError(
                    f"where={self.address}: the scheduler still has no workers after "
                    f"{self._wait:g} s; start some with "
                    f"dask worker {self.address} --nthreads 1 --nworkers -1"
                )
            time.sleep(0.1)
        self.workers = self._count()


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


class WorkersDiedError(Exception):
    """The name of the failure of a cell under which workers died."""


def _short(error: BaseException) -> WorkersDiedError:
    """Dask's KilledWorker without its advice."""
    workers = getattr(error, "allowed_failures", 3) + 1
    return WorkersDiedError(
        f"{workers} workers died with this cell on them; out of memory, or a crash in a plug-in"
    )


_LOGGERS = ("distributed", "tornado", "asyncio")


def identity_text() -> str:
    """The identity of the dpaudit on a worker, as JSON text; runs there."""
    return json.dumps(identity())


def check_workers(client: Any, address: str, *, gpu: bool) -> None:
    """Check every worker of a cluster.

    Raises:
        UsageError: one has several threads, no dpaudit or a different one; or ``gpu`` is needed and
            none offers a GPU.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    many = next((name for name, worker in workers.items() if worker["nthreads"] != 1), None)
    if many is not None:
        raise UsageError(
            f"where={address}: worker {many} has {workers[many]['nthreads']} threads; "
            "each cell needs its own process: "
            f"dask worker {address} --nthreads 1 --nworkers -1"
        )
    if gpu and not any(worker["resources"].get("GPU", 0) >= 1 for worker in workers.values()):
        raise UsageError(
            f"where={address}: no worker offers a GPU; start one per device with "
            f'CUDA_VISIBLE_DEVICES=0 dask worker {address} --nthreads 1 --resources "GPU=1"'
        )
    replies = client.run(identity_text, on_error="return")
    for name, reply in replies.items():
        if isinstance(reply, OSError):
            continue  # it left meanwhile; workers that join later are checked with their first cell
        if isinstance(reply, ModuleNotFoundError):
            raise UsageError(
                f"where={address}: worker {name} has no module {reply.name}; "
                "install the same dpaudit on it"
            )
        if not isinstance(reply, str):
            raise UsageError(
                f"where={address}: worker {name} does not report its version of dpaudit ({reply!r})"
            )
        unlike = difference(identity(), json.loads(reply))
        if unlike:
            raise UsageError(f"where={address}: worker {name} {unlike}")


@contextmanager
def silence() -> Iterator[None]:
    """Keep Dask's messages from stderr; those that matter become exceptions."""
    import distributed  # noqa: F401  # sets its loggers' levels when imported

    loggers = [
        logging.getLogger(name)
        for name in logging.root.manager.loggerDict
        if name.split(".")[0] in _LOGGERS
    ]
    before = [(logger, logger.level) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in before:
            logger.setLevel(level)
