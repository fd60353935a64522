"""Right: mechanisms and tools of diffprivlib, with bounds and budgets stated.

The library's tools are for data sets of a known size, one record replaced; its histogram and its
mechanisms are used here for one record more or less.
"""

import numpy as np
from diffprivlib import BudgetAccountant, mechanisms, tools

EPSILON, DELTA = 1.0, 1e-5
AGES = [float(20 + (9 * i) % 60) for i in range(30)]
JOBS = ("nurse", "baker", "pilot")
STAFF = [{"job": JOBS[i % 3]} for i in range(20)]


def numbers(data):
    """The numbers of the data set; a missing one counts as 0."""
    return np.nan_to_num(np.asarray(data, dtype=float).reshape(-1))


def count_laplace(data):
    """A count by the Laplace mechanism."""
    return mechanisms.Laplace(epsilon=EPSILON, sensitivity=1).randomise(len(data))


def sum_gaussian_analytic(data):
    """A sum of clipped ages."""
    total = float(np.clip(numbers(data), 0, 100).sum())
    mech = mechanisms.GaussianAnalytic(epsilon=EPSILON, delta=DELTA, sensitivity=100)
    return mech.randomise(total)


def jobs_geometric(data):
    """Counts of public jobs, each record in one."""
    mech = mechanisms.Geometric(epsilon=EPSILON, sensitivity=1)
    return {job: mech.randomise(sum(r["job"] == job for r in data)) for job in JOBS}


def common_job(data):
    """The exponential mechanism over public jobs."""
    utility = [sum(r["job"] == job for r in data) for job in JOBS]
    mech = mechanisms.Exponential(
        epsilon=EPSILON, sensitivity=1, utility=utility, candidates=list(JOBS)
    )
    return mech.randomise()


def nurses_locally(data):
    """Each record's bit is flipped by a coin of its own."""
    mech = mechanisms.Binary(epsilon=EPSILON, value0="no", value1="yes")
    return [mech.randomise("yes" if r["job"] == "nurse" else "no") for r in data]


def mean_tool(data):
    """The mean of a known number of records."""
    return float(tools.mean(numbers(data), epsilon=EPSILON, bounds=(0, 100)))


def histogram_tool(data):
    """A histogram with a fixed range."""
    counts, _ = tools.histogram(numbers(data), epsilon=EPSILON, bins=5, range=(0, 100))
    return counts.tolist()


def two_tools_one_accountant(data):
    """A sum and a count of a known number of records, half of ε each."""
    accountant = BudgetAccountant(EPSILON, 0)
    half = EPSILON / 2
    values = numbers(data)
    total = tools.sum(values, epsilon=half, bounds=(0, 100), accountant=accountant)
    old = tools.count_nonzero(values >= 65, epsilon=half, accountant=accountant)
    return {"sum": float(total), "old": int(old)}


PURE, APPROXIMATE = {"epsilon": EPSILON, "delta": 0.0}, {"epsilon": EPSILON, "delta": DELTA}
ADD = {"data": AGES, "adjacency": "add-remove", "claim": PURE}
REPLACE = {"data": AGES, "adjacency": "replace", "claim": PURE}
CASES = {
    "count_laplace": ADD,
    "sum_gaussian_analytic": ADD | {"claim": APPROXIMATE},
    "jobs_geometric": ADD | {"data": STAFF},
    "common_job": ADD | {"data": STAFF},
    "nurses_locally": REPLACE | {"data": STAFF},
    "mean_tool": REPLACE,
    "histogram_tool": ADD,
    "two_tools_one_accountant": REPLACE,
}
