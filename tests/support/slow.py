"""Long lists of cases of which a part is run by default, and all by ``make slow``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def partly(cases: Iterable[Any], *, every: int) -> list[Any]:
    """The cases as parameters; all but each ``every``-th are slow. A tuple is several values."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.slow] * (i % every > 0),
        )
        for i, case in enumerate(cases)
    ]
