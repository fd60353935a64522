"""Wrong, one mistake each: tables of pandas with noise on their cells."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

EPSILON = 1.0
CITIES = ["Bonn", "Graz", "Lyon"]
PEOPLE = [
    {"city": CITIES[i % 3], "age": 20 + (13 * i) % 60, "spent": float(5 * (i % 9))}
    for i in range(36)
]
DISTRICTS = pd.DataFrame(
    {"city": ["Bonn", "Bonn", "Graz", "Lyon"], "district": ["b1", "b2", "g", "l"]}
)


def table(data):
    """The data as a frame, whose columns are there even if it is empty."""
    frame = pd.DataFrame(data, columns=["city", "age", "spent"])
    for name in ("age", "spent"):
        frame[name] = pd.to_numeric(frame[name], errors="coerce").astype(float)
    return frame


def noise(size, scale=1 / EPSILON):
    """Laplace noise."""
    return np.random.default_rng().laplace(scale=scale, size=size)


def sizes(data):
    """Sizes of public cities."""
    return table(data).groupby("city").size().reindex(CITIES, fill_value=0)


def groups_of_the_data(data):
    """No reindex: a city is there if a record has it."""
    counts = table(data).groupby("city").size()
    return (counts + noise(len(counts))).to_dict()


def number_of_cities(data):
    """Noisy sizes, and how many cities the data has."""
    noisy = (sizes(data) + noise(3)).to_dict()
    return {**noisy, "cities": int(table(data)["city"].nunique())}


def frame_before_the_noise(data):
    """assign returns a new frame, and the old one is released."""
    frame = sizes(data).rename("people").to_frame()
    frame.assign(people=frame["people"] + noise(3))
    return frame


def column_without_noise(data):
    """One column has noise, the other has none."""
    frame = table(data).fillna({"spent": 0}).assign(spent=lambda f: f["spent"].clip(0, 40))
    result = pd.DataFrame({"people": sizes(data) + noise(3)})
    result["spent"] = frame.groupby("city")["spent"].sum().reindex(CITIES, fill_value=0.0)
    return result


def order_of_value_counts(data):
    """value_counts sorts by the true counts."""
    counts = table(data)["city"].value_counts()
    counts = counts[counts.index.isin(CITIES)]
    missing = [c for c in CITIES if c not in counts.index]
    counts = pd.concat([counts, pd.Series(0, index=missing)])
    return [(city, float(n)) for city, n in (counts + noise(3)).items()]


def means_of_groups(data):
    """Means by city with noise for groups of twelve."""
    frame = table(data).fillna({"spent": 0}).assign(spent=lambda f: f["spent"].clip(0, 40))
    means = frame.groupby("city")["spent"].mean().reindex(CITIES).fillna(0)
    return means + noise(3, 40 / 12 / EPSILON)


def bands_of_the_data(data):
    """pd.cut with a number of bins lays them over the data's range."""
    ages = table(data)["age"].replace([np.inf, -np.inf], np.nan).dropna().clip(-1e6, 1e6)
    if ages.nunique() < 2:
        return [0.0] * 4 + noise(4)
    counts = pd.cut(ages, bins=4).value_counts(sort=False).to_numpy()
    return counts + noise(4)


def missing_values_counted(data):
    """How many ages are missing is told without noise."""
    missing = int(table(data)["age"].isna().sum())
    return {"people": float(len(data) + noise(1)[0]), "missing": missing}


def filled_with_the_mean(data):
    """Missing values are filled with the mean: one record moves all of them."""
    spent = table(data)["spent"].clip(0, 40)
    return float(spent.fillna(spent.mean()).fillna(0).sum() + noise(1, 40 / EPSILON)[0])


def joined_twice(data):
    """A join with districts doubles records of Bonn."""
    joined = table(data).merge(DISTRICTS, on="city")
    return (joined.groupby("city").size().reindex(CITIES, fill_value=0) + noise(3)).to_dict()


