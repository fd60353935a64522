"""Wrong, one mistake each: single numbers with noise of a numpy generator.

``expect`` is what an auditor may call it; the line of the mistake is marked.
"""

import zlib

import numpy as np

EPSILON, HIGH = 1.0, 100.0
RNG = np.random.default_rng()
AGES = [{"age": 20 + (7 * i) % 55, "smoker": i % 3 == 0} for i in range(30)]


def raw(data):
    """Ages as they are, NaN where one is missing."""
    return np.array([r["age"] for r in data], dtype=float)


def clipped(data):
    """Ages between public bounds; a missing one counts as 0."""
    return np.clip(np.nan_to_num(raw(data)), 0, HIGH)


def old(data):
    """A true count of old people."""
    return int((clipped(data) >= 65).sum())


def scale_of_the_range(data):
    """The sensitivity is the range of the data."""
    spread = np.ptp([0.0, *clipped(data)])
    return clipped(data).sum() + RNG.laplace(scale=(1 + spread) / EPSILON)  # mistake


def clipping_forgotten(data):
    """Noise for ages up to 100, which nothing enforces."""
    return np.nan_to_num(raw(data)).sum() + RNG.laplace(scale=HIGH / EPSILON)  # mistake


def count_beside_the_mean(data):
    """The true count is released too."""
    noisy = clipped(data).sum() + RNG.laplace(scale=2 * HIGH / EPSILON)
    count = max(len(data) + RNG.laplace(scale=2 / EPSILON), 1.0)
    return {"mean": noisy / count, "n": len(data)}  # mistake


def sum_by_the_true_count(data):
    """A noisy sum is divided by the true count."""
    noisy = clipped(data).sum() + RNG.laplace(scale=HIGH / EPSILON)
    return noisy / max(len(data), 1)  # mistake


def missing_through_clip(data):
    """NaN passes clip: one missing age makes the whole sum NaN."""
    return np.clip(raw(data), 0, HIGH).sum() + RNG.laplace(scale=HIGH / EPSILON)  # mistake


def nothing_if_empty(data):
    """No noise is drawn for no records."""
    return len(data) + RNG.laplace(scale=1 / EPSILON) if data else 0.0  # mistake


def small_counts_as_they_are(data):
    """Small counts have no noise."""
    n = old(data)
    return n + RNG.laplace(scale=1 / EPSILON) if n > 3 else float(n)  # mistake


def one_draw_for_two(data):
    """Two counts share their noise: their difference is exact."""
    noise = RNG.laplace(scale=2 / EPSILON)
    return {"all": len(data) + noise, "old": old(data) + noise}  # mistake


def one_seed_for_two(data):
    """Two generators of one seed give the same noise."""
    seed = int(RNG.integers(1 << 32))
    first, second = np.random.default_rng(seed), np.random.default_rng(seed)
    noisy = len(data) + first.laplace(0, 2 / EPSILON)
    return noisy, old(data) + second.laplace(0, 2 / EPSILON)  # mistake


def seed_fixed(data):
    """Whoever reads the code subtracts the noise."""
    return len(data) + np.random.default_rng(42).laplace(scale=1 / EPSILON)  # mistake


def seed_of_a_hash(data):
    """The seed is a checksum of the data."""
    rng = np.random.default_rng(zlib.crc32(repr(list(data)).encode()))  # mistake
    return len(data) + rng.laplace(scale=1 / EPSILON)


def whole_budget_for_each(data):
    """Three queries with all of ε each."""
    over = [int((clipped(data) >= age).sum()) for age in (0, 30, 60)]
    return [n + RNG.laplace(scale=1 / EPSILON) for n in over]  # mistake


def deviation_too_small(data):
    """σ = 1 / (2ε), where δ = 1e-5 needs about 4 / ε."""
    return len(data) + RNG.normal(0, 0.5 / EPSILON)  # mistake


def noise_cut_to_an_integer(data):
    """Cutting the noise towards 0 makes 0 too likely: ε + ln(1 + …) = 1.7."""
    return len(data) + int(RNG.laplace(scale=1 / EPSILON))  # mistake


def drawn_until_positive(data):
    """Draws are repeated until the result is positive: the law is cut at 0, up to 1.5 ε."""
    while True:
        noisy = len(data) + RNG.laplace(scale=1 / EPSILON)  # mistake
        if noisy > 0:
            return noisy


def rounded_before_the_noise(data):
    """Rounding to tens first: one record moves the result by 10."""
    return 10 * round(len(data) / 10) + RNG.laplace(scale=1 / EPSILON)  # mistake


def printed_truth(data):
    """A message for debugging shows the true count."""
    print("count:", len(data))  # mistake
    return len(data) + RNG.laplace(scale=1 / EPSILON)


def error_for_some(data):
    """Ages above 90 raise an error: it says that one is there."""
    if (raw(data) > 90).any():
        raise ValueError("implausible age")  # mistake
    return len(data) + RNG.laplace(scale=1 / EPSILON)


def error_with_the_count(data):
    """The noise is right; a text beside it tells the truth."""
    noisy = len(data) + RNG.laplace(scale=1 / EPSILON)
    return f"{noisy:.1f} people (error {abs(noisy - len(data)):.2f})"  # mistake


ADD = {"data": AGES, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
FLOATS = [r | {"age": float(r["age"])} for r in AGES]
CASES = {
    "scale_of_the_range": ADD | {"expect": "scale"},
    "clipping_forgotten": ADD | {"expect": "budget, sensitivity"},
    "count_beside_the_mean": ADD | {"expect": "release"},
    "sum_by_the_true_count": ADD | {"expect": "release, scale"},
    "missing_through_clip": ADD | {"data": FLOATS, "expect": "release, domain, budget"},
    "nothing_if_empty": ADD | {"data": AGES[:1], "expect": "control flow"},
    "small_counts_as_they_are": ADD | {"expect": "control flow, release"},
    "one_draw_for_two": ADD | {"expect": "reuse"},
    "one_seed_for_two": ADD | {"expect": "reuse, seed"},
    "seed_fixed": ADD | {"expect": "seed"},
    "seed_of_a_hash": ADD | {"expect": "seed"},
    "whole_budget_for_each": ADD | {"expect": "budget"},
    "deviation_too_small": ADD | {"claim": {"epsilon": 1.0, "delta": 1e-5}, "expect": "budget"},
    "noise_cut_to_an_integer": ADD | {"expect": "budget, release"},
    "drawn_until_positive": ADD | {"data": AGES[:1], "expect": "budget, control flow"},
    "rounded_before_the_noise": ADD | {"data": AGES[:15], "expect": "budget"},
    "printed_truth": ADD | {"expect": "output"},
    "error_for_some": ADD | {"bounds": {"age": (0, 120)}, "expect": "exception"},
    "error_with_the_count": ADD | {"expect": "release"},
}
