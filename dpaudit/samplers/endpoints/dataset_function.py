"""A Python function of a data set in a worker process (the parent's side)."""

from __future__ import annotations

import base64
import time
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SamplerOutputError
from dpaudit.samplers.endpoints.releases import MOST
from dpaudit.samplers.endpoints.worker import PythonSampler, Worker
from dpaudit.samplers.plain import packed_dataset, unpacked
from dpaudit.samplers.sandbox.view import files_of_module

__all__ = ["DatasetFunction"]

Array = npt.NDArray[np.float64]


class DatasetFunction(Worker):
    """``python:MODULE:FUNCTION`` of a data set: ``f(dataset)`` or ``f(dataset, n)``, any release.

    It runs under the same limits as a sampler. The data set and the releases pass as MessagePack of
    plain values (:mod:`dpaudit.samplers.plain`); nothing is unpickled on either side. After a
    data set at which the process died or was too slow, the next call starts another process.
    """

    def __init__(
        self,
        target: str,
        *,
        call: str | None = None,
        features: str | None = None,
        calls: int = 1,
        sessions: int = 1,
        adversary: str | None = None,
    ) -> None:
        """``features``, ``MODULE:FUNCTION``, turns each release to numbers, in the worker.

        With ``calls`` or ``sessions`` above 1, or an ``adversary``, ``MODULE:FUNCTION``, it makes
        sessions (:func:`~dpaudit.samplers.transcripts.transcripts`).

        Raises:
            UsageError: no function, no such file, or a ``call`` that is none.
        """
        function = PythonSampler(target, seed="", call=call)
        self._function = function
        self._others = [one for one in (features, adversary) if one is not None]
        for one in self._others:
            PythonSampler(one, seed="")  # checks the name
        played = {"calls": str(calls), "sessions": str(sessions), "adversary": adversary}
        spec = {**function._spec, "kind": "datasets", "features": features, **played}
        super().__init__(function.name, spec)

    def _needed_paths(self) -> list[str]:
        more = [files_of_module(one.rpartition(":")[0]) for one in self._others]
        return [*self._function._needed_paths(), *chain.from_iterable(more)]

    def release_any(self, dataset: Any, n: int, *, timeout: float) -> Array | list[Any]:
        """``n`` releases of ``dataset``, plain; the first also waits for the process to start.

        Raises:
            UsageError: the data set or a release is of no plain kind, or the function cannot be
                opened.
            SamplerError: it raised, did not respond in time, or returned fewer.
        """
        if self._dead:
            self.__exit__()
            self.__enter__()
        told = base64.b64encode(packed_dataset(dataset)).decode()
        deadline = time.monotonic() + timeout
        answer = self._draw(np.empty(0), n, 1, timeout, dataset=told)
        size = answer.get("bytes") if isinstance(answer, dict) else None
        if not isinstance(size, int) or not 0 < size <= 8 * MOST:
            raise SamplerOutputError(
                f"mechanism {self.name} released {size} bytes (n={n}); ask for fewer releases"
            )
        words = np.empty((-(-size // 8), 1))
        left = max(deadline - time.monotonic(), 1e-3)
        self._draw(words, len(words), 1, left)
        try:
            found = unpacked(words.tobytes()[:size])
        except ValueError as error:
            raise SamplerOutputError(
                f"mechanism {self.name}: its releases cannot be read ({error}); fix it"
            ) from None
        many = isinstance(found, list) or (isinstance(found, np.ndarray) and found.ndim > 0)
        if many and len(found) == n:
            return found  # type: ignore[no-any-return]
        raise SamplerOutputError(f"mechanism {self.name} did not release n={n}; fix it")
