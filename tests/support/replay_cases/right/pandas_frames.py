"""Right: tables of pandas whose groups are public, with noise on every cell."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
CITIES = ["Bonn", "Graz", "Lyon"]
EDGES, BANDS = [0, 30, 60, 120], ["young", "middle", "old"]
PEOPLE = [
    {"city": CITIES[i % 3], "age": 20 + (13 * i) % 60, "spent": float(5 * (i % 9))}
    for i in range(36)
]


def table(data):
    """The data as a frame, whose columns are there even if it is empty."""
    frame = pd.DataFrame(data, columns=["city", "age", "spent"])
    for name in ("age", "spent"):
        frame[name] = pd.to_numeric(frame[name], errors="coerce").astype(float)
    return frame


def noise(size, scale=1 / EPSILON):
    """Laplace noise."""
    return np.random.default_rng().laplace(scale=scale, size=size)


def city_sizes(data):
    """Sizes of public cities, noise as an array."""
    sizes = table(data).groupby("city").size().reindex(CITIES, fill_value=0)
    return sizes + noise(len(CITIES))


def city_value_counts(data):
    """The same by value_counts, as a dict."""
    counts = table(data)["city"].value_counts().reindex(CITIES).fillna(0)
    counts += noise(len(CITIES))
    return counts.round(1).to_dict()


def spent_by_city(data):
    """Sums of clipped values by city: a record moves one sum by 40 at most."""
    frame = table(data).fillna({"spent": 0}).assign(spent=lambda f: f["spent"].clip(0, 40))
    sums = frame.groupby("city")["spent"].sum().reindex(CITIES, fill_value=0.0)
    return (sums + noise(len(CITIES), 40 / EPSILON)).to_frame("spent")


def mean_by_city(data):
    """Noisy sums by noisy counts, half of ε each."""
    frame = table(data).fillna({"spent": 0}).assign(spent=lambda f: f["spent"].clip(0, 40))
    groups = frame.groupby("city")["spent"].agg(["sum", "count"]).reindex(CITIES, fill_value=0)
    noisy = pd.DataFrame(index=CITIES)
    noisy["sum"] = groups["sum"] + noise(3, 40 * 2 / EPSILON)
    noisy["count"] = groups["count"] + noise(3, 2 / EPSILON)
    return noisy["sum"] / noisy["count"].clip(lower=1)


def bands_by_city(data):
    """A table of two public keys."""
    frame = table(data)
    bands = pd.cut(frame["age"], bins=EDGES, labels=BANDS, include_lowest=True).astype(object)
    counts = pd.crosstab(frame["city"], bands)
    counts = counts.reindex(index=CITIES, columns=BANDS, fill_value=0)
    return counts + noise((len(CITIES), len(BANDS)))


def rows_by_apply(data):
    """A draw for each row inside apply along the rows."""
    rng = np.random.default_rng()
    sizes = table(data).groupby("city").size().reindex(CITIES, fill_value=0)
    counts = sizes.rename("n").to_frame()
    return counts.apply(lambda row: row["n"] + rng.laplace(0, 1 / EPSILON), axis=1)


def counts_by_map(data):
    """A draw for each number inside Series.map."""
    rng = np.random.default_rng()
    sizes = table(data).groupby("city").size().reindex(CITIES, fill_value=0)
    return sizes.map(lambda n: max(0.0, n + rng.laplace(0, 1 / EPSILON)))


def column_sums(data):
    """Sums of two columns in [0, 1] with normal noise; a record's length is √2 at most."""
    frame = table(data)[["age", "spent"]].fillna(0)
    frame = frame.clip(0, [100, 40], axis=1) / [100, 40]
    draws = np.random.default_rng().normal(0, SIGMA * np.sqrt(2), size=2)
    return (frame.sum() + draws).to_dict()


def query_count(data):
    """A count by query text."""
    return float(table(data).query("city == 'Graz' and age >= 30").shape[0] + noise(None))


def frame_as_csv(data):
    """A CSV file of noisy counts."""
    path = Path(tempfile.gettempdir()) / "noisy_cities.csv"
    city_sizes(data).rename("people").to_csv(path)
    return path.read_text()


def shares(data):
    """Shares of noisy counts, and a total of the same noisy counts."""
    noisy = city_sizes(data).clip(lower=0)
    total = float(noisy.sum())
    return {"total": total, **(noisy / max(total, 1.0)).to_dict()}


PURE, APPROXIMATE = {"epsilon": EPSILON, "delta": 0.0}, {"epsilon": EPSILON, "delta": DELTA}
ADD = {"data": PEOPLE, "adjacency": "add-remove", "claim": PURE}
CASES = {
    "city_sizes": ADD,
    "city_value_counts": ADD,
    "spent_by_city": ADD,
    "mean_by_city": ADD,
    "bands_by_city": ADD,
    "rows_by_apply": ADD,
    "counts_by_map": ADD,
    "column_sums": ADD | {"claim": APPROXIMATE},
    "query_count": ADD,
    "frame_as_csv": ADD,
    "shares": ADD,
}
