"""From logarithms of scores to probabilities of pools."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = ["normalized"]


def normalized(
    log_scores: npt.NDArray[np.float64], pool_prior: npt.NDArray[np.float64] | None
) -> npt.NDArray[np.float64]:
    """exp(log_scores) times the prior of each pool, scaled so that the last axis (the pools) adds up to 1.

    Raises:
        UsageError: a prior of another length, negative, not finite, or 0 for all pools.
    """
    if pool_prior is not None:
        prior = np.asarray(pool_prior, np.float64)
        k = log_scores.shape[-1]
        if prior.shape != (k,) or not (np.isfinite(prior) & (prior >= 0)).all() or not prior.any():
            raise UsageError(
                f"pool_prior of shape {prior.shape}: needs one weight ≥ 0 for each of {k} pools, not all 0"
            )
        with np.errstate(divide="ignore"):
            log_scores = log_scores + np.log(prior)
    scores: npt.NDArray[np.float64] = np.exp(log_scores - log_scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores
