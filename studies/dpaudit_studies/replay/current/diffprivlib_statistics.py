"""diffprivlib 0.6.6: mean, variance, histogram, one accountant; (2, 0)-DP, one value changed."""

import diffprivlib as dp
import numpy as np


def run(data):
    """Three statistics of the ages; the accountant refuses to spend more than 2."""
    ages = np.array([person["age"] for person in data], dtype=float)
    accountant = dp.BudgetAccountant(epsilon=2.0, delta=0.0)
    how = {"accountant": accountant}
    mean = dp.tools.mean(ages, epsilon=0.5, bounds=(0, 100), **how)
    var = dp.tools.var(ages, epsilon=0.5, bounds=(0, 100), **how)
    counts, _ = dp.tools.histogram(ages, epsilon=0.5, bins=5, range=(0, 100), **how)
    return {"mean": mean, "var": var, "counts": counts.tolist()}
