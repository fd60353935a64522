"""Right: choices among public candidates: exponential mechanism, noisy maxima, thresholds."""

import math
import random

import numpy as np

EPSILON = 1.0
GENRES = ("jazz", "rock", "folk", "pop")
SONGS = [{"genre": GENRES[(i * i) % 4]} for i in range(26)]
AGES = [float(15 + (17 * i) % 70) for i in range(31)]
GRID = np.arange(0, 101, 10.0)


def votes(data):
    """Votes for public genres; a record has one."""
    return np.array([sum(r["genre"] == g for r in data) for g in GENRES], dtype=float)


def clipped(data):
    """Numbers in [0, 100]; a missing one counts as 0."""
    return np.clip(np.nan_to_num(np.asarray(data, dtype=float).reshape(-1)), 0, 100)


def softmax(scores):
    """Probabilities that grow with exp(score)."""
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def exponential_choice(data):
    """numpy's choice with probabilities of the exponential mechanism."""
    return str(np.random.choice(GENRES, p=softmax(EPSILON / 2 * votes(data))))


def exponential_random_choices(data):
    """The same with weights of the standard library."""
    scores = votes(data)
    weights = [math.exp(EPSILON / 2 * (s - scores.max())) for s in scores]
    return random.choices(GENRES, weights)[0]


def exponential_cumulative(data):
    """The same by hand: a uniform number among cumulated probabilities."""
    cumulated = np.cumsum(softmax(EPSILON / 2 * votes(data)))
    place = int(np.searchsorted(cumulated, np.random.default_rng().random()))
    return GENRES[min(place, len(GENRES) - 1)]


def gumbel_maximum(data):
    """Gumbel noise and a maximum: the exponential mechanism again."""
    noisy = EPSILON / 2 * votes(data) + np.random.default_rng().gumbel(size=len(GENRES))
    return GENRES[int(np.argmax(noisy))]


def laplace_maximum(data):
    """Report noisy max: only the winner is released."""
    noisy = votes(data) + np.random.default_rng().laplace(scale=2 / EPSILON, size=len(GENRES))
    return GENRES[int(np.argmax(noisy))]


def two_best(data):
    """Two winners one after another, half of ε each."""
    left, won = list(range(len(GENRES))), []
    scores = votes(data)
    for _ in range(2):
        chosen = int(np.random.default_rng().choice(left, p=softmax(EPSILON / 4 * scores[left])))
        left.remove(chosen)
        won.append(GENRES[chosen])
    return won


def median_on_grid(data):
    """A median among public candidates; its rank score moves by 1 at most."""
    values = clipped(data)
    below = np.array([(values < c).sum() - (values > c).sum() for c in GRID]) / 2
    return float(np.random.choice(GRID, p=softmax(-EPSILON / 2 * np.abs(below))))


def quantile_between_records(data):
    """A quantile: a gap between records is chosen by rank and width, then a point in it."""
    points = np.concatenate([[0.0], np.sort(clipped(data)), [100.0]])
    ranks = np.arange(len(points) - 1)
    scores = -np.abs(ranks - 0.75 * (len(points) - 2))
    with np.errstate(divide="ignore"):
        weights = softmax(EPSILON / 2 * scores + np.log(np.diff(points)))
    rng = np.random.default_rng()
    gap = int(rng.choice(len(weights), p=weights))
    return float(rng.uniform(points[gap], points[gap + 1]))


def above_threshold(data):
    """Sparse vector: the first age with fewer than ten records above it."""
    rng = np.random.default_rng()
    values = clipped(data)
    limit = 10 + rng.laplace(scale=2 / EPSILON)
    for age in GRID:
        if -(values >= age).sum() + rng.laplace(scale=4 / EPSILON) >= -limit:
            return float(age)
    return None


def median_by_bisection(data):
    """Five noisy comparisons, a fifth of ε each."""
    rng = np.random.default_rng()
    values, low, high = clipped(data), 0.0, 100.0
    for _ in range(5):
        middle = (low + high) / 2
        more = float((values > middle).sum()) - float((values <= middle).sum())
        if more + rng.laplace(scale=5 / EPSILON) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


PURE = {"epsilon": EPSILON, "delta": 0.0}
MUSIC = {"data": SONGS, "adjacency": "add-remove", "claim": PURE}
NUMBERS = {"data": AGES, "adjacency": "add-remove", "claim": PURE}
CASES = {
    "exponential_choice": MUSIC,
    "exponential_random_choices": MUSIC,
    "exponential_cumulative": MUSIC,
    "gumbel_maximum": MUSIC,
    "laplace_maximum": MUSIC,
    "two_best": MUSIC,
    "median_on_grid": NUMBERS,
    "quantile_between_records": NUMBERS,
    "above_threshold": NUMBERS,
    "median_by_bisection": NUMBERS,
}
