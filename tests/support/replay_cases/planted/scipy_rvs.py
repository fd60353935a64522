"""Wrong, one mistake each: noise of SciPy's distributions."""

import numpy as np
from scipy import stats

EPSILON = 1.0
BLOOD = ("A", "B", "AB", "O")
PATIENTS = [{"blood": BLOOD[i % 4], "dose": (i % 6) / 5} for i in range(32)]


def counts(data):
    """Counts of public blood groups."""
    return np.array([sum(r["blood"] == b for r in data) for b in BLOOD], dtype=float)


def doses(data):
    """Doses in [0, 1]; 0 where one is missing."""
    values = np.array([r["dose"] for r in data], dtype=float)
    return np.clip(np.nan_to_num(values), 0, 1)


def random_state_fixed(data):
    """An example's random_state stayed."""
    return len(data) + stats.laplace.rvs(scale=1 / EPSILON, random_state=0)  # mistake


def random_state_twice(data):
    """The same random_state for two statistics."""
    state = int(np.random.default_rng().integers(1 << 31))
    count = len(data) + stats.laplace.rvs(scale=2 / EPSILON, random_state=state)
    return count, doses(data).sum() + stats.laplace.rvs(scale=2, random_state=state)  # mistake


def scale_of_the_largest(data):
    """The scale is the largest dose."""
    largest = max(float(doses(data).max(initial=0.0)), 0.1)
    return doses(data).sum() + stats.laplace.rvs(scale=largest / EPSILON)  # mistake


def noise_for_each_dose(data):
    """As many draws as records."""
    noise = stats.laplace.rvs(scale=1 / EPSILON, size=max(len(data), 1))  # mistake
    return float(doses(data).sum() + noise.sum())


def mean_as_location(data):
    """The mean moves by 1/2 where one record is half of the data, and the noise is for 1/32."""
    values = [0.0, *doses(data)]
    return stats.laplace.rvs(loc=np.mean(values), scale=1 / 32 / EPSILON)  # mistake


ADD = {"data": PATIENTS, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
HALVES = [{"blood": "A", "dose": 0.5}] * 9
CASES = {
    "random_state_fixed": ADD | {"expect": "seed"},
    "random_state_twice": ADD | {"expect": "reuse, seed"},
    "scale_of_the_largest": ADD | {"data": HALVES, "expect": "scale"},
    "noise_for_each_dose": ADD | {"expect": "control flow, shape"},
    "mean_as_location": ADD | {"data": PATIENTS[:2], "expect": "budget"},
}
