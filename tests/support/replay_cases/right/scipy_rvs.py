"""Right: noise of SciPy's distributions."""

import numpy as np
from scipy import stats

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
BLOOD = ("A", "B", "AB", "O")
PATIENTS = [{"blood": BLOOD[i % 4], "dose": (i % 6) / 5} for i in range(32)]


def counts(data):
    """Counts of public blood groups; others are not counted."""
    return np.array([sum(r["blood"] == b for r in data) for b in BLOOD], dtype=float)


def dose(data):
    """The sum of doses in [0, 1]; 0 where one is missing."""
    values = np.array([r["dose"] for r in data], dtype=float)
    return np.clip(np.nan_to_num(values), 0, 1).sum()


def count_laplace_location(data):
    """The count as the location."""
    return float(stats.laplace.rvs(loc=len(data), scale=1 / EPSILON))


def counts_norm_size(data):
    """Normal noise of a size."""
    return counts(data) + stats.norm.rvs(scale=SIGMA, size=len(BLOOD))


def counts_frozen(data):
    """A frozen distribution, drawn for each group."""
    noise = stats.laplace(scale=1 / EPSILON)
    return {b: float(c + noise.rvs()) for b, c in zip(BLOOD, counts(data), strict=True)}


def count_dlaplace(data):
    """Discrete Laplace noise: its parameter is ε."""
    return int(len(data) + stats.dlaplace.rvs(EPSILON))


def dose_ppf(data):
    """Laplace noise by the quantile function."""
    u = np.clip(np.random.default_rng().random(), 1e-15, 1 - 1e-15)
    return dose(data) + stats.laplace.ppf(u, scale=1 / EPSILON)


def dose_generator_given(data):
    """A generator is passed on; no seed."""
    rng = np.random.default_rng()
    noisy = dose(data) + stats.laplace.rvs(scale=2 / EPSILON, random_state=rng)
    people = len(data) + stats.laplace.rvs(scale=2 / EPSILON, random_state=rng)
    return noisy / max(people, 1)


PURE, APPROXIMATE = {"epsilon": EPSILON, "delta": 0.0}, {"epsilon": EPSILON, "delta": DELTA}
ADD = {"data": PATIENTS, "adjacency": "add-remove", "claim": PURE}
CASES = {
    "count_laplace_location": ADD,
    "counts_norm_size": ADD | {"claim": APPROXIMATE},
    "counts_frozen": ADD,
    "count_dlaplace": ADD,
    "dose_ppf": ADD,
    "dose_generator_given": ADD,
}
