"""Wrong, one mistake each: local randomisation; one record is replaced."""

import math
import random

import numpy as np

EPSILON = 1.0
KEEP = math.exp(EPSILON) / (1 + math.exp(EPSILON))
RNG = np.random.default_rng()
ANSWERS = ("never", "once", "often")
SURVEY = [{"answer": ANSWERS[i % 3], "hours": (i % 9) / 8} for i in range(20)]


def often(data):
    """Whether each record answers often."""
    return [r["answer"] == "often" for r in data]


def hours(data, high=1.0):
    """Hours between 0 and a bound; 0 where they are missing."""
    return np.clip(np.nan_to_num(np.array([r["hours"] for r in data], dtype=float)), 0, high)


def one_coin_for_all(data):
    """The coin is tossed once: all bits are flipped, or none."""
    keep = random.random() < KEEP
    return [bit if keep else not bit for bit in often(data)]  # mistake


def kept_too_often(data):
    """Bits are kept with 0.95: ε is 2.9."""
    return [bit if random.random() < 0.95 else not bit for bit in often(data)]  # mistake


def only_yes_is_randomised(data):
    """A no is always true: a yes can only come from a yes."""
    return [bit and random.random() < KEEP for bit in often(data)]  # mistake


def seed_of_the_place(data):
    """Each record's generator is seeded with its place."""
    coins = [random.Random(i).random() for i in range(len(data))]  # mistake
    return [bit if c < KEEP else not bit for bit, c in zip(often(data), coins, strict=True)]


def hours_not_clipped(data):
    """Noise for numbers in [0, 1], which nothing enforces."""
    values = hours(data, 1000.0)
    return values + RNG.laplace(scale=1 / EPSILON, size=len(values))  # mistake


def answer_beside_the_noise(data):
    """The hours are noised, and whether they are above half is told."""
    noisy = hours(data) + RNG.laplace(scale=1 / EPSILON, size=len(data))
    return [(float(n), bool(v > 0.5)) for n, v in zip(noisy, hours(data), strict=True)]  # mistake


def unary_with_wrong_chances(data):
    """Unary encoding whose bits have 2.2 each: two of them differ."""
    onehot = np.array([[r["answer"] == a for a in ANSWERS] for r in data], dtype=bool)
    keep = RNG.random(onehot.reshape(-1, 3).shape) < 0.9  # mistake
    return np.where(keep, onehot, ~onehot).astype(int)


def answers_of_the_data(data):
    """The answers to choose from are those that occur."""
    found = sorted({str(r["answer"]) for r in data})
    keep = math.exp(EPSILON) / (math.exp(EPSILON) + len(found) - 1)
    coins = [random.random() < keep for _ in data]
    others = [random.choice(found) for _ in data]  # mistake
    return [str(r["answer"]) if c else o for r, c, o in zip(data, coins, others, strict=True)]


CLAIM = {"epsilon": EPSILON, "delta": 0.0}
REPLACE = {"data": SURVEY, "adjacency": "replace", "claim": CLAIM}
CASES = {
    "one_coin_for_all": REPLACE | {"expect": "reuse, release, budget"},
    "kept_too_often": REPLACE | {"expect": "budget, release"},
    "only_yes_is_randomised": REPLACE | {"expect": "control flow, release, budget"},
    "seed_of_the_place": REPLACE | {"expect": "seed, release"},
    "hours_not_clipped": REPLACE | {"expect": "budget"},
    "answer_beside_the_noise": REPLACE | {"expect": "release"},
    "unary_with_wrong_chances": REPLACE | {"expect": "budget, release"},
    "answers_of_the_data": REPLACE | {"expect": "control flow, domain, scale, shape, budget"},
}
