"""Wrong, one mistake each: noise of the standard library, without numpy."""

import csv
import json
import random
import tempfile
from collections import Counter
from pathlib import Path

EPSILON, DELTA = 0.5, 1e-5
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


def keys_of_the_data(data):
    """A colour is there if a record has it."""
    counts = Counter(r["colour"] for r in data)
    return {colour: n + laplace(1 / EPSILON) for colour, n in counts.items()}


def order_of_the_data(data):
    """Public keys, in the order in which the data has them first."""
    noisy = {colour: n + laplace(1 / EPSILON) for colour, n in votes(data).items()}
    seen = list(dict.fromkeys(r["colour"] for r in data if r["colour"] in COLOURS))
    return [(colour, noisy[colour]) for colour in [*seen, *(c for c in COLOURS if c not in seen)]]


def seed_global(data):
    """random.seed in the pipeline."""
    random.seed(42)
    return len(data) + laplace(1 / EPSILON)


def seed_of_records(data):
    """A generator seeded with the data's text."""
    rng = random.Random(repr(list(data)))
    return len(data) + rng.gauss(0, 8)


def truth_in_a_file(data):
    """The file has a column with the true votes."""
    path = Path(tempfile.gettempdir()) / "votes_checked.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        for colour, n in votes(data).items():
            writer.writerow([colour, n, n + laplace(1 / EPSILON)])
    return path.name


def one_sided_noise(data):
    """Exponential noise is never negative: a smaller result excludes a data set."""
    return len(data) + random.expovariate(EPSILON)


def rate_for_scale(data):
    """expovariate takes a rate, and is given the scale."""
    b = 1 / EPSILON
    return len(data) + random.expovariate(b) - random.expovariate(b)


def winner_of_the_truth(data):
    """The winner is the true one, its votes are noisy."""
    counts = votes(data)
    best = max(counts, key=counts.get)
    return {"winner": best, "votes": counts[best] + laplace(1 / EPSILON)}


def total_in_json(data):
    """Noisy votes, and their true total."""
    noisy = {colour: n + laplace(1 / EPSILON) for colour, n in votes(data).items()}
    return json.dumps({"total": len(data), **noisy})


def items_unbounded(data):
    """A basket may have eight items; the noise is for three."""
    counts = dict.fromkeys("abcdefgh", 0)
    for record in data:
        for item in sorted(set(record["items"] or ()) & set(counts)):
            counts[item] += 1
    return {item: n + laplace(3 / EPSILON) for item, n in counts.items()}


def uniform_noise(data):
    """Uniform noise is bounded: its ends exclude a data set."""
    return len(data) + random.uniform(-5 / EPSILON, 5 / EPSILON)


def noise_by_index(data):
    """The noise of a colour is chosen from a list by its true count."""
    table = [laplace(1 / EPSILON) for _ in range(4)]
    return {colour: n + table[n % 4] for colour, n in votes(data).items()}


MORE = [*VOTES, {"colour": "blue"}]
ADD = {"data": VOTES, "adjacency": "add-remove", "claim": {"epsilon": EPSILON}, "neighbour": MORE}
CASES = {
    "keys_of_the_data": {
        **ADD,
        "neighbour": [*VOTES, {"colour": "grey"}],
        "expect": "control flow",
        "or": ["domain"],
    },
    "order_of_the_data": {
        **ADD,
        "neighbour": VOTES[1:],
        "expect": "release",
        "or": ["domain"],
    },
    "seed_global": {**ADD, "expect": "seed"},
    "seed_of_records": {**ADD, "claim": {"epsilon": EPSILON, "delta": DELTA}, "expect": "seed"},
    "truth_in_a_file": {**ADD, "expect": "output", "or": ["release"]},
    "one_sided_noise": {**ADD, "expect": "budget", "or": ["release"]},
    "rate_for_scale": {**ADD, "expect": "budget", "or": ["release"]},
    "winner_of_the_truth": {**ADD, "expect": "release"},
    "total_in_json": {**ADD, "expect": "release"},
    "items_unbounded": {
        **ADD,
        "data": BASKETS,
        "neighbour": [*BASKETS, {"items": list("abcdefgh")}],
        "bounds": {"items": [list("a"), list("abc"), list("abcdefgh")]},
        "expect": "budget",
    },
    "uniform_noise": {**ADD, "expect": "budget", "or": ["release"]},
    "noise_by_index": {**ADD, "expect": "reuse", "or": ["release"]},
}
