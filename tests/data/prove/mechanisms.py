"""Whole mechanisms, from fair coins: the first argument is the data, two neighbours are compared.

Noise is two-sided geometric, P(x) ∝ (a/b)^|x|: discrete Laplace noise whose unit of privacy loss is
t = ln(b/a), so that a claimed ε is the logarithm of a rational. ``bugs.toml`` changes one line of
this file at a time.

The six variants of sparse vector are those of Lyu, Su and Li 2017 (*Understanding the Sparse
Vector Technique*, arXiv 1603.01699, figure 1), with this noise in place of Laplace noise. 1 and 2
are right; 3 to 6 are as they were published, and are not as private as they claim.
"""

from __future__ import annotations

import secrets

from right import below  # this folder


def geometric(a, b):
    """P(k) ∝ (a/b)^k, k ≥ 0."""
    k = 0
    while below(b) < a:
        k += 1
    return k


def two_sided(a, b):
    """P(x) ∝ (a/b)^|x|."""
    while True:
        size = geometric(a, b)
        negative = secrets.randbits(1)
        if negative and size == 0:
            continue
        return -size if negative else size


def answer(value=0):
    """Randomised response among five: the truth with probability 1/2, else any. ε = ln 6."""
    if secrets.randbits(1):
        return value
    return below(5)


def geometric_mechanism(value=0):
    """A count with noise (Ghosh, Roughgarden and Sundararajan 2009). ε = ln(4/3)."""
    return value + two_sided(3, 4)


def truncated_geometric(value=0):
    """The same, clamped to 0 … 4. ε = ln(4/3)."""
    return min(max(value + two_sided(3, 4), 0), 4)


def noisy_max(counts=(2, 1, 1)):
    """The index of the largest noisy count, the first of several. ε = ln 4."""
    best, index = None, 0
    for i, count in enumerate(counts):
        noisy = count + two_sided(1, 2)
        if best is None or noisy > best:
            best, index = noisy, i
    return index


def noisy_max_one_sided(counts=(2, 1, 1)):
    """The same with one-sided noise (Ding, Kifer and others 2021). ε = ln 4."""
    best, index = None, 0
    for i, count in enumerate(counts):
        noisy = count + geometric(1, 2)
        if best is None or noisy > best:
            best, index = noisy, i
    return index


def exponential_mechanism(losses=(0, 1, 3)):
    """In base 2 (Ilvento 2020): P(i) ∝ 2^−loss. ε = ln 4."""
    weights = [2 ** (max(losses) - loss) for loss in losses]
    rest = below(sum(weights))
    for i, weight in enumerate(weights):
        if rest < weight:
            return i
        rest -= weight
    return None


def permute_and_flip(losses=(0, 1, 3)):
    """Candidates in random order, each taken with 2^−(loss − the least). ε = ln 4.

    McKenna and Sheldon 2020.
    """
    left = list(range(len(losses)))
    least = min(losses)
    while True:
        i = left.pop(below(len(left)))
        if secrets.randbits(losses[i] - least) == 0:
            return i


def sparse_vector_1(answers, threshold=1):
    """Algorithm 1, one positive answer: ε = 4t with t = ln 2."""
    bound = threshold + two_sided(1, 4)
    said = 0
    for count in answers:
        if count + two_sided(1, 2) >= bound:
            return said
        said += 1
    return said


def sparse_vector_2(answers, threshold=1):
    """Algorithm 2 (Dwork and Roth 2014), two positive answers: ε = 8t; the bound is drawn anew."""
    bound = threshold + two_sided(1, 4)
    said, positive = 1, 0
    for count in answers:
        above = count + two_sided(1, 2) >= bound
        said = 2 * said + above
        if above:
            positive += 1
            if positive == 2:
                return said
            bound = threshold + two_sided(1, 4)
    return said


def sparse_vector_3(answers, threshold=1):
    """Algorithm 3 (Roth 2011): the noisy answer itself is released. ε = 4t is claimed."""
    bound = threshold + two_sided(1, 4)
    said = 0
    for count in answers:
        noisy = count + two_sided(1, 4)
        if noisy >= bound:
            return said, noisy
        said += 1
    return said, None


def sparse_vector_4(answers, threshold=1):
    """Algorithm 4 (Lee and Clifton 2014), one positive answer: ε = 4t is claimed, it is 7t."""
    bound = threshold + two_sided(1, 2)
    said = 0
    for count in answers:
        if count + two_sided(1, 8) >= bound:
            return said
        said += 1
    return said


def sparse_vector_5(answers, threshold=1):
    """Algorithm 5 (Stoddard, Chen and Machanavajjhala 2014): answers without noise, no end."""
    bound = threshold + two_sided(1, 4)
    said = 1
    for count in answers:
        said = 2 * said + (count >= bound)
    return said


def sparse_vector_6(answers, threshold=1):
    """Algorithm 6 (Chen, Xiao, Zhang and Xu 2015): no bound on the positive answers."""
    bound = threshold + two_sided(1, 4)
    said = 1
    for count in answers:
        said = 2 * said + (count + two_sided(1, 4) >= bound)
    return said
