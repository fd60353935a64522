"""Our compiled samplers in their plain Python forms, at the parameters that are proved."""

from __future__ import annotations

import references
from references import Trials

from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.numeric.exact_integers import IntegerLaw
from dpaudit_local.mechanisms.randomized_response import RandomizedResponse

GAUSSIAN = {sigma: Trials.of(IntegerLaw.gaussian(sigma)) for sigma in (2.0, 3.0, 100.0)}
LAPLACE = {scale: Trials.of(IntegerLaw.laplace(scale)) for scale in (1.0, 2.0, 10.0)}
SECURE = Trials.of(SecureGaussian(sigma=1.0, granularity=1 / 16)._law)
LIE_2 = RandomizedResponse(1.0).words[1]
LIE_5 = RandomizedResponse(0.5, categories=5).words[1]


def gaussian(sigma=2.0):
    return GAUSSIAN[sigma].draw()


def laplace(scale=2.0):
    return LAPLACE[scale].draw()


def secure_gaussian():
    """In units of the granularity: the discrete Gaussian at σ = 16."""
    return SECURE.draw()


def geometric_inversion(scale=2.0):
    return references.geometric_inversion(scale)


def answer(value=0):
    return references.k_ary_answer(value, LIE_2, 2)


def answer_of_5(value=0):
    return references.k_ary_answer(value, LIE_5, 5)


def biased_bit():
    return references.biased_bit(LIE_2)


def position():
    """Where a device looks: uniform on 0 … 11."""
    return references.below(12)


def choice():
    """What a Hadamard report draws: a function, a coordinate, and whether it lies."""
    return references.hadamard_choice(3, 4, LIE_2)


def laplace_mechanism(value=0, scale=2.0):
    """A count with our discrete Laplace noise: ε = 1/scale."""
    return value + laplace(scale)


def gaussian_mechanism(value=0, sigma=2.0):
    """A count with our discrete Gaussian noise."""
    return value + gaussian(sigma)
