"""diffprivlib: GaussianNB adds noise for upper - lower to sums, which one label moves by x."""

import numpy as np
from diffprivlib.models import GaussianNB

years = np.full((100, 1), 1976.0)


def shows(labels):
    model = GaussianNB(epsilon=3.0, bounds=(1956, 2006), priors=[0.5, 0.5]).fit(years, labels)
    count = model.class_count_[0]  # noisy, and released with the model
    return 49 <= count <= 50 and model.theta_[0, 0] * count > 98_400


for first in (50, 49):  # one person's label differs
    labels = np.repeat([0, 1], [first, 100 - first])
    hits = sum(map(shows, [labels] * 4000))
    print(f"{first} people in the first class: {hits} of 4000 fits add up to above 98,400")
