"""Wrong, one mistake each: noise that the pipeline makes of uniform draws itself."""

import math
import random

EPSILON = 1.0
VISITS = [{"visits": i % 7} for i in range(28)]


def visits(data):
    """Visits up to 10 of each record; 0 where they are missing."""
    known = [v for v in (r["visits"] for r in data) if v is not None and v == v]
    return sum(float(min(max(v, 0), 10)) for v in known)


def noise(scale, rng=random):
    """Laplace noise."""
    u = rng.random() - 0.5
    return -math.copysign(scale, u) * math.log(max(1 - 2 * abs(u), 2.0**-53))


def sign_lost(data):
    """The sign is forgotten: the noise is never negative."""
    return visits(data) - 10 / EPSILON * math.log(1 - random.random())


def sign_of_the_data(data):
    """The sign of the noise is that of the parity of the count."""
    size = -10 / EPSILON * math.log(1 - random.random())
    return visits(data) + (size if len(data) % 2 else -size)


def uniform_of_a_seed(data):
    """The uniform number comes from a generator that the data seeds."""
    return visits(data) + noise(10 / EPSILON, random.Random(int(visits(data))))


def scale_of_the_maximum(data):
    """The scale is the largest value in the data."""
    largest = max((float(min(max(r["visits"] or 0, 1), 10)) for r in data), default=1.0)
    return visits(data) + noise(largest / EPSILON)


def sensitivity_forgotten(data):
    """A record moves the sum by 10; the noise is for 1."""
    return visits(data) + noise(1 / EPSILON)


def one_uniform_for_two(data):
    """Two statistics take their noise from one uniform number."""
    u = min(max(random.random(), 1e-12), 1 - 1e-12)
    size = math.log(u / (1 - u)) / EPSILON
    return {"sum": visits(data) + 20 * size, "count": len(data) + 2 * size}


ADD = {
    "data": VISITS,
    "adjacency": "add-remove",
    "claim": {"epsilon": EPSILON},
    "neighbour": [*VISITS, {"visits": 9}],
}
CASES = {
    "sign_lost": {**ADD, "expect": "budget", "or": ["release"]},
    "sign_of_the_data": {**ADD, "expect": "release", "or": ["budget", "scale"]},
    "uniform_of_a_seed": {**ADD, "expect": "seed"},
    "scale_of_the_maximum": {**ADD, "expect": "scale", "or": ["release", "budget"]},
    "sensitivity_forgotten": {**ADD, "expect": "budget", "or": ["release"]},
    "one_uniform_for_two": {**ADD, "expect": "reuse", "or": ["release", "budget"]},
}
