"""Wrong, one mistake each: tables of pandas with noise on their cells."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

EPSILON = 1.0
RNG = np.random.default_rng()
CITIES = ["Bonn", "Graz", "Lyon"]
PEOPLE = [
    {"city": CITIES[i % 3], "age": 20 + (13 * i) % 60, "spent": float(5 * (i % 9))}
    for i in range(36)
]
DISTRICTS = pd.DataFrame({"city": [*CITIES, "Bonn", "Bonn", "Bonn"], "district": range(6)})


def table(data):
    """The data with numbers where they belong, NaN for others."""
    return data.assign(**{n: pd.to_numeric(data[n], errors="coerce") for n in ("age", "spent")})


def sizes(data):
    """Sizes of public cities."""
    return data.groupby("city").size().reindex(CITIES, fill_value=0)


def spent(data, high=40):
    """What each spent, up to a bound; 0 where it is missing."""
    return table(data)["spent"].astype(float).fillna(0).clip(0, high)


def groups_of_the_data(data):
    """No reindex: a city is there if a record has it."""
    counts = data.groupby("city").size()
    return (counts + RNG.laplace(scale=1 / EPSILON, size=len(counts))).to_dict()  # mistake


def number_of_cities(data):
    """Noisy sizes, and how many cities the data has."""
    noisy = sizes(data) + RNG.laplace(scale=1 / EPSILON, size=3)
    return {**noisy.to_dict(), "cities": int(data["city"].nunique())}  # mistake


def frame_before_the_noise(data):
    """assign returns a new frame, and the old one is released."""
    frame = sizes(data).rename("people").to_frame()
    frame.assign(people=frame["people"] + RNG.laplace(scale=1 / EPSILON, size=3))
    return frame  # mistake


def order_of_value_counts(data):
    """value_counts sorts by the true counts."""
    counts = data["city"][data["city"].isin(CITIES)].value_counts()
    order = list(dict.fromkeys([*counts.index, *CITIES]))
    noisy = counts.reindex(CITIES, fill_value=0) + RNG.laplace(scale=1 / EPSILON, size=3)
    return noisy.reindex(order)  # mistake


def means_of_groups(data):
    """Means by city with noise for groups of twelve."""
    means = spent(data).groupby(data["city"]).mean().reindex(CITIES).fillna(0)
    return means + RNG.laplace(scale=40 / 12 / EPSILON, size=3)  # mistake


def bands_of_the_data(data):
    """pd.cut with a number of bins lays them over the data's range."""
    ages = pd.concat([table(data)["age"].dropna().clip(0, 1e6), pd.Series([0.0, 1.0])])
    counts = pd.cut(ages, bins=4).value_counts(sort=False).to_numpy()
    return counts + RNG.laplace(scale=1 / EPSILON, size=4)  # mistake


def missing_values_counted(data):
    """How many ages are missing is told without noise."""
    people = len(data) + RNG.laplace(scale=1 / EPSILON)
    return {"people": people, "missing": int(data["age"].isna().sum())}  # mistake


def filled_with_the_mean(data):
    """Missing values are filled with the mean: one record moves all of them."""
    values = table(data)["spent"].astype(float).clip(0, 40)
    filled = values.fillna(values.mean()).fillna(0)
    return float(filled.sum() + RNG.laplace(scale=40 / EPSILON))  # mistake


def joined_four_times(data):
    """A join with districts makes four rows of each in Bonn."""
    counts = data.merge(DISTRICTS, on="city").groupby("city").size().reindex(CITIES, fill_value=0)
    return (counts + RNG.laplace(scale=1 / EPSILON, size=3)).to_dict()  # mistake


def truth_in_csv(data):
    """The file has true counts, the result has noisy ones."""
    sizes(data).to_csv(Path(tempfile.gettempdir()) / "cities.csv")  # mistake
    return sizes(data) + RNG.laplace(scale=1 / EPSILON, size=3)


ADD = {"data": PEOPLE, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
FEW = ADD | {"data": PEOPLE[:7]}
HOLES = [{**r, "spent": None if i > 2 else 0.0} for i, r in enumerate(PEOPLE)]
CASES = {
    "groups_of_the_data": ADD | {"expect": "control flow, shape, domain"},
    "number_of_cities": ADD | {"expect": "release"},
    "frame_before_the_noise": ADD | {"expect": "release"},
    "order_of_value_counts": FEW | {"expect": "release, domain"},
    "means_of_groups": FEW | {"expect": "budget"},
    "bands_of_the_data": ADD | {"expect": "budget"},
    "missing_values_counted": ADD | {"expect": "release"},
    "filled_with_the_mean": ADD | {"data": HOLES, "expect": "budget"},
    "joined_four_times": ADD | {"expect": "budget"},
    "truth_in_csv": ADD | {"expect": "output"},
}
