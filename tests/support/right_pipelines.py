"""Pipelines that keep their claim: a replay must find nothing in them."""

import json
import math
import random
import secrets

import numpy as np
import pandas as pd
import scipy

CITIES = ["Bonn", "Graz", "Wien"]
DATA = [
    {"age": 34, "city": "Bonn"}, {"age": 51, "city": "Graz"}, {"age": 28, "city": "Bonn"},
    {"age": 67, "city": "Wien"}, {"age": 45, "city": "Graz"},
]  # fmt: skip
BOUNDS = {"age": (0, 100), "city": CITIES}


def _frame(data):
    return pd.DataFrame(data, columns=["age", "city"])


def _counts(data):
    return np.array([sum(r["city"] == city for r in data) for city in CITIES], float)


def _ages(data):
    return np.clip(np.array([r["age"] for r in data], float), 0, 100)


def series(data):
    counts = _frame(data)["city"].value_counts().reindex(CITIES, fill_value=0)
    return counts + np.random.default_rng().laplace(scale=1.0, size=3)


def column_of_noise(data):
    table = _frame(data).groupby("city").size().reindex(CITIES, fill_value=0).to_frame("n")
    table["noise"] = np.random.laplace(0, 1.0, 3)
    table["noisy"] = table["n"] + table["noise"]
    return table[["noisy"]]


def noisy_mean(data):
    rng = np.random.default_rng()
    total = float(_ages(data).sum()) + float(rng.laplace(scale=100 / 0.5))
    count = len(data) + rng.laplace(scale=1 / 0.5)
    return {"mean": round(total / max(count, 1.0), 1), "count": round(count)}


def in_place(data):
    counts = _counts(data)
    counts += np.random.default_rng().laplace(scale=1.0, size=3)
    return np.maximum(counts, 0).round().tolist()


def sliced(data):
    noise = np.random.default_rng().laplace(scale=1.0, size=3)
    return {
        city: n + noise[i] for i, (city, n) in enumerate(zip(CITIES, _counts(data), strict=True))
    }


def inverse(data):
    u = secrets.SystemRandom().random() - 0.5
    return len(data) - math.copysign(1, u) * math.log(1 - 2 * abs(u))


def geometric(data):
    rng, p = np.random.default_rng(), 1 - math.exp(-1.0)
    return len(data) + int(rng.geometric(p)) - int(rng.geometric(p))


def discrete(data):
    """Noise of whole coins, which no arithmetic follows: k heads of 400 fair coins."""
    return len(data) + sum(random.getrandbits(1) for _ in range(400)) - 200


def threshold(data):
    limit = 3 + np.random.laplace(0, 2.0)
    for i, n in enumerate(_counts(data)):
        if n + np.random.laplace(0, 4.0) >= limit:
            return i
    return None


def noisy_maximum(data):
    return CITIES[int(np.argmax(_counts(data) + np.random.gumbel(scale=2.0, size=3)))]


def exponential_mechanism(data):
    scores = 0.5 * _counts(data)
    weights = np.exp(scores - scores.max())
    return CITIES[np.random.default_rng().choice(3, p=weights / weights.sum())]


def distribution(data):
    return len(data) + scipy.stats.laplace.rvs(scale=1.0)


def accumulated(data):
    total = np.random.laplace(0, 100.0)
    for age in _ages(data):
        total += age
    return total


def descent(data):
    rng, weight = np.random.default_rng(), np.zeros(1)
    for _ in range(3):
        slopes = np.clip(_ages(data) / 100 - weight, -1, 1)
        weight = weight + 0.1 * (slopes.sum() + rng.laplace(scale=6.0, size=1)) / 5
    return weight.tolist()


def clusters(data):
    x, rng = _ages(data).reshape(-1, 1) / 100, np.random.default_rng()
    centres = np.array([[0.2], [0.8]])
    for _ in range(3):
        near = np.abs(x - centres.T).argmin(1) if len(x) else np.zeros(0, int)
        n = np.bincount(near, minlength=2) + rng.laplace(scale=6.0, size=2)
        sums = np.array([x[near == k].sum(0) for k in range(2)])
        centres = np.clip(
            (sums + rng.laplace(scale=6.0, size=(2, 1))) / np.maximum(n, 1)[:, None], 0, 1
        )
    return centres


def parties(data):
    return sum((len(data) if k == 0 else 0) + random.gauss(0, 5.0) for k in range(4))


def text(data):
    return json.dumps({"n": round(len(data) + random.gauss(0, 5), 2)})


def tensor(data):
    import torch

    counts = torch.tensor(_counts(data), dtype=torch.float32)
    counts += torch.normal(0.0, 5.0, counts.shape)
    return counts.round().clamp(min=0).tolist()


def clipped_at_noisy_bound(data):
    rng = np.random.default_rng()
    bound = min(max(50 + len(data) + rng.laplace(scale=2.0), 1.0), 100.0)
    return np.minimum(_ages(data), bound).sum() + rng.laplace(scale=2 * bound)


GAUSSIAN = ("parties", "text", "tensor", "discrete")
UNKNOWN = ("discrete", "noisy_maximum")
"""Whose law the replay does not know, so that it cannot check a claim."""
