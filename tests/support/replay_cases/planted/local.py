"""Wrong, one mistake each: local randomisation; one record is replaced."""

import math
import random

import numpy as np

EPSILON = 1.0
KEEP = math.exp(EPSILON) / (1 + math.exp(EPSILON))
ANSWERS = ("never", "once", "often")
SURVEY = [{"answer": ANSWERS[i % 3], "hours": (i % 9) / 8} for i in range(20)]


def often(data):
    """Whether each record answers often."""
    return [r["answer"] == "often" for r in data]


def one_coin_for_all(data):
    """The coin is tossed once: all bits are flipped, or none."""
    keep = random.random() < KEEP
    return [bit if keep else not bit for bit in often(data)]


def kept_too_often(data):
    """Bits are kept with 0.95: ε is 2.9."""
    return [bit if random.random() < 0.95 else not bit for bit in often(data)]


def only_yes_is_randomised(data):
    """A no is always true: a yes can only come from a yes."""
    return [bit and random.random() < KEEP for bit in often(data)]


def seed_of_the_place(data):
    """Each record's generator is seeded with its place."""
    return [
        bit if random.Random(i).random() < KEEP else not bit for i, bit in enumerate(often(data))
    ]


def hours_not_clipped(data):
    """Noise for numbers in [0, 1], which nothing enforces."""
    values = np.nan_to_num(np.array([r["hours"] for r in data], dtype=float), posinf=0, neginf=0)
    return values + np.random.default_rng().laplace(scale=1 / EPSILON, size=len(values))


def answer_beside_the_noise(data):
    """The hours are noised, and whether they are above half is told."""
    values = np.clip(np.nan_to_num(np.array([r["hours"] for r in data], dtype=float)), 0, 1)
    noisy = values + np.random.default_rng().laplace(scale=1 / EPSILON, size=len(values))
    return [{"hours": float(n), "many": bool(v > 0.5)} for n, v in zip(noisy, values, strict=True)]


def unary_with_wrong_chances(data):
    """Unary encoding whose bits have all of ε each: two bits differ."""
    rng = np.random.default_rng()
    onehot = np.array([[r["answer"] == a for a in ANSWERS] for r in data], dtype=bool)
    keep = rng.random(onehot.reshape(-1, 3).shape) < KEEP
    return np.where(keep, onehot, ~onehot).astype(int)


def answers_of_the_data(data):
    """The answers to choose from are those that occur."""
    found = sorted({str(r["answer"]) for r in data})
    keep = math.exp(EPSILON) / (math.exp(EPSILON) + len(found) - 1)
    return [str(r["answer"]) if random.random() < keep else random.choice(found) for r in data]


OTHER = [*SURVEY[:-1], {"answer": "often", "hours": 1.0}]
REPLACE = {
    "data": SURVEY,
    "adjacency": "replace",
    "claim": {"epsilon": EPSILON},
    "neighbour": OTHER,
}
CASES = {
    "one_coin_for_all": {**REPLACE, "expect": "reuse", "or": ["release", "budget"]},
    "kept_too_often": {**REPLACE, "expect": "budget", "or": ["release"]},
    "only_yes_is_randomised": {
        **REPLACE,
        "expect": "control flow",
        "or": ["release", "budget"],
    },
    "seed_of_the_place": {**REPLACE, "expect": "seed", "or": ["release"]},
    "hours_not_clipped": {
        **REPLACE,
        "neighbour": [*SURVEY[:-1], {"answer": "once", "hours": 40.0}],
        "expect": "budget",
    },
    "answer_beside_the_noise": {**REPLACE, "expect": "release"},
    "unary_with_wrong_chances": {**REPLACE, "expect": "budget", "or": ["release"]},
    "answers_of_the_data": {
        **REPLACE,
        "neighbour": [*SURVEY[:-1], {"answer": "always", "hours": 1.0}],
        "expect": "domain",
        "or": ["control flow", "scale", "shape", "release", "budget"],
    },
}
