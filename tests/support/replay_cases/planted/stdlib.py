"""Wrong, one mistake each: noise of the standard library, without numpy."""

import csv
import json
import random
import secrets
import tempfile
from collections import Counter
from pathlib import Path

EPSILON = 0.5
COLOURS = ("red", "green", "blue")
VOTES = [{"colour": COLOURS[i % 3]} for i in range(24)]
BASKETS = [{"items": list("abcdefgh")[: 1 + i % 3]} for i in range(16)]


def laplace(scale):
    """A difference of exponential draws."""
    return random.expovariate(1 / scale) - random.expovariate(1 / scale)


def votes(data):
    """Counts of public colours."""
    counts = Counter(r["colour"] for r in data)
    return {colour: counts[colour] for colour in COLOURS}


def order_of_the_data(data):
    """Public keys, in the order in which the data has them first."""
    noisy = {colour: n + laplace(1 / EPSILON) for colour, n in votes(data).items()}
    seen = dict.fromkeys([r["colour"] for r in data if r["colour"] in COLOURS] + [*COLOURS])
    return [(colour, noisy[colour]) for colour in seen]  # mistake


def seed_global(data):
    """random.seed in the pipeline."""
    random.seed(42)  # mistake
    return len(data) + laplace(1 / EPSILON)


def seed_of_records(data):
    """A generator seeded with the data's text."""
    rng = random.Random(repr(list(data)))  # mistake
    return len(data) + rng.expovariate(EPSILON) - rng.expovariate(EPSILON)


def truth_in_a_file(data):
    """The file has a column with the true votes."""
    path = Path(tempfile.gettempdir()) / "votes_checked.csv"
    rows = [[colour, n, n + laplace(1 / EPSILON)] for colour, n in votes(data).items()]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)  # mistake
    return path.name


def one_sided_noise(data):
    """Exponential noise is never negative: a smaller result excludes a data set."""
    return len(data) + random.expovariate(EPSILON)  # mistake


def rate_for_scale(data):
    """expovariate takes a rate, and is given the scale: ε = 2."""
    b = 1 / EPSILON
    return len(data) + random.expovariate(b) - random.expovariate(b)  # mistake


def winner_of_the_truth(data):
    """The winner is the true one, its votes are noisy."""
    counts = votes(data)
    best = max(counts, key=counts.get)
    return {"winner": best, "votes": counts[best] + laplace(1 / EPSILON)}  # mistake


def total_in_json(data):
    """Noisy votes, and their true total."""
    noisy = {colour: n + laplace(1 / EPSILON) for colour, n in votes(data).items()}
    return json.dumps({"total": len(data), **noisy})  # mistake


def items_unbounded(data):
    """A basket may have eight items; the noise is for one."""
    counts = Counter(item for r in data for item in set(r["items"]))
    return {item: counts[item] + laplace(1 / EPSILON) for item in "abcdefgh"}  # mistake


def few_coins(data):
    """Four fair coins as noise: their least sum excludes a data set."""
    return len(data) + sum(secrets.randbelow(2) for _ in range(4)) - 2  # mistake


def noise_by_index(data):
    """The noise of a colour is chosen from a list by its true count."""
    table = [laplace(1 / EPSILON) for _ in range(4)]
    return {colour: n + table[n % 4] for colour, n in votes(data).items()}  # mistake


CLAIM = {"epsilon": EPSILON, "delta": 0.0}
ADD = {"data": VOTES, "adjacency": "add-remove", "claim": CLAIM}
SETS = {"items": [list("a"), list("abc"), list("abcdefgh")]}
CASES = {
    "order_of_the_data": ADD | {"data": VOTES[:4], "expect": "release, domain"},
    "seed_global": ADD | {"expect": "seed"},
    "seed_of_records": ADD | {"expect": "seed"},
    "truth_in_a_file": ADD | {"expect": "output"},
    "one_sided_noise": ADD | {"expect": "budget, release"},
    "rate_for_scale": ADD | {"expect": "budget"},
    "winner_of_the_truth": ADD | {"expect": "release"},
    "total_in_json": ADD | {"expect": "release"},
    "items_unbounded": ADD | {"data": BASKETS, "bounds": SETS, "expect": "budget"},
    "few_coins": ADD | {"expect": "budget, release"},
    "noise_by_index": ADD | {"expect": "reuse, release"},
}
