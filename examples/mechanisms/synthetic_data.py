"""Two generators of synthetic people; a release is a data frame. Claimed: ε = 1."""

import numpy as np
import pandas as pd

CITIES = ["Bonn", "Graz", "Oslo"]
ROWS = 20
rng = np.random.default_rng()


def drawn(people):
    """Rows from a noisy table of decades and cities, which is 1-DP by itself."""
    table = np.zeros((10, len(CITIES)))
    for person in people:
        if person["city"] in CITIES:
            table[min(max(person["age"], 0), 99) // 10, CITIES.index(person["city"])] += 1
    weights = np.maximum(table + rng.laplace(size=table.shape), 1e-9).ravel()
    cells = rng.choice(weights.size, size=ROWS, p=weights / weights.sum())
    ages = 10 * (cells // len(CITIES)) + rng.integers(10, size=ROWS)
    return [(int(age), CITIES[cell % len(CITIES)]) for age, cell in zip(ages, cells, strict=True)]


def marginals(people):
    return pd.DataFrame(drawn(people), columns=["age", "city"])


def copies(people):
    """The same, but a row in fifty is a copy of a real one."""
    rows = drawn(people)
    for i in np.flatnonzero(rng.random(ROWS) < 0.02) if people else ():
        real = people[rng.integers(len(people))]
        rows[i] = real["age"], real["city"]
    return pd.DataFrame(rows, columns=["age", "city"])
