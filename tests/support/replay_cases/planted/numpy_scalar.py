"""Wrong, one mistake each: single numbers with noise of a numpy generator.

``expect`` is what an auditor should say, ``or`` what it may say as well, ``neighbour`` a data set
that shows the mistake.
"""

import zlib

import numpy as np

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
LOW, HIGH = 0.0, 100.0
AGES = [{"age": 20 + (7 * i) % 55, "smoker": i % 3 == 0} for i in range(30)]


def raw(data):
    """Ages as they are."""
    return np.array([r["age"] for r in data], dtype=float)


def clipped(data):
    """Ages between public bounds; a missing one counts as 0."""
    return np.clip(np.nan_to_num(raw(data)), LOW, HIGH)


def laplace(scale):
    """Fresh Laplace noise."""
    return np.random.default_rng().laplace(scale=scale)


def scale_of_the_range(data):
    """The sensitivity is the range of the data."""
    values = clipped(data)
    spread = float(np.ptp(values)) if len(values) else HIGH
    return values.sum() + laplace(max(spread, 1e-9) / EPSILON)


def clipping_forgotten(data):
    """Noise for ages up to 100, which nothing enforces."""
    return np.nan_to_num(raw(data)).sum() + laplace(HIGH / EPSILON)


def clipping_of_the_sum(data):
    """The sum is clipped, not the ages."""
    return np.clip(np.nan_to_num(raw(data)).sum(), 0, 1e6) + laplace(HIGH / EPSILON)


def count_beside_the_mean(data):
    """The true count is released too."""
    noisy = clipped(data).sum() + laplace(2 * HIGH / EPSILON)
    count = max(len(data) + laplace(2 / EPSILON), 1.0)
    return {"mean": noisy / count, "n": len(data)}


def sum_by_the_true_count(data):
    """A noisy sum is divided by the true count."""
    return (clipped(data).sum() + laplace(HIGH / EPSILON)) / max(len(data), 1)


def scale_of_the_true_count(data):
    """The noise of the mean depends on the count, which is not public here."""
    n = max(len(data), 1)
    return clipped(data).sum() / n + laplace(HIGH / n / EPSILON)


def missing_through_clip(data):
    """NaN passes clip: one missing age makes the whole sum NaN."""
    return np.clip(raw(data), LOW, HIGH).sum() + laplace(HIGH / EPSILON)


def nothing_if_empty(data):
    """No noise is drawn for no records."""
    if not data:
        return 0.0
    return len(data) + laplace(1 / EPSILON)


def suppressed_if_few(data):
    """The true count decides whether there is an answer."""
    if len(data) < 30:
        return "too few"
    return clipped(data).sum() + laplace(HIGH / EPSILON)


def one_draw_for_two(data):
    """Two counts share their noise: their difference is exact."""
    noise = laplace(2 / EPSILON)
    old = int((clipped(data) >= 65).sum())
    return {"all": len(data) + noise, "old": old + noise}


def one_seed_for_two(data):
    """Two generators of one seed give the same noise."""
    seed = int(np.random.default_rng().integers(1 << 32))
    first, second = np.random.default_rng(seed), np.random.default_rng(seed)
    old = int((clipped(data) >= 65).sum())
    return len(data) + first.laplace(0, 2 / EPSILON), old + second.laplace(0, 2 / EPSILON)


def seed_fixed(data):
    """Whoever reads the code subtracts the noise."""
    return len(data) + np.random.default_rng(42).laplace(scale=1 / EPSILON)


def seed_of_the_length(data):
    """The seed is the number of records."""
    return len(data) + np.random.default_rng(len(data)).laplace(scale=1 / EPSILON)


def seed_of_a_hash(data):
    """The seed is a checksum of the data."""
    rng = np.random.default_rng(zlib.crc32(repr(list(data)).encode()))
    return len(data) + rng.laplace(scale=1 / EPSILON)


def whole_budget_twice(data):
    """Two queries with all of ε each."""
    return {
        "all": len(data) + laplace(1 / EPSILON),
        "old": int((clipped(data) >= 65).sum()) + laplace(1 / EPSILON),
    }


def variance_for_deviation(data):
    """σ is taken for a variance: its root is the deviation."""
    return len(data) + np.random.default_rng().normal(0, SIGMA**0.5)


def noise_multiplied(data):
    """The noise is a share of the truth."""
    return len(data) * (1 + laplace(0.1))


def noise_cut_to_an_integer(data):
    """Cutting the noise towards 0 makes 0 twice as likely: ε + ln 2."""
    return len(data) + int(laplace(1 / EPSILON))


