"""Wrong, one mistake each: mechanisms and tools of diffprivlib."""

import warnings

import numpy as np
from diffprivlib import BudgetAccountant, mechanisms, tools

EPSILON = 1.0
AGES = [float(20 + (9 * i) % 60) for i in range(30)]
JOBS = ("nurse", "baker", "pilot")
STAFF = [{"job": JOBS[i % 3]} for i in range(20)]


def numbers(data):
    """The numbers of the data set within ±10⁶; a missing one counts as 0."""
    values = np.nan_to_num(np.asarray(data, dtype=float).reshape(-1))
    return np.clip(values, -1e6, 1e6)


def sensitivity_of_a_count(data):
    """A sum of values up to 100 with the sensitivity of a count."""
    total = float(np.clip(numbers(data), 0, 100).sum())
    return mechanisms.Laplace(epsilon=EPSILON, sensitivity=1).randomise(total)


def sensitivity_without_clipping(data):
    """The sensitivity is for values up to 100, which nothing enforces."""
    return mechanisms.Laplace(epsilon=EPSILON, sensitivity=100).randomise(
        float(numbers(data).sum())
    )


def sensitivity_of_the_data(data):
    """The sensitivity is the largest value."""
    values = np.clip(numbers(data), 0, None)
    mech = mechanisms.Laplace(epsilon=EPSILON, sensitivity=max(float(values.max(initial=0)), 1.0))
    return mech.randomise(float(values.sum()))


def random_state_fixed(data):
    """An example's random_state stayed."""
    mech = mechanisms.Geometric(epsilon=EPSILON, sensitivity=1, random_state=7)
    return mech.randomise(len(data))


def histogram_without_range(data):
    """No range: the library takes the data's and warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts, edges = tools.histogram(numbers(data), epsilon=EPSILON, bins=4)
    return counts.tolist(), edges.tolist()


def mean_without_bounds(data):
    """No bounds: the library takes the data's and warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(tools.mean(numbers(data), epsilon=EPSILON))


def mean_of_unknown_size(data):
    """The tool is for a known number of records; here it is private."""
    values = numbers(data)
    return float(tools.mean(values, epsilon=EPSILON, bounds=(0, 100))) if len(values) else 0.0


def candidates_of_the_data(data):
    """The exponential mechanism over the jobs that the data has."""
    jobs = sorted({str(r["job"]) for r in data}) or ["none"]
    utility = [sum(str(r["job"]) == job for r in data) for job in jobs]
    mech = mechanisms.Exponential(epsilon=EPSILON, sensitivity=1, utility=utility, candidates=jobs)
    return mech.randomise()


def two_accountants(data):
    """Two budgets of ε each for one data set."""
    values = numbers(data)
    total = tools.sum(
        values, epsilon=EPSILON, bounds=(0, 100), accountant=BudgetAccountant(EPSILON, 0)
    )
    old = tools.count_nonzero(
        values >= 65, epsilon=EPSILON, accountant=BudgetAccountant(EPSILON, 0)
    )
    return {"sum": float(total), "old": int(old)}


def jobs_beside_the_noise(data):
    """Every job has its noise; the number of records has none."""
    mech = mechanisms.Geometric(epsilon=EPSILON, sensitivity=1)
    noisy = {job: mech.randomise(sum(r["job"] == job for r in data)) for job in JOBS}
    return {**noisy, "all": len(data)}


ADD = {
    "data": AGES,
    "adjacency": "add-remove",
    "claim": {"epsilon": EPSILON},
    "neighbour": [*AGES, 90.0],
}
FAR = {**ADD, "neighbour": [*AGES, 500.0]}
REPLACE = {**ADD, "adjacency": "replace", "neighbour": [*AGES[:-1], 500.0]}
JOBS_ADDED = {**ADD, "data": STAFF, "neighbour": [*STAFF, {"job": "spy"}]}
CASES = {
    "sensitivity_of_a_count": {**ADD, "expect": "sensitivity", "or": ["budget"]},
    "sensitivity_without_clipping": {**FAR, "expect": "sensitivity", "or": ["budget"]},
    "sensitivity_of_the_data": {**FAR, "expect": "scale"},
    "random_state_fixed": {**ADD, "expect": "seed"},
    "histogram_without_range": {**FAR, "expect": "release", "or": ["sensitivity", "budget"]},
    "mean_without_bounds": {**REPLACE, "expect": "scale"},
    "mean_of_unknown_size": {**ADD, "expect": "scale"},
    "candidates_of_the_data": {
        **JOBS_ADDED,
        "expect": "scale",
        "or": ["control flow", "domain", "sensitivity", "shape"],
    },
    "two_accountants": {
        **REPLACE,
        "data": [0.0] * 9,
        "neighbour": [*[0.0] * 8, 100.0],
        "expect": "budget",
    },
    "jobs_beside_the_noise": {**JOBS_ADDED, "expect": "release"},
}
