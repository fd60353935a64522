"""The posterior probability of each pool, given one person's submissions.

The double integral is compiled: products at all nodes of (γ, a), exponents kept apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.errors import UsageError

__all__ = [
    "check_prefixes",
    "count_posterior",
    "default_nodes",
    "exact_nodes",
    "normalize",
    "pool_posterior",
    "unlinked_posterior",
]

_BLOCK = 8
"""Factors multiplied between two looks at the exponents."""

_HALVES = 2.0 ** -np.arange(1100.0)

_jit: Any = numba.njit(
    nogil=True, cache=True, boundscheck=False, error_model="numpy", fastmath={"contract"}
)


@_jit
def _fill_factors(evidence, slots, neutral, slope, tilt):  # type: ignore[no-untyped-def]
    """One person's factors (see :func:`_fill_log_scores`), from ``evidence`` (n, k + 1).

    Rows are first divided by their largest entry.
    """
    n, width = evidence.shape
    for t in range(n):
        largest, mean = evidence[t, 0], 0.0
        for i in range(1, width):
            largest = max(largest, evidence[t, i])
            mean += evidence[t, i]
        mean /= (width - 1) * largest
        s = slots[t]
        neutral[s] = evidence[t, 0] / largest
        slope[s] = mean - neutral[s]
        for i in range(width - 1):
            tilt[i, s] = evidence[t, i + 1] / largest - mean


@_jit
def _add_products(  # type: ignore[no-untyped-def]
    base, d, step, ends, weights, product, exponent, total, top
):
    """Add to each prefix's ``total``·2^``top`` the sum over ``step`` of the products up to it.

    After each block of :data:`_BLOCK` factors the exponents go into integers, one for each node.
    """
    nodes = step.size
    bits = product.view(np.int64)
    product[:], exponent[:] = 1.0, 0
    s = 0
    for b in range(ends.size):
        while s < ends[b]:
            c0, c1, c2, c3 = base[s], base[s + 1], base[s + 2], base[s + 3]
            c4, c5, c6, c7 = base[s + 4], base[s + 5], base[s + 6], base[s + 7]
            d0, d1, d2, d3 = d[s], d[s + 1], d[s + 2], d[s + 3]
            d4, d5, d6, d7 = d[s + 4], d[s + 5], d[s + 6], d[s + 7]
            for q in range(nodes):
                x = step[q]
                first = ((c0 + x * d0) * (c1 + x * d1)) * ((c2 + x * d2) * (c3 + x * d3))
                second = ((c4 + x * d4) * (c5 + x * d5)) * ((c6 + x * d6) * (c7 + x * d7))
                product[q] *= first * second
            for q in range(nodes):
                e = (bits[q] >> 52) - 1023
                exponent[q] += e
                bits[q] -= e << 52
            s += 8
        here = exponent.max()
        part = 0.0
        for q in range(nodes):
            part += weights[q] * product[q] * _HALVES[min(here - exponent[q], _HALVES.size - 1)]
        if here > top[b]:
            total[b] *= _HALVES[min(here - top[b], _HALVES.size - 1)]
            top[b] = here
            total[b] += part
        else:
            total[b] += part * _HALVES[min(top[b] - here, _HALVES.size - 1)]


@_jit
def _fill_log_scores(evidence, slots, ends, x, weights, out):  # type: ignore[no-untyped-def]
    """Logarithms of scores into ``out`` (users, prefixes, k), from ``evidence`` (users, n, k + 1).

    A factor is E_0 + γ(M − E_0) + γa(E_i − M), where M is the mean of E_1 … E_k and a = (kδ − 1)/(k
    − 1); γ and a are at the nodes ``x``, with ``weights`` (nodes of γ, nodes of a). As evidence is
    divided by its largest entry, a factor is at most 1 and at least (1 − γ)(1 − a)γ/k at a node:
    far above 2^-127 for any number of nodes one would use, and a block of 8 stays a normal double.

    ``slots[t]`` is where observation t goes when every prefix is filled up to whole blocks with
    factors of 1, ``ends`` the prefixes' ends in that layout. ``contract`` alone of fast mathematics
    is allowed: a product and a sum may be rounded once instead of twice.
    """
    users, _, width = evidence.shape
    k, length = width - 1, ends[-1]
    neutral, slope, tilt = np.ones(length), np.zeros(length), np.zeros((k, length))
    product, exponent = np.empty(x.size), np.empty(x.size, np.int64)
    total, top = np.empty((k, ends.size)), np.empty((k, ends.size), np.int64)
    for u in range(users):
        _fill_factors(evidence[u], slots, neutral, slope, tilt)
        total[:], top[:] = 0.0, -(1 << 62)
        for p in range(x.size):
            base, step = neutral + x[p] * slope, x[p] * x
            for i in range(k):
                _add_products(
                    base, tilt[i], step, ends, weights[p], product, exponent, total[i], top[i]
                )
        for b in range(ends.size):
            for i in range(k):
                out[u, b, i] = np.log(total[i, b]) + top[i, b] * 0.6931471805599453


def normalize(log_scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """exp(log_scores) scaled to sum to 1 over the last axis, the pools."""
    scores: npt.NDArray[np.float64] = np.exp(log_scores - log_scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def exact_nodes(observations: int) -> int:
    """⌈(n + 1)/2⌉: with this number of nodes the integral of a polynomial of degree n is exact.

    >>> exact_nodes(7), exact_nodes(180)
    (4, 91)
    """
    return (observations + 2) // 2


def default_nodes(observations: int) -> int:
    """2.9·√n rounded up to a multiple of 8, or :func:`exact_nodes` where that is less.

    The integrand is as wide as 1/√n. Largest errors of a posterior, 20 to 40 people of uniform γ
    and δ each, against exact nodes, for evidence of a Count Mean Sketch (ε = 4, six pools of 228,
    weak and strong; ε = 8, three pools of 5; ε = 4, six pools of 10 with Zipf exponent 4) and for
    objects in the clear: n = 7 and 30 (exact); n = 90 (32 nodes) 2e-14; n = 180 (40 nodes) 2e-13;
    there 32 nodes give 2e-9, 24 nodes 2e-6.
    """
    return min(exact_nodes(observations), 8 * math.ceil(2.9 * math.sqrt(observations) / 8))


@cache
def unit_rule(nodes: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Gauss–Legendre nodes in (0, 1), rising, and weights that add up to 1.

    Raises:
        UsageError: fewer than one node.
    """
    if nodes < 1:
        raise UsageError(f"nodes={nodes}: quadrature needs at least 1 node per side")
    x, w = np.polynomial.legendre.leggauss(nodes)
    return (x + 1) / 2, w / 2


