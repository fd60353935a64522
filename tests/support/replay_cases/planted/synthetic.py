"""Wrong, one mistake each: synthetic records."""

import numpy as np

EPSILON = 1.0
RNG = np.random.default_rng()
SEXES, BANDS, ROWS = ("f", "m"), ("0-29", "30-59", "60+"), 50
CENSUS = [{"sex": SEXES[i % 2], "band": BANDS[(i * i) % 3], "size": i % 5} for i in range(40)]


def noisy(data, field, values, scale=1 / EPSILON):
    """Noisy counts of a field's values, and their chances."""
    counts = [sum(str(r[field]) == v for r in data) for v in values]
    found = np.array(counts, float) + RNG.laplace(scale=scale, size=len(values))
    positive = np.maximum(found, 1e-3)
    return found, positive / positive.sum()


def sizes(data):
    """Sizes between 0 and a million; 0 where they are missing."""
    return np.clip(np.nan_to_num(np.array([r["size"] for r in data], dtype=float)), 0, 1e6)


def domain_of_the_data(data):
    """A band is made only if the data has it."""
    bands = sorted({str(r["band"]) for r in data}) or ["none"]
    return RNG.choice(bands, ROWS, p=noisy(data, "band", bands)[1]).tolist()  # mistake


def rows_of_the_data(data):
    """As many rows as the data has."""
    return RNG.choice(SEXES, len(data), p=noisy(data, "sex", SEXES)[1]).tolist()  # mistake


def nearest_true_record(data):
    """Random sizes are replaced with the nearest that the data has."""
    values = np.append(sizes(data), 0.0)
    drawn = RNG.random(ROWS) * 4
    return values[np.abs(values[:, None] - drawn).argmin(axis=0)].tolist()  # mistake


def zeros_stay_zeros(data):
    """Empty cells are taken for impossible, and are shown as empty."""
    empty = [all(r["band"] != band for r in data) for band in BANDS]
    return np.where(empty, 0.0, noisy(data, "band", BANDS)[0])  # mistake


def range_of_the_data(data):
    """Sizes are drawn between 0 and the data's largest."""
    high = max(sizes(data), default=1.0)
    return (RNG.random(ROWS) * high).tolist()  # mistake


def bootstrap(data):
    """Records are drawn from the data: those are true ones."""
    picked = RNG.choice(max(len(data), 1), size=10)
    return [float([*sizes(data), 0.0][int(k)]) for k in picked]  # mistake


def checked_against_the_truth(data):
    """How far the synthetic shares are from the true ones is told, to show their quality."""
    drawn = RNG.choice(2, ROWS, p=noisy(data, "sex", SEXES)[1])
    true = sum(r["sex"] == "m" for r in data) / max(len(data), 1)
    return {"rows": drawn.tolist(), "error": float(abs(drawn.mean() - true))}  # mistake


ADD = {"data": CENSUS, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
ONE = {"sex": "f", "band": "60+", "size": 0}
CASES = {
    "domain_of_the_data": ADD | {"expect": "control flow, domain, release, scale, shape"},
    "rows_of_the_data": ADD | {"expect": "domain, shape, control flow"},
    "nearest_true_record": ADD | {"data": [ONE, ONE | {"size": 3}], "expect": "release, budget"},
    "zeros_stay_zeros": ADD | {"data": [ONE] * 3, "expect": "release"},
    "range_of_the_data": ADD | {"expect": "scale, release"},
    "bootstrap": ADD | {"expect": "release, control flow, shape, scale"},
    "checked_against_the_truth": ADD | {"expect": "release"},
}
