"""Right: arrays with noise of a numpy generator, added in the ways that numpy has."""

import numpy as np

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
EDGES = np.array([0, 20, 40, 60, 80, 100])
AGES = [float(18 + (11 * i) % 70) for i in range(40)]
ROWS = [[((3 * i) % 10) / 10, ((7 * i) % 10) / 10 - 0.5] for i in range(25)]


def column(data):
    """The finite numbers of the data set; the others are dropped."""
    values = np.asarray(data, dtype=float).reshape(-1)
    return values[np.isfinite(values)]


def histogram(data):
    """Counts in fixed bins."""
    return np.histogram(column(data), bins=EDGES)[0].astype(float)


def unit_rows(data):
    """Rows of two numbers, each scaled down to length 1 at most."""
    rows = np.asarray(data, dtype=float).reshape(-1, 2)
    rows = np.clip(np.nan_to_num(rows), -1e6, 1e6)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(norms, 1.0)


def histogram_laplace(data):
    """Noise of the histogram's shape; a record is in one bin."""
    counts = histogram(data)
    return counts + np.random.default_rng().laplace(scale=1 / EPSILON, size=counts.shape)


def histogram_in_place(data):
    """Noise added in place, then post-processing in place."""
    counts = histogram(data)
    counts += np.random.default_rng().laplace(0, 1 / EPSILON, len(EDGES) - 1)
    np.maximum(counts, 0, out=counts)
    return counts


def histogram_add_out(data):
    """The noise's own buffer takes the sum."""
    noise = np.random.default_rng().laplace(0, 1 / EPSILON, len(EDGES) - 1)
    np.add(histogram(data), noise, out=noise)
    return noise


def histogram_one_by_one(data):
    """A vector of noise, added number by number."""
    noise = np.random.default_rng().laplace(0, 1 / EPSILON, len(EDGES) - 1)
    return [round(float(c + n), 2) for c, n in zip(histogram(data), noise, strict=True)]


def histogram_as_location(data):
    """The counts as the location of the noise."""
    return np.random.default_rng().laplace(loc=histogram(data), scale=1 / EPSILON).tolist()


def histogram_float32(data):
    """Normal noise in single precision."""
    noise = np.random.default_rng().standard_normal(len(EDGES) - 1, dtype=np.float32)
    return histogram(data).astype(np.float32) + np.float32(SIGMA) * noise


def largest_bin(data):
    """The bin that is largest with noise, and its noisy count."""
    noisy = histogram_laplace(data)
    return {"bin": int(np.argmax(noisy)), "count": float(noisy.max())}


def vector_sum_standard_normal(data):
    """The same, with scaled standard normal noise, and its direction alone."""
    noisy = unit_rows(data).sum(axis=0) + SIGMA * np.random.default_rng().standard_normal(2)
    return noisy / max(float(np.linalg.norm(noisy)), 1e-9)


def vector_sum_multivariate(data):
    """The sum as the mean of a multivariate normal."""
    total = unit_rows(data).sum(axis=0)
    return np.random.default_rng().multivariate_normal(total, SIGMA**2 * np.eye(2))


def principal_direction(data):
    """Noise on the upper triangle of the scatter matrix; x xᵀ has norm 1 at most."""
    rows = unit_rows(data)
    noise = np.triu(np.random.default_rng().normal(0, SIGMA, (2, 2)))
    noisy = rows.T @ rows + noise + np.triu(noise, 1).T
    return np.linalg.eigvalsh(noisy)


def prefix_sums_by_tree(data):
    """Counts up to each of eight public hours, of a tree with four noisy levels."""
    rng = np.random.default_rng()
    hours = np.clip(column(data), 0, 7).astype(int)
    level = np.bincount(hours, minlength=8).astype(float)
    tree = []
    while len(level):
        tree.append(level + rng.laplace(0, 4 / EPSILON, len(level)))
        level = level.reshape(-1, 2).sum(axis=1) if len(level) > 1 else level[:0]
    sums = []
    for end in range(1, 9):
        parts, start = [], 0
        for height in (3, 2, 1, 0):
            if end >> height & 1:
                parts.append(tree[height][start >> height])
                start += 1 << height
        sums.append(float(sum(parts)))
    return sums


PURE, APPROXIMATE = {"epsilon": EPSILON, "delta": 0.0}, {"epsilon": EPSILON, "delta": DELTA}
NUMBERS = {"data": AGES, "adjacency": "add-remove", "claim": PURE}
PAIRS = {"data": ROWS, "adjacency": "add-remove", "claim": APPROXIMATE}
CASES = {
    "histogram_laplace": NUMBERS,
    "histogram_in_place": NUMBERS,
    "histogram_add_out": NUMBERS,
    "histogram_one_by_one": NUMBERS,
    "histogram_as_location": NUMBERS,
    "histogram_float32": NUMBERS | {"claim": APPROXIMATE},
    "largest_bin": NUMBERS,
    "vector_sum_standard_normal": PAIRS,
    "vector_sum_multivariate": PAIRS,
    "principal_direction": PAIRS,
    "prefix_sums_by_tree": NUMBERS | {"data": [float(i % 8) for i in range(30)]},
}
