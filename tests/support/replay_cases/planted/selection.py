"""Wrong, one mistake each: choices among candidates."""

import numpy as np

EPSILON = 1.0
RNG = np.random.default_rng()
GENRES = ("jazz", "rock", "folk", "pop")
SONGS = [{"genre": GENRES[(i * i) % 4], "plays": i % 6} for i in range(26)]
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


def candidates_of_the_data(data):
    """Only genres that occur may win."""
    found = sorted({str(r["genre"]) for r in data}) or ["none"]
    scores = np.array([sum(str(r["genre"]) == g for r in data) for g in found], dtype=float)
    return str(RNG.choice(found, p=softmax(EPSILON / 2 * scores)))  # mistake


def plays_as_scores(data):
    """A record moves a score by up to 20; the exponent is for 1."""
    scores = [sum(r["plays"] for r in data if r["genre"] == g) for g in GENRES]
    return str(RNG.choice(GENRES, p=softmax(EPSILON / 2 * np.array(scores, float))))  # mistake


def score_of_the_winner(data):
    """The winner is chosen privately, its score is the true one."""
    scores = votes(data)
    best = int(RNG.choice(4, p=softmax(EPSILON / 2 * scores)))
    return {"genre": GENRES[best], "votes": float(scores[best])}  # mistake


def median_with_noise(data):
    """Noise of scale 1 on a median, which one record moves far."""
    median = float(np.median([0.0, 100.0, *clipped(data)]))
    return median + RNG.laplace(scale=1 / EPSILON)  # mistake


def all_that_are_above(data):
    """Each noisy comparison has all of ε, for eleven of them."""
    counts = np.array([(clipped(data) >= age).sum() for age in GRID])
    return counts + RNG.laplace(scale=1 / EPSILON, size=len(GRID)) >= 1  # mistake


def threshold_without_noise(data):
    """Sparse vector without noise on the queries: all answers hang on one draw."""
    limit = 10 + RNG.laplace(scale=2 / EPSILON)
    return [bool((clipped(data) >= age).sum() >= limit) for age in GRID]  # mistake


def best_of_the_true_few(data):
    """Noise is drawn only for genres with the most true votes."""
    few = np.flatnonzero(votes(data) == votes(data).max())
    noisy = votes(data)[few] + RNG.laplace(scale=2 / EPSILON, size=len(few))  # mistake
    return GENRES[int(few[noisy.argmax()])]


ADD = {"data": SONGS, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
PLAYS = {"plays": (0, 20), "genre": list(GENRES)}
TWO = [{"genre": "jazz", "plays": 0}, {"genre": "rock", "plays": 0}]
CASES = {
    "candidates_of_the_data": ADD | {"expect": "control flow, shape, scale, domain, release"},
    "plays_as_scores": ADD | {"bounds": PLAYS, "expect": "budget"},
    "score_of_the_winner": ADD | {"expect": "release"},
    "median_with_noise": ADD | {"data": [0.0, 0.0, 100.0, 100.0], "expect": "budget"},
    "all_that_are_above": ADD | {"data": [5.0], "expect": "budget, release"},
    "threshold_without_noise": ADD | {"data": [80.0] * 10, "expect": "reuse, release"},
    "best_of_the_true_few": ADD | {"data": TWO, "expect": "control flow, shape, release"},
}
