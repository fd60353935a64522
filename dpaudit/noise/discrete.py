"""Discrete Gaussian and discrete Laplace noise on the integers, drawn exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpaudit.accounting.discrete import discrete_gaussian_bounds, discrete_laplace_bounds
from dpaudit.claims import Claim
from dpaudit.numeric.drawing import cpu_sample
from dpaudit.numeric.exact_integers import IntegerLaw, draw_integers
from dpaudit.numeric.lattice import release_on_lattice
from dpaudit.protocols import Array, Host, Stream
from dpaudit.types import EpsilonBounds

__all__ = ["DiscreteGaussian", "DiscreteLaplace"]


class _IntegerNoise:
    """What both laws share: a claim, exact integers, and releases of whole-number queries."""

    dim = None
    _name: ClassVar[str]
    _parameter: ClassVar[str]
    _reach: ClassVar[int]
    """In units of the parameter: larger noise has a probability below e^−2000."""

    def __init__(self, value: float, law: Callable[[float], IntegerLaw]) -> None:
        self._claim = Claim.parse(f"{self._name}:{self._parameter}={_plain(value)!r}")
        self._law = law(self._claim.scale)

    @property
    def claim(self) -> str:
        return f"{self._name}:{self._parameter}={self._claim.scale!r}"

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of one coordinate."""
        return self._claim.standard_deviation

    @cpu_sample(exact=True)
    def sample(self, n: int, d: int, *, stream: Stream) -> npt.NDArray[np.floating]:
        """``n`` vectors of integers, shape (n, d), from ``Stream.bytes``."""
        return draw_integers(n * d, self._law, stream=stream).reshape(n, d) * 1.0

    def release(self, query: Array, *, stream: Stream) -> Array:
        """``query`` (n, d) plus noise, in exact integers; same shape, dtype and device back.

        Raises:
            UsageError: not floating-point of shape (n, d); a value that is not a whole number, or
                above 2^53 − 64σ (discrete Laplace: 2^53 − 2^11·b).
        """
        return release_on_lattice(
            query,
            law=self._law,
            margin=math.ceil(self._reach * self._claim.scale),
            granularity=1.0,
            whole=True,
            stream=stream,
            name=self._name,
        )


class DiscreteGaussian(_IntegerNoise):
    """P(z) ∝ exp(−z²/2σ²) on the integers, exactly.

    The proof is in ``dpaudit.numeric.exact_integers``.

    Threat model: as for ``secure-gaussian``. Formal guarantee, for whole-number queries of L2
    sensitivity Δ: Δ²/2σ²-zCDP (Canonne, Kamath and Steinke 2020, Theorem 4, in each coordinate).
    Not claimed: constant time; that a refusal is private; anything about how the query was counted.
    """

    _name, _parameter, _reach = "discrete-gaussian", "sigma", 64

    def __init__(self, *, sigma: float = 10.0) -> None:
        """``sigma`` is the law's parameter, at most 1e5.

        The standard deviation (:attr:`sigma`) is a little less.

        Raises:
            UsageError: not a number above 0 and at most 1e5.
        """
        super().__init__(sigma, IntegerLaw.gaussian)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """For whole-number queries: ``dpaudit.accounting.discrete.discrete_gaussian_bounds``."""
        scale, sensitivity = self._claim.scale, host.sensitivity
        return discrete_gaussian_bounds(delta, scale=scale, sensitivity=sensitivity, dim=host.dim)


class DiscreteLaplace(_IntegerNoise):
    """P(z) ∝ exp(−|z|/b) on the integers, exactly: two-sided geometric noise.

    Ghosh, Roughgarden and Sundararajan 2012.

    Threat model: as for ``secure-gaussian``. Formal guarantee, for whole-number queries of L1
    sensitivity Δ₁: Δ₁/b-DP. Not claimed: constant time; that a refusal is private; anything about
    how the query was counted.
    """

    _name, _parameter, _reach = "discrete-laplace", "scale", 2048

    def __init__(self, *, scale: float = 10.0) -> None:
        """``scale`` is b, at most 1e5.

        Raises:
            UsageError: not a number above 0 and at most 1e5.
        """
        super().__init__(scale, IntegerLaw.laplace)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """For whole-number queries: ``dpaudit.accounting.discrete.discrete_laplace_bounds``."""
        scale, sensitivity = self._claim.scale, host.sensitivity
        return discrete_laplace_bounds(delta, scale=scale, sensitivity=sensitivity, dim=host.dim)


def _plain(number: float) -> float:
    """Python's own number for one of numpy's, whose ``repr`` is not a number."""
    return float(number) if isinstance(number, np.number) else number
