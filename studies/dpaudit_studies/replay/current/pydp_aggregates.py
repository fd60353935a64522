"""PyDP (python-dp) 1.1.5: mean, sum and count of ages; (3, 0)-DP, one record more or less."""

from pydp.algorithms.laplacian import BoundedMean, BoundedSum, Count


def run(data):
    """Three algorithms with ε = 1 each."""
    ages = [int(person["age"]) for person in data]
    bounds = {"lower_bound": 0, "upper_bound": 100, "dtype": "int"}
    return {
        "mean": BoundedMean(epsilon=1.0, **bounds).quick_result(ages),
        "sum": BoundedSum(epsilon=1.0, **bounds).quick_result(ages),
        "count": Count(epsilon=1.0, dtype="int").quick_result(ages),
    }
