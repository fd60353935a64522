"""Wrong, one mistake each: noise that the pipeline makes of uniform draws itself."""

import math
import random

EPSILON = 1.0
VISITS = [{"visits": i % 7} for i in range(28)]


def visits(data):
    """Visits up to 10 of each record; 0 where they are missing."""
    known = [r["visits"] for r in data if r["visits"] is not None and r["visits"] == r["visits"]]
    return sum(float(min(max(v, 0), 10)) for v in known)


def noise(scale, rng=random):
    """Laplace noise."""
    u = rng.random() - 0.5
    return -math.copysign(scale, u) * math.log(max(1 - 2 * abs(u), 2.0**-53))


def sign_lost(data):
    """The sign is forgotten: the noise is never negative."""
    return visits(data) - 10 / EPSILON * math.log(1 - random.random())  # mistake


def sign_of_the_data(data):
    """The sign of the noise is that of the parity of the count."""
    size = -10 / EPSILON * math.log(1 - random.random())
    return visits(data) + (size if len(data) % 2 else -size)  # mistake


def scale_of_the_mean(data):
    """The scale is one more than the mean of the data."""
    mean = visits(data) / max(len(data), 1)
    return visits(data) + (1 + mean) * noise(10 / EPSILON)  # mistake


def sensitivity_forgotten(data):
    """A record moves the sum by 10; the noise is for 1."""
    return visits(data) + noise(1 / EPSILON)  # mistake


def one_uniform_for_two(data):
    """Two statistics take their noise from one uniform number."""
    size = math.log(max(random.random(), 2.0**-53) / max(random.random(), 2.0**-53)) / EPSILON
    return {"sum": visits(data) + 20 * size, "count": len(data) + 2 * size}  # mistake


ADD = {"data": VISITS, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
CASES = {
    "sign_lost": ADD | {"expect": "budget, release"},
    "sign_of_the_data": ADD | {"expect": "scale, release"},
    "scale_of_the_mean": ADD | {"expect": "scale, release"},
    "sensitivity_forgotten": ADD | {"expect": "budget, release"},
    "one_uniform_for_two": ADD | {"expect": "reuse"},
}
