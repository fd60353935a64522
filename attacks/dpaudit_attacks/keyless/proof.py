"""What a recovered direction is worth: it reads releases as the key does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.pancake_likelihood import check_candidates, log_density
from dpaudit.numeric.arrays import cast_to, device_of, double
from dpaudit.protocols import Array
from dpaudit_attacks.keyless.recovered import load

__all__ = ["RecoveredDirection"]


@dataclass(frozen=True)
class _Recovered:
    direction: npt.NDArray[np.float64]
    beta: float
    gamma: float


def _parse_recovered(details: Mapping[str, Any]) -> _Recovered:
    try:
        w = np.asarray(details["w"], dtype=np.float64)
        beta, gamma = float(details["beta"]), float(details["gamma"])
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"recovered: needs w, beta and gamma as numbers ({error})") from error
    length = float(np.linalg.norm(w))
    if w.ndim != 1 or not (length > 0 and math.isfinite(length)) or not (beta > 0 and gamma > 0):
        raise UsageError(
            f"recovered: |w|={length}, beta={beta}, gamma={gamma}: must be finite and above 0"
        )
    return _Recovered(w / length, beta, gamma)


class RecoveredDirection:
    """The likelihood-ratio attack with a recovered direction in place of the key.

    The keyless search recovers it. Scores are the pancake's log-densities at the recovered (w, β,
    γ), as :class:`~dpaudit_attacks.keyed_distinguisher.LikelihoodRatio` computes them from the key.
    Not claimed: its optimality; that holds to the precision of what was recovered.
    """

    games = ("scoring",)
    holds = "a direction that keyless-search found"

    def __init__(self, *, recovered: Mapping[str, Any] | str | Path, sigma: float) -> None:
        """Hold what was recovered, for noise of scale ``sigma``: the evidence's ``details``, or the
        file that :func:`~dpaudit_attacks.keyless.recovered.save` wrote.

        Raises:
            UsageError: w, β or γ missing or not usable.
            KeyFileError: the file is unreadable, readable by others, or something else.
        """
        self._key = _parse_recovered(
            recovered if isinstance(recovered, Mapping) else load(recovered)
        )
        self._sigma = sigma

    def score(self, releases: Array, candidates: Array) -> Array:
        """Log-densities (t, m) of ``releases`` (t, d) under ``candidates`` (m, d) or (t, m, d).

        Raises:
            UsageError: dimensions that do not fit, or values that are not finite.
        """
        dim = len(self._key.direction)
        candidates = check_candidates(releases, candidates, dim=dim)
        noise = double(releases)[:, None] - double(candidates)
        along = noise @ cast_to(self._key.direction, None, device_of(noise))
        return log_density(
            along[..., None],
            (noise**2).sum(-1),
            dim=dim,
            sigma=self._sigma,
            beta=self._key.beta,
            gamma=self._key.gamma,
        )
