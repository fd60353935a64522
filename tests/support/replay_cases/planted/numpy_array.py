"""Wrong, one mistake each: arrays with noise of a numpy generator."""

import numpy as np

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
EDGES = np.array([0, 20, 40, 60, 80, 100])
AGES = [float(18 + (11 * i) % 70) for i in range(40)]
CODES = [i % 4 for i in range(20)]
ROWS = [[((3 * i) % 10) / 10, ((7 * i) % 10) / 10 - 0.5] for i in range(25)]


def column(data):
    """The finite numbers of the data set, within ±10⁶."""
    values = np.asarray(data, dtype=float).reshape(-1)
    return values[np.isfinite(values)].clip(-1e6, 1e6)


def histogram(data):
    """Counts in fixed bins."""
    return np.histogram(column(data), bins=EDGES)[0].astype(float)


def laplace(size, scale=1 / EPSILON):
    """Fresh Laplace noise."""
    return np.random.default_rng().laplace(scale=scale, size=size)


def edges_of_the_data(data):
    """The bins lie between the least and the largest value, and are released."""
    counts, edges = np.histogram(column(data), bins=5)
    return {"counts": counts + laplace(5), "edges": edges}


def edges_of_the_data_hidden(data):
    """The same bins are not released: one record moves many counts."""
    return np.histogram(column(data), bins=5)[0] + laplace(5)


def edges_of_quantiles(data):
    """The bins are quantiles of the data."""
    values = column(data)
    edges = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]) if len(values) else np.zeros(5)
    return (np.histogram(values, bins=edges)[0] + laplace(4)).tolist(), edges[1:4].tolist()


def length_of_the_largest_code(data):
    """bincount without minlength: its length is the largest code."""
    counts = np.bincount(np.clip(column(data), 0, 9).astype(int))
    return counts + laplace(len(counts))


def divided_by_the_maximum(data):
    """Values are divided by their maximum: one record moves all others."""
    values = np.clip(column(data), 0, None)
    return (values / max(values.max(initial=0), 1e-9)).sum() + laplace(1)[0]


def one_draw_for_all(data):
    """One number of noise is broadcast over the histogram."""
    return histogram(data) + np.random.default_rng().laplace(scale=1 / EPSILON)


def filled_bins_only(data):
    """Empty bins get no noise."""
    counts = histogram(data)
    filled = counts > 0
    counts[filled] += laplace(int(filled.sum()))
    return counts


def first_bin_forgotten(data):
    """An index is off by one: the first bin has no noise."""
    counts = histogram(data)
    counts[1:] += laplace(len(counts) - 1)
    return counts


def order_of_the_truth(data):
    """The bins are listed in the order of their true counts."""
    counts = histogram(data)
    order = np.argsort(-counts, kind="stable")
    return [(int(k), float(n)) for k, n in zip(order, (counts + laplace(5))[order], strict=True)]


def noise_on_a_copy(data):
    """astype makes a copy: the noise goes there."""
    counts = histogram(data)
    noisy = counts.astype(np.float64)
    noisy += laplace(5)
    return np.maximum(counts, 0)


def rows_not_clipped(data):
    """Rows of any length with noise for length 1."""
    rows = np.clip(np.nan_to_num(np.asarray(data, dtype=float).reshape(-1, 2)), -1e6, 1e6)
    return rows.sum(axis=0) + np.random.default_rng().normal(0, SIGMA, 2)


def coordinates_clipped(data):
    """Each coordinate is clipped to 1: a row's length is √2."""
    rows = np.clip(np.nan_to_num(np.asarray(data, dtype=float).reshape(-1, 2)), -1, 1)
    return rows.sum(axis=0) + np.random.default_rng().normal(0, 3.8, 2)


def type_of_the_data(data):
    """The result has the type of the data: whole numbers, or not."""
    values = np.asarray(data)
    counts = np.bincount(np.clip(column(data), 0, 3).astype(int), minlength=4)
    return (counts + laplace(4)).astype(values.dtype if values.dtype.kind in "if" else float)


