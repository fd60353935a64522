"""What the search asks of a lattice reducer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpaudit.errors import DpauditError
from dpaudit_attacks.keyless.form import Form

__all__ = ["Reducer", "ReductionFailed", "Stage", "Whole"]

Whole = npt.NDArray[np.int64]


class ReductionFailed(DpauditError):
    """The reducer lost its way in floating point."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A basis of Z^n, reduced so far.

    ``k`` (n, n) has one vector per row, shorter ones first. ``name`` is the reduction that runs or
    ran ("LLL", "BKZ-44"), ``done`` the number of its schedule's steps that are complete; a
    reduction resumes at the first incomplete one.
    """

    name: str
    done: int
    k: Whole


class Reducer(Protocol):
    """Reduces the form of :class:`~dpaudit_attacks.keyless.form.Form` further and further."""

    name: str
    most_rows: int
    """The most rows n for which it is known to work."""

    def stages(
        self, form: Form, *, beta: float, block: int, resume: Stage | None = None
    ) -> Iterator[Stage]:
        """LLL, then BKZ with growing block size up to ``block`` (0: LLL only).

        Yields whenever there may be new short vectors. ``resume``: an earlier stage of the same
        form and β.

        Raises:
            MissingExtraError: its library is not installed.
            ReductionFailed: floating point was not precise enough.
        """
        ...
