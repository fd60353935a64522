"""Right: noise of the standard library, without numpy."""

import csv
import json
import math
import random
import secrets
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
COLOURS = ("red", "green", "blue")
VOTES = [{"colour": COLOURS[i % 3], "weight": (i % 5) / 4} for i in range(24)]
BASKETS = [{"items": list("abcd")[: 1 + i % 3]} for i in range(16)]


def laplace(scale):
    """A difference of exponential draws."""
    return random.expovariate(1 / scale) - random.expovariate(1 / scale)


def weight(record):
    """A weight in [0, 1]; 0 where it is missing."""
    value = record["weight"]
    if value is None or math.isnan(value):
        return 0.0
    return float(min(max(value, 0.0), 1.0))


def bernoulli_exp(gamma):
    """True with probability exp(-gamma), of exact coins (Canonne, Kamath, Steinke 2020)."""
    while gamma > 1:
        if not bernoulli_exp(Fraction(1)):
            return False
        gamma -= 1
    k = 1
    while secrets.randbelow(gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1


def discrete_laplace(t):
    """An integer with probability proportional to exp(-|x| / t)."""
    while True:
        u = secrets.randbelow(t)
        if not bernoulli_exp(Fraction(u, t)):
            continue
        v = 0
        while bernoulli_exp(Fraction(1)):
            v += 1
        x = u + t * v
        if secrets.randbelow(2):
            return x
        if x:
            return -x


def discrete_gaussian(sigma):
    """An integer with probability proportional to exp(-x² / 2σ²), by rejection."""
    t = sigma + 1
    while True:
        x = discrete_laplace(t)
        off = Fraction(abs(x)) - Fraction(sigma**2, t)
        if bernoulli_exp(off * off / (2 * sigma**2)):
            return x


def count_gauss(data):
    """A count with random.gauss."""
    return len(data) + random.gauss(0, SIGMA)


def count_system_random(data):
    """A count with noise of the operating system."""
    return random.SystemRandom().normalvariate(len(data), SIGMA)


def votes_by_colour(data):
    """Counts of public colours in a dict."""
    counts = Counter(r["colour"] for r in data)
    return {colour: counts[colour] + laplace(1 / EPSILON) for colour in COLOURS}


def votes_as_json(data):
    """The same as JSON text, rounded."""
    return json.dumps({k: round(v, 3) for k, v in votes_by_colour(data).items()})


def votes_as_file(data):
    """The same in a CSV file; the file's name is public."""
    path = Path(tempfile.gettempdir()) / "noisy_votes.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["colour", "votes"])
        writer.writerows(sorted(votes_by_colour(data).items()))
    return path.name


def ranking(data):
    """Colours sorted by their noisy votes."""
    return sorted(votes_by_colour(data).items(), key=lambda pair: -pair[1])


def count_discrete_gaussian(data):
    """A whole number with exact noise, σ = 4."""
    return len(data) + discrete_gaussian(4)


def items_bounded(data):
    """Counts of public items; a basket counts for three of them at most."""
    counts = dict.fromkeys("abcd", 0)
    for record in data:
        for item in sorted(set(record["items"] or ()) & set(counts))[:3]:
            counts[item] += 1
    return {item: n + laplace(3 / EPSILON) for item, n in counts.items()}


def votes_of_a_path(path: Path):
    """The data is read from a CSV file."""
    with path.open(newline="") as file:
        return votes_by_colour(list(csv.DictReader(file)))


def running_total(data):
    """Noise first, then the records one after another."""
    total = laplace(1 / EPSILON)
    for record in data:
        total += weight(record)
    return total


PURE, APPROXIMATE = {"epsilon": EPSILON, "delta": 0.0}, {"epsilon": EPSILON, "delta": DELTA}
ADD = {"data": VOTES, "adjacency": "add-remove", "claim": PURE}
CASES = {
    "count_gauss": ADD | {"claim": APPROXIMATE},
    "count_system_random": ADD | {"claim": APPROXIMATE},
    "votes_by_colour": ADD,
    "votes_as_json": ADD,
    "votes_as_file": ADD,
    "ranking": ADD,
    "count_discrete_gaussian": ADD | {"claim": APPROXIMATE},
    "items_bounded": ADD | {"data": BASKETS},
    "running_total": ADD,
    "votes_of_a_path": ADD,
}
