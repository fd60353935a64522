"""Wrong, one mistake each: arrays with noise of a numpy generator."""

import numpy as np

EPSILON = 1.0
RNG = np.random.default_rng()
EDGES = np.array([0, 20, 40, 60, 80, 100])
AGES = [float(18 + (11 * i) % 70) for i in range(40)]
CODES = [float(i % 4) for i in range(20)]
ROWS = [[((3 * i) % 10) / 10, ((7 * i) % 10) / 10 - 0.5] for i in range(25)]


def column(data):
    """The finite numbers of the data set, within ±10⁶."""
    values = np.asarray(data, dtype=float).reshape(-1)
    return values[np.isfinite(values)].clip(-1e6, 1e6)


def histogram(data):
    """Counts in fixed bins."""
    return np.histogram(column(data), bins=EDGES)[0].astype(float)


def range_beside_the_histogram(data):
    """The bins are fixed; the least and the largest value are told as well."""
    noisy = histogram(data) + RNG.laplace(scale=1 / EPSILON, size=5)
    return noisy.tolist(), (min(column(data), default=0), max(column(data), default=0))  # mistake


def edges_of_the_data(data):
    """The bins lie between the least and the largest value: one record moves many counts."""
    counts = np.histogram(column(data), bins=5)[0]
    return counts + RNG.laplace(scale=1 / EPSILON, size=5)  # mistake


def length_of_the_largest_code(data):
    """bincount without minlength: its length is the largest code."""
    counts = np.bincount(np.clip(column(data), 0, 9).astype(int))
    return counts + RNG.laplace(scale=1 / EPSILON, size=len(counts))  # mistake


def divided_by_the_maximum(data):
    """Values are divided by their maximum: one record moves all others."""
    values = np.clip(column(data), 0, None)
    shares = values / max(values.max(initial=0), 1e-9)
    return shares.sum() + RNG.laplace(scale=1 / EPSILON)  # mistake


def one_draw_for_all(data):
    """One number of noise is broadcast over the histogram."""
    return histogram(data) + RNG.laplace(scale=1 / EPSILON)  # mistake


def filled_bins_only(data):
    """Empty bins get no noise."""
    counts = histogram(data)
    filled = counts > 0
    counts[filled] += RNG.laplace(scale=1 / EPSILON, size=int(filled.sum()))  # mistake
    return counts


def first_bin_forgotten(data):
    """An index is off by one: the first bin has no noise."""
    counts = histogram(data)
    counts[1:] += RNG.laplace(scale=1 / EPSILON, size=len(counts) - 1)  # mistake
    return counts


def noise_on_a_copy(data):
    """astype makes a copy: the noise goes there."""
    counts = histogram(data)
    noisy = counts.astype(np.float64)
    noisy += RNG.laplace(scale=1 / EPSILON, size=5)
    return np.maximum(counts, 0)  # mistake


def norm_of_all_rows(data):
    """The rows are scaled by the norm of the whole matrix, with noise for a row's."""
    rows = np.clip(np.nan_to_num(np.asarray(data, dtype=float).reshape(-1, 2)), -1e6, 1e6)
    rows = rows / max(float(np.linalg.norm(rows)) / 10, 1.0)
    return rows.sum(axis=0) + RNG.normal(0, 4.0, 2)  # mistake


def type_of_the_data(data: np.ndarray):
    """The result is cut to whole numbers if the data is of such."""
    noisy = np.bincount(np.clip(column(data), 0, 3).astype(int), minlength=4) + RNG.laplace(size=4)
    return noisy.astype(int if (column(data) % 1 == 0).all() else float)  # mistake


def rounds_of_the_data(data):
    """There are as many rounds of noise as tens of records."""
    tens = min(len(data) // 10, 3)
    return [len(data) + RNG.laplace(scale=3 / EPSILON) for _ in range(tens)]  # mistake


def sums_of_the_truth(data):
    """Noise for one count each, on cumulated counts: a record moves all of them."""
    return np.cumsum(histogram(data)) + RNG.laplace(scale=1 / EPSILON, size=5)  # mistake


def bound_of_a_percentile(data):
    """The clipping bound is a percentile of the data, and so is the scale."""
    values = np.clip(column(data), 0, None)
    bound = max(float(np.percentile(values, 95)), 1e-9) if len(values) else 1.0
    return np.clip(values, 0, bound).sum() + RNG.laplace(scale=bound / EPSILON)  # mistake


def mean_of_many(data):
    """A hundred noisy histograms are averaged: the noise goes."""
    each = [histogram(data) + RNG.laplace(scale=1 / EPSILON, size=5) for _ in range(100)]  # mistake
    return np.mean(each, axis=0)


PURE = {"epsilon": EPSILON, "delta": 0.0}
ADD = {"data": AGES, "adjacency": "add-remove", "claim": PURE}
PAIRS = ADD | {"data": ROWS, "claim": {"epsilon": EPSILON, "delta": 1e-5}}
CASES = {
    "range_beside_the_histogram": ADD | {"expect": "release"},
    "edges_of_the_data": ADD | {"expect": "budget"},
    "length_of_the_largest_code": ADD | {"data": CODES, "expect": "control flow, shape"},
    "divided_by_the_maximum": ADD | {"expect": "budget"},
    "one_draw_for_all": ADD | {"expect": "reuse"},
    "filled_bins_only": ADD | {"data": [30.0] * 9, "expect": "control flow, shape"},
    "first_bin_forgotten": ADD | {"expect": "release"},
    "noise_on_a_copy": ADD | {"expect": "release"},
    "norm_of_all_rows": PAIRS | {"expect": "budget"},
    "type_of_the_data": ADD | {"data": CODES, "expect": "domain"},
    "rounds_of_the_data": ADD | {"data": AGES[:20], "expect": "control flow"},
    "sums_of_the_truth": ADD | {"expect": "budget"},
    "bound_of_a_percentile": ADD | {"expect": "scale"},
    "mean_of_many": ADD | {"expect": "budget"},
}
