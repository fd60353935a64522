"""What an adversary concludes from one person's submissions: the probability of each pool to be the preferred one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit_attacks.pool_inference.closed_form import count_posterior
from dpaudit_attacks.pool_inference.normalizing import normalized
from dpaudit_attacks.pool_inference.posterior_kernel import BLOCK, HALVES, fill_log_scores
from dpaudit_attacks.pool_inference.quadrature import Prior, rule, weighed

__all__ = ["count_posterior", "pool_posterior", "unlinked_posterior"]

_CHUNK = 256  # users a task


def pool_posterior(
    evidence: npt.NDArray[np.float64],
    *,
    prefixes: Sequence[int],
    nodes: int | None = None,
    gamma_prior: Prior | None = None,
    delta_prior: Prior | None = None,
    pool_prior: npt.NDArray[np.float64] | None = None,
    threads: int = 2,
) -> npt.NDArray[np.float64]:
    """Pr[preferred pool = i | the first n submissions], for each n of ``prefixes``: (users, prefixes, k), rows add to 1.

    ``evidence`` (users, n, k + 1) is, for a submission and a pool (0 is the neutral one), Σ_{z∈P_i} p̂(z)/p̂(P_i)·Pr[x̃ | z]
    up to a constant of each submission, as ``evidence.evidence_for`` computes it.

    Model (Gadotti et al. 2022, equations 2 to 4): the person picks the neutral pool with probability 1 − γ, the preferred
    one with γδ, each other with γ(1 − δ)/(k − 1), then an object by popularity, n times independently. The score

        score_i = ∫_0^1 ∫_{1/k}^1 Π_t [γδ·E_i + γ(1 − δ)/(k − 1)·(Σ_{j≥1} E_j − E_i) + (1 − γ)·E_0] dδ dγ

    is an integral over (γ, δ) themselves, so it has no Jacobian; the integrand is a polynomial of degree n in each, exact
    with ``quadrature.exact_nodes(n)`` Gauss–Legendre nodes a side. ``nodes`` (default ``quadrature.default_nodes``, far below
    1e-10 off where measured) serves all prefixes. Products are kept with integer exponents of their own for each
    node, so nothing under- or overflows, whatever n.

    Priors (Appendix A.6): ``gamma_prior`` and ``delta_prior`` are densities at arrays of γ in (0, 1) and δ in (1/k, 1), up
    to a constant (exactness is then the quadrature's for that density), ``pool_prior`` (k,) weighs the pools; all uniform
    by default. ``threads`` changes no number.

    Not claimed: that people behave as the model says; the posterior is calibrated only for those who do.

    Raises:
        UsageError: shapes that do not fit, prefixes that do not rise within 1 … n, evidence that is negative, not finite or
            all 0 for a submission, or a prior that is no density.
    """
    evidence = np.ascontiguousarray(evidence, np.float64)
    if evidence.ndim != 3 or evidence.shape[2] < 3:
        raise UsageError(f"evidence of shape {evidence.shape}: must be (users, n, k + 1), two pools or more")
    users, n, width = evidence.shape
    _check_prefixes(prefixes, n)
    evidence = evidence[:, : prefixes[-1]]
    if evidence.size and not (np.isfinite(evidence).all() and evidence.min() >= 0 and evidence.max(axis=2).min() > 0):
        raise UsageError("evidence: must be finite and ≥ 0, and above 0 for some pool at every submission")
    k = width - 1
    x, w = rule(prefixes[-1], nodes)
    about_gamma = weighed(w, gamma_prior, x, name="gamma_prior")
    about_delta = weighed(w, delta_prior, (1 + (k - 1) * x) / k, name="delta_prior")
    g, a = about_gamma > 0, about_delta > 0  # where a prior is 0, products could outgrow all that count
    gamma, polarisation, weights = x[g], x[a], np.outer(about_gamma[g], about_delta[a])
    slots, ends = _layout(prefixes)
    scores = np.empty((users, len(prefixes), k))

    def work(start: int) -> None:
        rows = slice(start, start + _CHUNK)
        fill_log_scores(evidence[rows], slots, ends, gamma, polarisation, weights, HALVES, scores[rows])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(0, users, _CHUNK)))
    return normalized(scores, pool_prior)


def unlinked_posterior(
    evidence: npt.NDArray[np.float64], *, pool_prior: npt.NDArray[np.float64] | None = None
) -> npt.NDArray[np.float64]:
    """What single submissions say of their senders, (n, k), for ``evidence`` (n, k + 1) of submissions that nobody can link.

    Each submission is a person of its own to an adversary who cannot tell which submissions come from one device (a
    shuffler's outputs): :func:`pool_posterior` with n = 1. The integral is E_0/2 + M/4 + E_i/4, M the mean of E_1 … E_k.

    Raises:
        UsageError: as :func:`pool_posterior`.
    """
    evidence = np.asarray(evidence, np.float64)
    return pool_posterior(evidence[:, None, :], prefixes=(1,), pool_prior=pool_prior)[:, 0]


def _check_prefixes(prefixes: Sequence[int], n: int) -> None:
    rising = all(a < b for a, b in itertools.pairwise(prefixes))
    if not len(prefixes) or prefixes[0] < 1 or prefixes[-1] > n or not rising:
        raise UsageError(f"prefixes={tuple(prefixes)}: must rise, from 1 at least to {n} at most")


def _layout(prefixes: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each observation goes, and where each prefix ends, when prefixes are filled up to whole blocks."""
    slots: list[int] = []
    ends: list[int] = []
    before, end = 0, 0
    for prefix in prefixes:
        slots += range(end, end + prefix - before)
        end += -(-(prefix - before) // BLOCK) * BLOCK
        ends.append(end)
        before = prefix
    return np.array(slots), np.array(ends)
