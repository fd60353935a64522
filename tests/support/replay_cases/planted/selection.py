"""Wrong, one mistake each: choices among candidates."""

import numpy as np

EPSILON = 1.0
GENRES = ("jazz", "rock", "folk", "pop")
SONGS = [{"genre": GENRES[(i * i) % 4], "plays": i % 6} for i in range(26)]
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


def candidates_of_the_data(data):
    """Only genres that occur may win."""
    found = sorted({str(r["genre"]) for r in data}) or ["none"]
    scores = np.array([sum(str(r["genre"]) == g for r in data) for g in found], dtype=float)
    return str(np.random.default_rng().choice(found, p=softmax(EPSILON / 2 * scores)))


def plays_as_scores(data):
    """A record moves a score by up to 5; the exponent is for 1."""
    plays = [0 if r["plays"] is None else min(max(r["plays"], 0), 5) for r in data]
    scores = np.array(
        [
            sum(p for r, p in zip(data, plays, strict=True) if r["genre"] == g and p == p)
            for g in GENRES
        ],
        dtype=float,
    )
    return str(np.random.default_rng().choice(GENRES, p=softmax(EPSILON / 2 * scores)))


def score_of_the_winner(data):
    """The winner is chosen privately, its score is the true one."""
    scores = votes(data)
    best = int(np.random.default_rng().choice(4, p=softmax(EPSILON / 2 * scores)))
    return {"genre": GENRES[best], "votes": float(scores[best])}


def median_with_noise(data):
    """Noise of scale 1 on a median, which one record moves far."""
    values = clipped(data)
    median = float(np.median(values)) if len(values) else 50.0
    return median + np.random.default_rng().laplace(scale=1 / EPSILON)


def threshold_with_noise_only(data):
    """Sparse vector without noise on the queries: all answers hang on one draw."""
    limit = 10 + np.random.default_rng().laplace(scale=2 / EPSILON)
    values = clipped(data)
    return [bool((values >= age).sum() >= limit) for age in GRID]


def all_that_are_above(data):
    """Each noisy comparison has all of ε, for eleven of them."""
    rng = np.random.default_rng()
    values = clipped(data)
    counts = [(values >= age).sum() for age in GRID]
    return [bool(n + rng.laplace(scale=1 / EPSILON) >= 10) for n in counts]


def best_of_the_noisy_few(data):
    """Noise is drawn only for genres with the most true votes."""
    scores = votes(data)
    few = np.flatnonzero(scores == scores.max())
    noisy = scores[few] + np.random.default_rng().laplace(scale=2 / EPSILON, size=len(few))
    return GENRES[int(few[noisy.argmax()])]


ADD = {
    "data": SONGS,
    "adjacency": "add-remove",
    "claim": {"epsilon": EPSILON},
    "neighbour": [*SONGS, {"genre": "pop", "plays": 5}],
}
NUMBERS = {**ADD, "data": AGES, "neighbour": [*AGES, 100.0]}
CASES = {
    "candidates_of_the_data": {
        **ADD,
        "neighbour": [*SONGS, {"genre": "polka", "plays": 1}],
        "expect": "control flow",
        "or": ["shape", "scale", "domain", "release"],
    },
    "plays_as_scores": {
        **ADD,
        "bounds": {"plays": (0, 5), "genre": list(GENRES)},
        "expect": "budget",
    },
    "score_of_the_winner": {
        **ADD,
        "neighbour": [*SONGS, {"genre": "jazz", "plays": 5}],
        "expect": "release",
    },
    "median_with_noise": {
        **NUMBERS,
        "data": [0.0, 0.0, 100.0, 100.0],
        "neighbour": [0.0, 0.0, 100.0, 100.0, 100.0],
        "expect": "budget",
    },
    "threshold_with_noise_only": {
        **NUMBERS,
        "data": [20.0] * 8 + [80.0] * 10,
        "neighbour": [20.0] * 8 + [80.0] * 10 + [45.0],
        "expect": "budget",
        "or": ["release"],
    },
    "all_that_are_above": {**NUMBERS, "expect": "budget", "or": ["release"]},
    "best_of_the_noisy_few": {
        **ADD,
        "data": [{"genre": "jazz", "plays": 0}, {"genre": "rock", "plays": 0}],
        "neighbour": [{"genre": "jazz", "plays": 0}] * 2 + [{"genre": "rock", "plays": 0}],
        "expect": "control flow",
        "or": ["shape", "release"],
    },
}
