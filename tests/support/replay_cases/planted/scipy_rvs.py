"""Wrong, one mistake each: noise of SciPy's distributions."""

import numpy as np
from scipy import stats

EPSILON, DELTA = 1.0, 1e-5
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
    return len(data) + stats.laplace.rvs(scale=1 / EPSILON, random_state=0)


def random_state_twice(data):
    """The same random_state for two statistics."""
    state = int(np.random.default_rng().integers(1 << 31))
    return {
        "count": len(data) + stats.laplace.rvs(scale=2 / EPSILON, random_state=state),
        "dose": doses(data).sum() + stats.laplace.rvs(scale=2 / EPSILON, random_state=state),
    }


def scale_of_the_largest(data):
    """The scale is the largest dose."""
    largest = max(float(doses(data).max(initial=0.0)), 0.1)
    return doses(data).sum() + stats.laplace.rvs(scale=largest / EPSILON)


def noise_for_each_dose(data):
    """As many draws as records."""
    values = doses(data)
    return float((values + stats.norm.rvs(scale=4, size=len(values))).sum())


def variance_as_scale(data):
    """A budget for a deviation of 4 is spent with one of 2: its root."""
    return counts(data) + stats.norm.rvs(scale=np.sqrt(4.0), size=4)


def mean_as_location(data):
    """The mean moves by 1 where one record is all the data, and the noise is for 1/32."""
    values = doses(data)
    return stats.laplace.rvs(loc=values.mean() if len(values) else 0.0, scale=1 / 32 / EPSILON)


MORE = [*PATIENTS, {"blood": "A", "dose": 0.9}]
ADD = {
    "data": PATIENTS,
    "adjacency": "add-remove",
    "claim": {"epsilon": EPSILON},
    "neighbour": MORE,
}
CASES = {
    "random_state_fixed": {**ADD, "expect": "seed"},
    "random_state_twice": {**ADD, "expect": "reuse", "or": ["seed"]},
    "scale_of_the_largest": {
        **ADD,
        "data": [{"blood": "A", "dose": 0.5}] * 9,
        "neighbour": [*[{"blood": "A", "dose": 0.5}] * 9, {"blood": "A", "dose": 1.0}],
        "expect": "scale",
    },
    "noise_for_each_dose": {
        **ADD,
        "claim": {"epsilon": EPSILON, "delta": DELTA},
        "expect": "control flow",
        "or": ["shape"],
    },
    "variance_as_scale": {
        **ADD,
        "claim": {"epsilon": EPSILON, "delta": DELTA},
        "expect": "budget",
    },
    "mean_as_location": {
        **ADD,
        "data": PATIENTS[:1],
        "neighbour": MORE[-1:] + PATIENTS[:1],
        "expect": "budget",
    },
}