_TINY = 1e-280  # below this scipy's function loses digits to underflow


def count_posterior(counts: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Pr[preferred pool = i | how many objects of each pool], shape (…, k).

    For ``counts`` (…, k + 1), the neutral pool first. With objects in the clear the score of
    ``pool_posterior`` separates: γ integrates to the same for all pools, and with n_i objects of
    pool i and N of all pools of interest

        score_i ∝ (k − 1)^(n_i) ∫_{1/k}^1 δ^(n_i) (1 − δ)^(N − n_i) dδ,

    an upper incomplete beta function, taken in logarithms (where it is below 1e-280, by its power
    series of positive terms). The objects' popularity drops out (the paper's footnote 4), so weak
    and strong are one.

    Raises:
        UsageError: no whole numbers ≥ 0, or fewer than two pools of interest.

    >>> count_posterior(np.array([5, 0, 0, 0])).round(3).tolist()
    [0.333, 0.333, 0.333]
    """
    counts = np.asarray(counts)
    if (
        counts.ndim < 1
        or counts.shape[-1] < 3
        or not np.issubdtype(counts.dtype, np.integer)
        or (counts < 0).any()
    ):
        raise UsageError(
            f"counts of shape {counts.shape}: whole numbers ≥ 0, of neutral and two or more pools"
        )
    k = counts.shape[-1] - 1
    here = counts[..., 1:].astype(np.float64)
    others = here.sum(axis=-1, keepdims=True) - here
    upper = scipy.special.betaincc(here + 1, others + 1, 1 / k)
    with np.errstate(divide="ignore"):
        log_upper = np.log(upper)
    for at in np.argwhere(upper < _TINY):
        log_upper[tuple(at)] = _log_tail(here[tuple(at)], others[tuple(at)], k)
    return normalize(here * np.log(k - 1) + scipy.special.betaln(here + 1, others + 1) + log_upper)


def _log_tail(here: float, others: float, k: int) -> float:
    """The logarithm of I_x(b, a) at x = 1 − 1/k, b = others + 1, a = here + 1: a power series.

    I_x(b, a) = x^b (1 − x)^a/(b·B(a, b))·Σ_j (a + b)_j/(b + 1)_j·x^j (DLMF 8.17.8), all terms
    positive.
    """
    a, b, x = here + 1, others + 1, 1 - 1 / k
    term = total = 1.0
    j = 0
    while term > total * 1e-17:
        term *= x * (a + b + j) / (b + 1 + j)
        total += term
        j += 1
    return float(
        b * np.log(x) + a * np.log1p(-x) - np.log(b) - scipy.special.betaln(a, b) + np.log(total)
    )


_CHUNK = 256  # users per task


def pool_posterior(
    evidence: npt.NDArray[np.float64],
    *,
    prefixes: Sequence[int],
    nodes: int | None = None,
    threads: int = 2,
) -> npt.NDArray[np.float64]:
    """Pr[preferred pool = i | the first n submissions], for each n of ``prefixes``.

    Shape (users, prefixes, k); rows add to 1. ``evidence`` (users, n, k + 1) is, for a submission
    and a pool (0 is the neutral one), Σ_{z∈P_i} p̂(z)/p̂(P_i)·Pr[x̃ | z] up to a constant of each
    submission, as ``evidence.evidence_for`` computes it.

    Model (Gadotti et al. 2022, equations 2 to 4): the person picks the neutral pool with
    probability 1 − γ, the preferred one with γδ, each other with γ(1 − δ)/(k − 1), then an object
    by popularity, n times independently. The score

        score_i = ∫_0^1 ∫_{1/k}^1 Π_t [γδ·E_i + γ(1 − δ)/(k − 1)·(Σ_{j≥1} E_j − E_i) + (1 − γ)·E_0]
        dδ dγ

    is an integral over (γ, δ) themselves, so it has no Jacobian; the integrand is a polynomial of
    degree n in each, exact with ``exact_nodes(n)`` Gauss–Legendre nodes per side. ``nodes``
    (default ``default_nodes``, far below 1e-10 off where measured) serves all prefixes. Products
    are kept with integer exponents of their own for each node, so nothing under- or overflows,
    whatever n.

    γ, δ and the preferred pool are uniform. ``threads`` changes no number.

    Not claimed: that people behave as the model says; the posterior is calibrated only for those
    who do.

    Raises:
        UsageError: shapes that do not fit, prefixes that do not rise within 1 … n, evidence that is
            negative, not finite or all 0 for a submission.
    """
    evidence = np.ascontiguousarray(evidence, np.float64)
    if evidence.ndim != 3 or evidence.shape[2] < 3:
        raise UsageError(
            f"evidence of shape {evidence.shape}: must be (users, n, k + 1), two pools or more"
        )
    users, n, width = evidence.shape
    check_prefixes(prefixes, n)
    evidence = evidence[:, : prefixes[-1]]
    if evidence.size and not (
        np.isfinite(evidence).all() and evidence.min() >= 0 and evidence.max(axis=2).min() > 0
    ):
        raise UsageError(
            "evidence: must be finite and ≥ 0, and above 0 for some pool at every submission"
        )
    x, w = unit_rule(default_nodes(prefixes[-1]) if nodes is None else nodes)
    weights = np.outer(w, w)
    slots, ends = _layout(prefixes)
    scores = np.empty((users, len(prefixes), width - 1))

    def work(start: int) -> None:
        rows = slice(start, start + _CHUNK)
        _fill_log_scores(evidence[rows], slots, ends, x, weights, scores[rows])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(0, users, _CHUNK)))
    return normalize(scores)


def unlinked_posterior(evidence: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Posteriors (n, k) of the senders of single submissions that cannot be linked.

    For ``evidence`` (n, k + 1). Each submission is a person of its own to an adversary who cannot
    tell which submissions come from one device (a shuffler's outputs): :func:`pool_posterior` with
    n = 1. The integral is E_0/2 + M/4 + E_i/4, M the mean of E_1 … E_k.

    Raises:
        UsageError: as :func:`pool_posterior`.
    """
    evidence = np.asarray(evidence, np.float64)
    return pool_posterior(evidence[:, None, :], prefixes=(1,))[:, 0]


def check_prefixes(prefixes: Sequence[int], n: int) -> None:
    """Refuse (``UsageError``) prefixes of ``n`` submissions that do not rise within 1 … n."""
    rising = all(a < b for a, b in itertools.pairwise(prefixes))
    if not len(prefixes) or prefixes[0] < 1 or prefixes[-1] > n or not rising:
        raise UsageError(f"prefixes={tuple(prefixes)}: must rise within 1 … {n}")


def _layout(prefixes: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Places of observations and ends of prefixes, with prefixes filled up to whole blocks."""
    slots: list[int] = []
    ends: list[int] = []
    before, end = 0, 0
    for prefix in prefixes:
        slots += range(end, end + prefix - before)
        end += -(-(prefix - before) // _BLOCK) * _BLOCK
        ends.append(end)
        before = prefix
    return np.array(slots), np.array(ends)
