"""Right: local randomisation: each record is randomised by itself; one record is replaced.

The number of records is public. Answers outside the public ones count as the first of them.
"""

import math
import random
import secrets

import numpy as np
from scipy import stats

EPSILON = 1.0
KEEP = math.exp(EPSILON) / (1 + math.exp(EPSILON))
ANSWERS = ("never", "once", "often")
SURVEY = [{"answer": ANSWERS[i % 3], "hours": (i % 9) / 8} for i in range(20)]


def answer(record):
    """A public answer."""
    return record["answer"] if record["answer"] in ANSWERS else ANSWERS[0]


def hours(data):
    """Hours in [0, 1]; 0 where they are missing."""
    values = np.array([r["hours"] for r in data], dtype=float)
    return np.clip(np.nan_to_num(values), 0, 1)


def often_random(data):
    """Warner's randomised response with random.random."""
    bits = [answer(r) == "often" for r in data]
    return [bit if random.random() < KEEP else not bit for bit in bits]


def often_two_coins(data):
    """The textbook's two coins, ε = ln 3: the truth, or a coin."""
    told = []
    for record in data:
        if secrets.randbelow(2):
            told.append(answer(record) == "often")
        else:
            told.append(bool(secrets.randbelow(2)))
    return told


def often_xor(data):
    """Bits flipped by an array of coins."""
    bits = np.array([answer(r) == "often" for r in data], dtype=bool)
    flips = np.random.default_rng().random(len(bits)) >= KEEP
    return (bits ^ flips).astype(int)


def often_bernoulli(data):
    """Bits drawn from SciPy's Bernoulli law, and an unbiased share of them."""
    bits = np.array([answer(r) == "often" for r in data], dtype=bool)
    told = stats.bernoulli.rvs(np.where(bits, KEEP, 1 - KEEP))
    return float((told.mean() - (1 - KEEP)) / (2 * KEEP - 1))


def answers_of_three(data):
    """Randomised response among three answers."""
    keep = math.exp(EPSILON) / (math.exp(EPSILON) + len(ANSWERS) - 1)
    told = []
    for record in data:
        true = answer(record)
        others = [a for a in ANSWERS if a != true]
        told.append(true if random.random() < keep else random.choice(others))
    return told


def answers_unary(data):
    """Optimised unary encoding: a 1 stays with 1/2, a 0 becomes 1 with 1/(e^ε + 1)."""
    rng = np.random.default_rng()
    onehot = np.array([[answer(r) == a for a in ANSWERS] for r in data], dtype=bool).reshape(-1, 3)
    chance = np.where(onehot, 0.5, 1 / (math.exp(EPSILON) + 1))
    return (rng.random(onehot.shape) < chance).sum(axis=0).tolist()


def hours_laplace(data):
    """Each number gets noise of its own."""
    values = hours(data)
    return values + np.random.default_rng().laplace(scale=1 / EPSILON, size=len(values))


def hours_one_bit(data):
    """One bit of each number, whose expectation is linear in it; then their mean."""
    e = math.exp(EPSILON)
    chance = (1 + hours(data) * (e - 1)) / (e + 1)
    bits = np.random.default_rng().random(len(chance)) < chance
    return float(((bits.mean() * (e + 1)) - 1) / (e - 1)) if len(bits) else 0.0


def shuffled_answers(data):
    """Randomised answers in a random order."""
    told = answers_of_three(data)
    random.shuffle(told)
    return told


REPLACE = {"data": SURVEY, "adjacency": "replace", "claim": {"epsilon": EPSILON, "delta": 0.0}}
CASES = {
    "often_random": REPLACE,
    "often_two_coins": REPLACE | {"claim": {"epsilon": 1.0987, "delta": 0.0}},
    "often_xor": REPLACE,
    "often_bernoulli": REPLACE,
    "answers_of_three": REPLACE,
    "answers_unary": REPLACE,
    "hours_laplace": REPLACE,
    "hours_one_bit": REPLACE,
    "shuffled_answers": REPLACE,
}
