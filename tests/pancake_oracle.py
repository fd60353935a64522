"""The pancake's profile towards its key holder by Lemma 2.6 on a dense grid, in small settings."""

import math

import numpy as np
import scipy.optimize
import scipy.special

from dpaudit.accounting import peak_spacing, peak_width


def log_mixture(x, *, sigma, beta, gamma):
    """ln f from Lemma 2.6: peaks kP of width s, weights ∝ exp(−πk²/r²); no theta function."""
    r2 = beta**2 + gamma**2
    reach = math.ceil(5.5 * math.sqrt(r2)) + 2
    k = np.arange(-reach, reach + 1)
    log_weight = -math.pi * k**2 / r2
    log_weight -= scipy.special.logsumexp(log_weight)
    width = peak_width(sigma=sigma, beta=beta, gamma=gamma)
    out = np.full(x.shape, -np.inf)
    for centre, weight in zip(
        k * peak_spacing(sigma=sigma, beta=beta, gamma=gamma), log_weight, strict=True
    ):
        out = np.logaddexp(out, weight - ((x - centre) / width) ** 2 / 2)
    return out - math.log(width * math.sqrt(2 * math.pi))


def by_definition(epsilons, *, sigma, beta, gamma, along, across, per_width=None):
    """E_f[δ_G(ε − l(x))] for each ε by definition: trapezoids over x, every peak covered."""
    delta = _profile(
        sigma=sigma, beta=beta, gamma=gamma, along=along, across=across, per_width=per_width
    )
    return [delta(epsilon) for epsilon in epsilons]


def epsilon_by_definition(delta, **law):
    """The ε at which :func:`by_definition` is ``delta``."""
    profile, high = _profile(per_width=None, **law), 1.0
    while profile(high) > delta:
        high *= 2
    return scipy.optimize.brentq(
        lambda e: math.log(profile(e) + 1e-300) - math.log(delta), 0.0, high, xtol=1e-7
    )


def _profile(*, sigma, beta, gamma, along, across, per_width):
    per_width = per_width or (120 if across < 0.1 * sigma else 40)  # kinks, or nearly
    step = peak_width(sigma=sigma, beta=beta, gamma=gamma) / per_width
    x = np.arange(-7.5 * sigma - along, 7.5 * sigma + along, step)
    log_f = log_mixture(x, sigma=sigma, beta=beta, gamma=gamma)
    loss = log_f - log_mixture(x - along, sigma=sigma, beta=beta, gamma=gamma)
    t = across / sigma

    def delta(epsilon):
        c = epsilon - loss
        if t == 0:
            inner = -np.expm1(np.minimum(c, 0))
        else:
            second = np.exp(np.minimum(c + scipy.special.log_ndtr(-t / 2 - c / t), 0))
            inner = scipy.special.ndtr(t / 2 - c / t) - second
        return float((np.exp(log_f) * inner).sum() * step)

    return delta