def least_and_largest(data):
    """A noisy sum is released with the range of the data."""
    spent = table(data)["spent"].fillna(0).clip(0, 40)
    return {
        "sum": float(spent.sum() + noise(1, 40 / EPSILON)[0]),
        "range": (float(spent.min()), float(spent.max())) if len(spent) else (0.0, 0.0),
    }


def empty_frame(data):
    """No noise for an empty frame."""
    frame = table(data)
    young = frame[frame["age"] < 30]
    if young.empty:
        return 0.0
    return float(len(young) + noise(1)[0])


def truth_in_csv(data):
    """The file has true counts, the result has noisy ones."""
    counts = sizes(data)
    counts.to_csv(Path(tempfile.gettempdir()) / "cities.csv")
    return counts + noise(3)


def share_of_the_largest(data):
    """Scaled by the largest true value."""
    spent = table(data)["spent"].fillna(0).clip(0, 1e6)
    return float((spent / max(spent.max(), 1e-9) if len(spent) else spent).sum() + noise(1)[0])


def first_row_only(data):
    """Noise lands in one cell of the column."""
    counts = sizes(data).astype(float)
    counts.iloc[0] += noise(1)[0]
    return counts


MORE = [*PEOPLE, {"city": "Bonn", "age": 44, "spent": 30.0}]
NEW = [*PEOPLE, {"city": "Rome", "age": 44, "spent": 30.0}]
FAR = [*PEOPLE, {"city": "Bonn", "age": 400, "spent": 900.0}]
ADD = {"data": PEOPLE, "adjacency": "add-remove", "claim": {"epsilon": EPSILON}, "neighbour": MORE}
FEW = PEOPLE[:7]
CASES = {
    "groups_of_the_data": {
        **ADD,
        "neighbour": NEW,
        "expect": "control flow",
        "or": ["shape", "domain"],
    },
    "number_of_cities": {**ADD, "neighbour": NEW, "expect": "release"},
    "frame_before_the_noise": {**ADD, "expect": "release"},
    "column_without_noise": {**ADD, "expect": "release"},
    "order_of_value_counts": {
        **ADD,
        "data": FEW,
        "neighbour": FEW[1:],
        "expect": "release",
        "or": ["domain", "budget"],
    },
    "means_of_groups": {
        **ADD,
        "data": FEW,
        "neighbour": [*FEW, {"city": "Bonn", "age": 44, "spent": 40.0}],
        "expect": "budget",
    },
    "bands_of_the_data": {**ADD, "neighbour": FAR, "expect": "budget"},
    "missing_values_counted": {
        **ADD,
        "neighbour": [*PEOPLE, {"city": "Bonn", "age": None, "spent": 0.0}],
        "expect": "release",
    },
    "filled_with_the_mean": {
        **ADD,
        "data": [{**r, "spent": None if i > 2 else 0.0} for i, r in enumerate(PEOPLE)],
        "neighbour": [
            *[{**r, "spent": None if i > 2 else 0.0} for i, r in enumerate(PEOPLE)],
            {"city": "Bonn", "age": 30, "spent": 40.0},
        ],
        "expect": "budget",
    },
    "joined_twice": {**ADD, "expect": "budget"},
    "least_and_largest": {
        **ADD,
        "data": PEOPLE[:3],
        "neighbour": [*PEOPLE[:3], {"city": "Bonn", "age": 44, "spent": 33.0}],
        "expect": "release",
    },
    "empty_frame": {
        **ADD,
        "data": PEOPLE[:1],
        "neighbour": [],
        "expect": "control flow",
        "or": ["release"],
    },
    "truth_in_csv": {**ADD, "expect": "output", "or": ["release"]},
    "share_of_the_largest": {**ADD, "neighbour": FAR, "expect": "budget"},
    "first_row_only": {**ADD, "neighbour": PEOPLE[:-1], "expect": "release"},
}