def drawn_until_positive(data):
    """Draws are repeated until the result is positive: the law is cut at 0, up to 2ε."""
    while True:
        noisy = len(data) + laplace(1 / EPSILON)
        if noisy > 0:
            return noisy


def rounded_before_the_noise(data):
    """Rounding to tens first: one record moves the result by 10."""
    return 10 * round(len(data) / 10) + laplace(1 / EPSILON)


def spread_without_noise(data):
    """The mean is noised, the deviation is not."""
    values = clipped(data)
    total = values.sum() + laplace(2 * HIGH / EPSILON)
    count = max(len(values) + laplace(2 / EPSILON), 1.0)
    return {"mean": total / count, "deviation": float(values.std()) if len(values) else 0.0}


def printed_truth(data):
    """A message for debugging shows the true count."""
    print("count:", len(data))
    return len(data) + laplace(1 / EPSILON)


def error_for_some(data):
    """Ages above 90 raise an error: it says that one is there."""
    if any(r["age"] is not None and r["age"] > 90 for r in data):
        raise ValueError("implausible age")
    return len(data) + laplace(1 / EPSILON)


def noise_only_if_many(data):
    """Small counts are released as they are."""
    old = int((clipped(data) >= 60).sum())
    return old + laplace(1 / EPSILON) if old > 3 else float(old)


def error_with_the_count(data):
    """The noise is right; a text beside it tells the truth."""
    noisy = len(data) + laplace(1 / EPSILON)
    return f"{noisy:.1f} people (error {abs(noisy - len(data)):.2f})"


MORE = [*AGES, {"age": 40, "smoker": True}]
PURE, APPROXIMATE = {"epsilon": EPSILON}, {"epsilon": EPSILON, "delta": DELTA}
ADD = {"data": AGES, "adjacency": "add-remove", "claim": PURE, "neighbour": MORE}
FAR = {**ADD, "neighbour": [*AGES, {"age": 400, "smoker": False}]}
CASES = {
    "scale_of_the_range": {**FAR, "expect": "scale"},
    "clipping_forgotten": {**FAR, "expect": "budget", "or": ["sensitivity"]},
    "clipping_of_the_sum": {**FAR, "expect": "budget", "or": ["sensitivity"]},
    "count_beside_the_mean": {**ADD, "expect": "release"},
    "sum_by_the_true_count": {**ADD, "expect": "release"},
    "scale_of_the_true_count": {**ADD, "expect": "scale"},
    "missing_through_clip": {
        **ADD,
        "neighbour": [*AGES, {"age": None, "smoker": False}],
        "expect": "release",
        "or": ["domain", "budget", "sensitivity"],
    },
    "nothing_if_empty": {
        **ADD,
        "data": AGES[:1],
        "neighbour": [],
        "expect": "control flow",
        "or": ["release"],
    },
    "suppressed_if_few": {
        **ADD,
        "neighbour": AGES[1:],
        "expect": "control flow",
        "or": ["release", "domain"],
    },
    "one_draw_for_two": {**ADD, "expect": "reuse"},
    "one_seed_for_two": {**ADD, "expect": "reuse", "or": ["seed"]},
    "seed_fixed": {**ADD, "expect": "seed"},
    "seed_of_the_length": {**ADD, "expect": "seed"},
    "seed_of_a_hash": {**ADD, "expect": "seed"},
    "whole_budget_twice": {
        **ADD,
        "neighbour": [*AGES, {"age": 80, "smoker": False}],
        "expect": "budget",
    },
    "variance_for_deviation": {**ADD, "claim": APPROXIMATE, "expect": "budget"},
    "noise_multiplied": {**ADD, "expect": "scale", "or": ["release"]},
    "noise_cut_to_an_integer": {**ADD, "expect": "budget", "or": ["release"]},
    "drawn_until_positive": {
        **ADD,
        "data": AGES[:1],
        "neighbour": [],
        "expect": "budget",
        "or": ["control flow"],
    },
    "rounded_before_the_noise": {
        **ADD,
        "data": AGES[:14],
        "neighbour": AGES[:15],
        "expect": "budget",
    },
    "spread_without_noise": {**ADD, "expect": "release"},
    "printed_truth": {**ADD, "expect": "output", "or": ["release"]},
    "error_for_some": {
        **ADD,
        "neighbour": [*AGES, {"age": 95, "smoker": False}],
        "bounds": {"age": (0, 120)},
        "expect": "exception",
        "or": ["control flow"],
    },
    "noise_only_if_many": {
        **ADD,
        "data": [{"age": 70, "smoker": False}] * 4,
        "neighbour": [{"age": 70, "smoker": False}] * 3,
        "expect": "control flow",
        "or": ["release"],
    },
    "error_with_the_count": {**ADD, "expect": "release"},
}
