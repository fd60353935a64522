"""Wrong, one mistake each: mechanisms and tools of diffprivlib."""

import warnings

import numpy as np
from diffprivlib import BudgetAccountant, mechanisms, tools

EPSILON = 1.0
AGES = [float(20 + (9 * i) % 60) for i in range(30)]
JOBS = ("nurse", "baker", "pilot")
STAFF = [{"job": JOBS[i % 3]} for i in range(20)]


def numbers(data, high=1e6):
    """The numbers of the data set between 0 and a bound; a missing one counts as 0."""
    return np.clip(np.nan_to_num(np.asarray(data, dtype=float).reshape(-1)), 0, high)


def sensitivity_of_a_count(data):
    """A sum of values up to 100 with the sensitivity of a count."""
    mech = mechanisms.Laplace(epsilon=EPSILON, sensitivity=1)
    return mech.randomise(float(numbers(data, 100).sum()))  # mistake


def sensitivity_without_clipping(data):
    """The sensitivity is for values up to 100, which nothing enforces."""
    mech = mechanisms.Gaussian(epsilon=EPSILON, delta=1e-5, sensitivity=100)
    return mech.randomise(float(numbers(data).sum()))  # mistake


def sensitivity_of_the_data(data):
    """The sensitivity is the largest value."""
    largest = max(float(numbers(data).max(initial=0)), 1.0)
    mech = mechanisms.Laplace(epsilon=EPSILON, sensitivity=largest)
    return mech.randomise(float(numbers(data).sum()))  # mistake


def random_state_fixed(data):
    """An example's random_state stayed."""
    mech = mechanisms.Geometric(epsilon=EPSILON, sensitivity=1, random_state=7)
    return mech.randomise(len(data))  # mistake


def histogram_without_range(data):
    """No range: the library takes the data's and warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tools.histogram(numbers(data), epsilon=EPSILON, bins=4)[0].tolist()  # mistake


def mean_without_bounds(data):
    """No bounds: the library takes the data's and warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(tools.mean(numbers(data), epsilon=EPSILON))  # mistake


def mean_of_unknown_size(data):
    """The tool is for a known number of records; here it is private."""
    values = np.append(numbers(data, 100), 0.0)
    return float(tools.mean(values, epsilon=EPSILON, bounds=(0, 100)))  # mistake


def candidates_of_the_data(data):
    """The exponential mechanism over the jobs that the data has."""
    jobs = sorted({str(r["job"]) for r in data}) or ["none"]
    utility = [sum(str(r["job"]) == job for r in data) for job in jobs]
    mech = mechanisms.Exponential(epsilon=EPSILON, sensitivity=1, utility=utility, candidates=jobs)
    return mech.randomise()  # mistake


def four_accountants(data):
    """Four budgets of ε each for one data set."""
    told = []
    for age in (10, 20, 30, 40):
        budget, over = BudgetAccountant(EPSILON, 0), numbers(data) >= age
        told.append(tools.count_nonzero(over, epsilon=EPSILON, accountant=budget))  # mistake
    return told


ADD = {"data": AGES, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
REPLACE = ADD | {"adjacency": "replace"}
GAUSSIAN = ADD | {"claim": {"epsilon": EPSILON, "delta": 1e-5}}
CASES = {
    "sensitivity_of_a_count": ADD | {"expect": "sensitivity, budget"},
    "sensitivity_without_clipping": GAUSSIAN | {"expect": "sensitivity, budget"},
    "sensitivity_of_the_data": ADD | {"expect": "scale"},
    "random_state_fixed": ADD | {"expect": "seed"},
    "histogram_without_range": ADD | {"expect": "sensitivity, budget, release"},
    "mean_without_bounds": REPLACE | {"expect": "scale"},
    "mean_of_unknown_size": ADD | {"expect": "scale"},
    "candidates_of_the_data": ADD
    | {"data": STAFF, "expect": "scale, control flow, domain, sensitivity, shape"},
    "four_accountants": REPLACE | {"data": [0.0, 100.0] * 5, "expect": "budget"},
}
