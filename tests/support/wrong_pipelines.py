"""Pipelines with one realistic mistake each; EXPECTED is what a replay must call it."""

import random
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

CITIES = ["Bonn", "Graz", "Wien"]


def _ages(data):
    return np.clip(np.array([r["age"] for r in data], float), 0, 100)


def _city(data, city):
    return sum(r["city"] == city for r in data)


def divided_by_count(data):
    return (_ages(data).sum() + np.random.laplace(scale=100)) / max(len(data), 1)


def released_as_it_is(data):
    return {"n": len(data) + np.random.laplace(), "oldest": max(_ages(data), default=0)}


def unclipped(data):
    return sum(r["age"] for r in data) + np.random.laplace(scale=1.0)


def scale_from_data(data):
    ages = _ages(data)
    return ages.sum() + np.random.laplace(scale=max(np.ptp(ages) if len(ages) else 0, 1.0))


def factor_from_data(data):
    return _ages(data).sum() + np.random.laplace() * max(_ages(data), default=1)


def keys_from_data(data):
    return {c: _city(data, c) + np.random.laplace() for c in sorted({r["city"] for r in data})}


def early_return(data):
    if _city(data, "Wien") < 2:
        return None
    return len(data) + np.random.laplace()


def as_many_as_records(data):
    return sum(np.random.laplace(size=len(data))) + len(data)


def one_noise_for_two(data):
    noise = np.random.laplace(scale=100)
    return _ages(data).sum() + noise, len(data) + noise


def one_seed_for_two(data):
    first, second = np.random.default_rng(3), np.random.default_rng(3)
    return len(data) + first.laplace(), _ages(data).sum() + 100 * second.laplace()


def seed_from_data(data):
    random.seed(len(data))
    return len(data) + random.gauss(0, 5)


def twice_the_budget(data):
    return [len(data) + np.random.laplace(scale=1.0) for _ in range(8)]


def true_order(data):
    counts = sorted(CITIES, key=lambda c: -_city(data, c))
    return [(c, _city(data, c) + np.random.laplace()) for c in counts]


def printed(data):
    print("true count", len(data))
    return len(data) + np.random.laplace()


def written(data):
    Path(tempfile.gettempdir(), "count.txt").write_text(str(len(data)), encoding="utf-8")
    return len(data) + np.random.laplace()


def raises_for_some(data):
    if any(r["age"] > 70 for r in data):
        raise ValueError("too old")
    return len(data) + np.random.laplace()


def rows_from_data(data):
    table = pd.DataFrame(data, columns=["age", "city"]).groupby("city").size().to_frame("n")
    table["n"] = table["n"] + np.random.laplace(size=3)[: len(table)]
    return table


def noise_on_a_copy(data):
    counts = np.array([_city(data, c) for c in CITIES], float)
    noisy = counts.copy()
    noisy += np.random.laplace(size=3)
    return counts


EXPECTED = {
    "divided_by_count": "release", "released_as_it_is": "release", "unclipped": "budget",
    "scale_from_data": "scale", "factor_from_data": "scale", "keys_from_data": "control flow",
    "early_return": "control flow", "as_many_as_records": "shape", "one_noise_for_two": "reuse",
    "one_seed_for_two": "seed", "seed_from_data": "seed", "twice_the_budget": "budget",
    "true_order": "release", "printed": "output", "written": "output",
    "raises_for_some": "exception", "rows_from_data": "domain", "noise_on_a_copy": "release",
}  # fmt: skip
LINES = {
    "divided_by_count": "return (_ages",
    "scale_from_data": "return ages.sum() + ",
    "seed_from_data": "random.seed",
}
