"""Wrong, one mistake each: synthetic records."""

import numpy as np
import pandas as pd

EPSILON = 1.0
SEXES, BANDS = ("f", "m"), ("0-29", "30-59", "60+")
ROWS = 50
CENSUS = [{"sex": SEXES[i % 2], "band": BANDS[(i * i) % 3], "size": i % 5} for i in range(40)]


def counts(data, field, values):
    """Counts of public values of a field."""
    return np.array([sum(r[field] == v for r in data) for v in values], dtype=float)


def chances(noisy):
    """Probabilities of noisy counts."""
    positive = np.maximum(np.asarray(noisy, dtype=float), 1e-3)
    return positive / positive.sum()


def laplace(size, scale=1 / EPSILON):
    """Fresh Laplace noise."""
    return np.random.default_rng().laplace(scale=scale, size=size)


def domain_of_the_data(data):
    """A band is made only if the data has it."""
    bands = sorted({str(r["band"]) for r in data}) or ["none"]
    noisy = chances(counts(data, "band", bands) + laplace(len(bands)))
    return np.random.default_rng().choice(bands, ROWS, p=noisy).tolist()


def rows_of_the_data(data):
    """As many rows as the data has."""
    noisy = chances(counts(data, "sex", SEXES) + laplace(2))
    return pd.DataFrame({"sex": np.random.default_rng().choice(SEXES, len(data), p=noisy)})


def nearest_true_record(data):
    """A noisy mean is replaced with the nearest size that the data has."""
    sizes = np.clip(np.nan_to_num([float(r["size"] or 0) for r in data]), 0, 1e6)
    mean = np.minimum(sizes, 4).sum() / 40 + laplace(1, 4 / 40 / EPSILON)[0]
    return float(sizes[np.argmin(np.abs(sizes - mean))]) if len(sizes) else 0.0


def zeros_stay_zeros(data):
    """Empty cells are taken for impossible, and get no noise."""
    table = np.array([counts([r for r in data if r["sex"] == s], "band", BANDS) for s in SEXES])
    return np.where(table > 0, table + laplace((2, 3)), 0.0)


def margins_without_a_split(data):
    """Two margins with all of ε each."""
    rng = np.random.default_rng()
    sex = chances(counts(data, "sex", SEXES) + laplace(2))
    band = chances(counts(data, "band", BANDS) + laplace(3))
    return [
        (str(s), str(b))
        for s, b in zip(
            rng.choice(SEXES, ROWS, p=sex), rng.choice(BANDS, ROWS, p=band), strict=True
        )
    ]


def range_of_the_data(data):
    """Sizes are drawn between the data's least and largest."""
    sizes = [r["size"] for r in data if r["size"] is not None and r["size"] == r["size"]]
    low, high = (min(sizes), max(sizes)) if sizes else (0, 1)
    noisy = len(data) + laplace(1)[0]
    rows = min(max(round(float(noisy)), 1), 100)
    drawn = np.random.default_rng().random(rows)
    return {"low": low, "high": high, "sizes": (low + drawn * (high - low)).round().tolist()}


def bootstrap(data):
    """Records are drawn from the data: those are true ones."""
    if not data:
        return []
    picked = np.random.default_rng().choice(len(data), size=10)
    return [dict(data[int(k)]) for k in picked]


NEW = [*CENSUS, {"sex": "x", "band": "unknown", "size": 9}]
MORE = [*CENSUS, {"sex": "f", "band": "60+", "size": 4}]
ADD = {
    "data": CENSUS,
    "adjacency": "add-remove",
    "claim": {"epsilon": EPSILON},
    "neighbour": NEW,
}
CASES = {
    "domain_of_the_data": {
        **ADD,
        "expect": "control flow",
        "or": ["domain", "release", "scale", "shape"],
    },
    "rows_of_the_data": {**ADD, "expect": "release", "or": ["domain", "shape", "control flow"]},
    "nearest_true_record": {
        **ADD,
        "data": [{"sex": "f", "band": "60+", "size": 0}],
        "neighbour": [
            {"sex": "f", "band": "60+", "size": 0},
            {"sex": "f", "band": "60+", "size": 3},
        ],
        "expect": "release",
        "or": ["domain"],
    },
    "zeros_stay_zeros": {
        **ADD,
        "neighbour": MORE,
        "expect": "control flow",
        "or": ["release"],
    },
    "margins_without_a_split": {
        **ADD,
        "neighbour": MORE,
        "expect": "budget",
        "or": ["release"],
    },
    "range_of_the_data": {**ADD, "expect": "release"},
    "bootstrap": {**ADD, "expect": "release", "or": ["control flow", "shape", "domain"]},
}
