"""A long reduction kept on disk, so that it resumes after a stop."""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpaudit.errors import StoreError
from dpaudit_attacks.keyless.form import Array
from dpaudit_attacks.keyless.reduction.interface import Stage

__all__ = ["Checkpoint"]


class Checkpoint:
    """The last complete step of one reduction, in one file that is replaced as a whole.

    Use :attr:`stage` as ``resume`` and :meth:`keep` as ``keep`` of
    :func:`~dpaudit_attacks.keyless.lattice.find_direction`. ``seconds`` are the CPU seconds that
    the steps before this start took, :meth:`spent` those and this process's.
    """

    def __init__(
        self, path: Path, x: Array, *, clock: Callable[[], float] = time.process_time, **of: float
    ) -> None:
        """For the rows x and the numbers ``of`` (d, β, γ, …): another reduction's file is refused.

        Raises:
            StoreError: the file is not a checkpoint, or of other rows or numbers.
        """
        self._path, self._clock = path, clock
        digest = hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()
        self._of = json.dumps({**of, "rows": digest}, sort_keys=True)
        self.stage: Stage | None = None
        self.seconds = 0.0
        if path.exists():
            self._read()
        self._began = clock()

    def _read(self) -> None:
        try:
            with np.load(self._path, allow_pickle=False) as kept:
                of, name = str(kept["of"]), str(kept["name"])
                done, k, self.seconds = int(kept["done"]), kept["k"], float(kept["seconds"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise StoreError(
                f"checkpoint={self._path}: is not a checkpoint of a reduction ({error}); "
                "name another file"
            ) from error
        if of != self._of:
            raise StoreError(
                f"checkpoint={self._path}: belongs to another reduction; name another file"
            )
        self.stage = Stage(name, done, k)

    def spent(self) -> float:
        """CPU seconds of the reduction so far, over all starts."""
        return self.seconds + self._clock() - self._began

    def keep(self, stage: Stage) -> None:
        """Write ``stage`` if it completes a step."""
        if stage.done <= (0 if self.stage is None else self.stage.done):
            return
        self.stage = stage
        part = self._path.with_name(f".{self._path.name}.part")
        with open(part, "wb") as file:
            np.savez_compressed(
                file,
                of=self._of,
                name=stage.name,
                done=stage.done,
                k=stage.k,
                seconds=self.spent(),
            )
        part.replace(self._path)
