"""Right: noise that the pipeline makes of uniform draws itself."""

import math
import random
from statistics import NormalDist

import numpy as np

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
VISITS = [{"visits": i % 7} for i in range(28)]


def visits(data):
    """Visits up to 10 of each record; 0 where they are missing."""
    values = np.array([r["visits"] for r in data], dtype=float)
    return float(np.clip(np.nan_to_num(values), 0, 10).sum())


def open_unit():
    """A number in (0, 1)."""
    while True:
        u = random.random()
        if u:
            return u


def sum_math_log(data):
    """Laplace noise by the inverse of its distribution function."""
    u = open_unit() - 0.5
    noise = -math.copysign(10 / EPSILON, u) * math.log(max(1 - 2 * abs(u), 2.0**-53))
    return visits(data) + noise


def sum_log_ratio(data):
    """Laplace noise by the logarithm of a ratio of uniform draws."""
    return visits(data) + 10 / EPSILON * math.log(open_unit() / open_unit())


def sum_two_branches(data):
    """Laplace noise: a coin for the sign, an exponential draw for the size."""
    size = -math.log(open_unit()) * 10 / EPSILON
    if random.random() < 0.5:
        size = -size
    return visits(data) + size


def count_normal_dist(data):
    """Normal noise by the standard library's inverse."""
    return len(data) + NormalDist(0, SIGMA).inv_cdf(open_unit())


def count_box_muller(data):
    """Normal noise by Box and Muller."""
    radius = math.sqrt(-2 * math.log(open_unit()))
    return len(data) + SIGMA * radius * math.cos(2 * math.pi * random.random())


def count_geometric_by_floor(data):
    """Discrete Laplace noise: a difference of two geometric numbers."""
    first = math.floor(-math.log(open_unit()) / EPSILON)
    second = math.floor(-math.log(open_unit()) / EPSILON)
    return len(data) + first - second


def weekdays_where(data):
    """Counts of 0 to 6 visits; noise for all by np.where."""
    counts = np.array([sum(r["visits"] == k for r in data) for k in range(7)], dtype=float)
    u = np.clip(np.random.default_rng().random(7), 1e-15, 1 - 1e-15)
    noise = np.where(u < 0.5, np.log(2 * u), -np.log(2 - 2 * u)) / EPSILON
    return (counts + noise).tolist()


PURE, APPROXIMATE = {"epsilon": EPSILON, "delta": 0.0}, {"epsilon": EPSILON, "delta": DELTA}
ADD = {"data": VISITS, "adjacency": "add-remove", "claim": PURE}
CASES = {
    "sum_math_log": ADD,
    "sum_log_ratio": ADD,
    "sum_two_branches": ADD,
    "count_normal_dist": ADD | {"claim": APPROXIMATE},
    "count_box_muller": ADD | {"claim": APPROXIMATE},
    "count_geometric_by_floor": ADD,
    "weekdays_where": ADD,
}
