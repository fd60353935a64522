"""diffprivlib: GaussianNB adds noise for upper - lower to sums, which one label moves by x."""

import numpy as np
from diffprivlib.models import GaussianNB

years = np.full((100, 1), 1976.0)
before = np.repeat([0, 1], 50)
after = before.copy()
after[49] = 1  # one person is in the other class


def share(labels, runs=4000):
    hits = 0
    for _ in range(runs):
        model = GaussianNB(epsilon=1.0, bounds=(1926, 2026), priors=[0.5, 0.5]).fit(years, labels)
        n = model.class_count_[0]  # noisy, and released
        hits += n == 50 and model.theta_[0, 0] * n > 50 * 1976
    return hits / runs


for labels in (before, after):
    print(f"{share(labels):.4f} of fits have a first class of 50 with a mean above 1976")
