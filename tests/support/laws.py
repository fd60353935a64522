"""Differential privacy by its definition, for laws with outcomes that can be listed.

Every accounting here must equal it. A law gives each outcome its probability, as a mapping or as a
sequence in the order of outcomes; probabilities are floats, fractions, or numbers of mpmath, and
results are of the same kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal, localcontext

import numpy as np


def largest_ratio(laws):
    """e^ε of a release with one of these ``laws``: the largest likelihood ratio of any two."""
    listed = [law if isinstance(law, Mapping) else dict(enumerate(law)) for law in laws]
    chances = [
        [law.get(outcome, 0) for law in listed] for outcome in {o for law in listed for o in law}
    ]
    return max(max(p) / min(p) if min(p) else math.inf for p in chances if max(p))


def logarithm(ratio):
    """The natural logarithm of a fraction as a decimal of 50 digits."""
    with localcontext() as context:
        context.prec = 50
        return (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()


def hockey_stick(p, q, factor):
    """δ at ε = ln ``factor`` one way: Σ (p − factor·q)₊ over all outcomes; equal shapes."""
    if isinstance(p, Mapping):
        return sum(max(0 * factor, p.get(o, 0) - factor * q.get(o, 0)) for o in {*p, *q})
    return np.maximum(p - factor * q, 0).sum()


def profile(p, q, epsilon):
    """δ(ε) of two laws as arrays, the larger of both directions."""
    return max(hockey_stick(a, b, math.exp(epsilon)) for a, b in ((p, q), (q, p)))