def rounds_of_the_data(data):
    """There are as many rounds of noise as tens of records."""
    return [float(len(data) + laplace(1)[0] * 3) for _ in range(min(len(data) // 10, 3))]


def sums_of_the_truth(data):
    """Noise for one count each, on cumulated counts: a record moves all of them."""
    return np.cumsum(histogram(data)) + laplace(5)


def bound_of_a_percentile(data):
    """The clipping bound is a percentile of the data, and so is the scale."""
    values = np.clip(column(data), 0, None)
    bound = max(float(np.percentile(values, 95)), 1e-9) if len(values) else 1.0
    return np.clip(values, 0, bound).sum() + laplace(1, bound / EPSILON)[0]


def whole_budget_twice(data):
    """Two tables with all of ε each."""
    coarse = np.histogram(column(data), bins=[0, 50, 100])[0]
    return np.concatenate([coarse + laplace(2), histogram(data) + laplace(5)])


def mean_noise_of_many(data):
    """A hundred noisy histograms are averaged: the noise goes."""
    return np.mean([histogram(data) + laplace(5) for _ in range(100)], axis=0)


PURE, APPROXIMATE = {"epsilon": EPSILON}, {"epsilon": EPSILON, "delta": DELTA}
NUMBERS = {"data": AGES, "adjacency": "add-remove", "claim": PURE, "neighbour": [*AGES, 99.0]}
FAR = {**NUMBERS, "neighbour": [*AGES, 500.0]}
CASES = {
    "edges_of_the_data": {**FAR, "expect": "release", "or": ["budget"]},
    "edges_of_the_data_hidden": {**FAR, "expect": "budget"},
    "edges_of_quantiles": {**FAR, "expect": "release", "or": ["budget"]},
    "length_of_the_largest_code": {
        **NUMBERS,
        "data": CODES,
        "neighbour": [*CODES, 6],
        "expect": "control flow",
        "or": ["shape"],
    },
    "divided_by_the_maximum": {**FAR, "expect": "budget"},
    "one_draw_for_all": {**NUMBERS, "expect": "reuse"},
    "filled_bins_only": {
        **NUMBERS,
        "data": [30.0] * 9,
        "neighbour": [*[30.0] * 9, 50.0],
        "expect": "control flow",
        "or": ["shape", "release"],
    },
    "first_bin_forgotten": {**NUMBERS, "neighbour": [*AGES, 5.0], "expect": "release"},
    "order_of_the_truth": {
        **NUMBERS,
        "data": [30.0] * 3 + [50.0] * 3,
        "neighbour": [30.0] * 3 + [50.0] * 4,
        "expect": "release",
    },
    "noise_on_a_copy": {**NUMBERS, "expect": "release"},
    "rows_not_clipped": {
        **NUMBERS,
        "data": ROWS,
        "neighbour": [*ROWS, [30.0, 40.0]],
        "claim": APPROXIMATE,
        "expect": "budget",
    },
    "coordinates_clipped": {
        **NUMBERS,
        "data": ROWS,
        "neighbour": [*ROWS, [1.0, 1.0]],
        "claim": APPROXIMATE,
        "expect": "budget",
    },
    "type_of_the_data": {
        **NUMBERS,
        "data": CODES,
        "neighbour": [*CODES, 2.0],
        "expect": "release",
        "or": ["domain"],
    },
    "rounds_of_the_data": {
        **NUMBERS,
        "data": AGES[:19],
        "neighbour": AGES[:20],
        "expect": "control flow",
    },
    "sums_of_the_truth": {**NUMBERS, "neighbour": [*AGES, 5.0], "expect": "budget"},
    "bound_of_a_percentile": {**FAR, "expect": "scale"},
    "whole_budget_twice": {**NUMBERS, "expect": "budget"},
    "mean_noise_of_many": {**NUMBERS, "expect": "budget"},
}
