"""Before the first cell goes to a cluster: is every worker fit for it?"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpaudit.errors import UsageError
from dpaudit.experiments.placement.version import difference, identity

__all__ = ["check_workers", "say_identity", "silence"]

_LOGGERS = ("distributed", "tornado", "asyncio")


def say_identity() -> str:
    """Runs on a worker: which dpaudit it has, as JSON text."""
    return json.dumps(identity())


def check_workers(client: Any, address: str, *, gpu: bool) -> None:
    """Look at every worker of a cluster.

    Raises:
        UsageError: one has several threads, no dpaudit or another one; or none offers a GPU where ``gpu`` needs one.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    many = next((name for name, worker in workers.items() if worker["nthreads"] != 1), None)
    if many is not None:
        raise UsageError(
            f"where={address}: worker {many} has {workers[many]['nthreads']} threads; cells need a process each: "
            f"dask worker {address} --nthreads 1 --nworkers -1"
        )
    if gpu and not any(worker["resources"].get("GPU", 0) >= 1 for worker in workers.values()):
        raise UsageError(
            f"where={address}: no worker offers a GPU; start one a device with "
            f'CUDA_VISIBLE_DEVICES=0 dask worker {address} --nthreads 1 --resources "GPU=1"'
        )
    answers = client.run(say_identity, on_error="return")
    for name, said in answers.items():
        if isinstance(said, OSError):
            continue  # it left while we asked; whoever comes is checked with its first cell
        if isinstance(said, ModuleNotFoundError):
            raise UsageError(f"where={address}: worker {name} lacks {said.name}; install the same dpaudit there")
        if not isinstance(said, str):
            raise UsageError(f"where={address}: worker {name} does not say which dpaudit it has ({said!r})")
        unlike = difference(identity(), json.loads(said))
        if unlike:
            raise UsageError(f"where={address}: worker {name} {unlike}")


@contextmanager
def silence() -> Iterator[None]:
    """Keep Dask's chatter from stderr; what matters of it comes as an exception of ours."""
    import distributed  # noqa: F401  # sets its loggers' levels when imported

    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.split(".")[0] in _LOGGERS]
    before = [(logger, logger.level) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in before:
            logger.setLevel(level)
