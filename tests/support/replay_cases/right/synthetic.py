"""Right: synthetic records of noisy tables over public domains."""

import random

import numpy as np
import pandas as pd

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
SEXES, BANDS = ("f", "m"), ("0-29", "30-59", "60+")
ROWS = 50
CENSUS = [{"sex": SEXES[i % 2], "band": BANDS[(i * i) % 3], "size": i % 5} for i in range(40)]


def counts(data, field, values):
    """Counts of public values of a field."""
    return np.array([sum(r[field] == v for r in data) for v in values], dtype=float)


def chances(noisy):
    """Probabilities of noisy counts."""
    positive = np.maximum(np.asarray(noisy, dtype=float), 1e-3)
    return positive / positive.sum()


def independent_margins(data: list):
    """Two noisy margins, half of ε each; a fixed number of rows is drawn."""
    rng = np.random.default_rng()
    sex = chances(counts(data, "sex", SEXES) + rng.laplace(0, 2 / EPSILON, 2))
    band = chances(counts(data, "band", BANDS) + rng.laplace(0, 2 / EPSILON, 3))
    return pd.DataFrame(
        {"sex": rng.choice(SEXES, ROWS, p=sex), "band": rng.choice(BANDS, ROWS, p=band)}
    )


def joint_table(data: list):
    """A noisy table of all pairs of values; rows are drawn from it."""
    cells = [(s, b) for s in SEXES for b in BANDS]
    table = [sum((r["sex"], r["band"]) == cell for r in data) for cell in cells]
    noisy = np.array(table) + np.random.laplace(0, 1 / EPSILON, len(cells))
    return random.choices(cells, weights=chances(noisy).tolist(), k=ROWS)


def rounded_table(data: list):
    """Each cell's noisy count, rounded, as that many rows."""
    rng = np.random.default_rng()
    rows = []
    for sex in SEXES:
        for band in BANDS:
            n = sum(r["sex"] == sex and r["band"] == band for r in data)
            noisy = n + rng.laplace(scale=1 / EPSILON)
            rows += [{"sex": sex, "band": band}] * max(0, round(float(noisy)))
    return rows


def chain_of_conditionals(data: list):
    """A fixed network: the sex, then the band given the sex."""
    rng = np.random.default_rng()
    sex = chances(counts(data, "sex", SEXES) + rng.normal(0, SIGMA * 2**0.5, 2))
    given = {}
    for s in SEXES:
        own = [r for r in data if r["sex"] == s]
        given[s] = chances(counts(own, "band", BANDS) + rng.normal(0, SIGMA * 2**0.5, 3))
    rows = []
    for _ in range(ROWS):
        s = SEXES[int(rng.choice(2, p=sex))]
        rows.append((s, BANDS[int(rng.choice(3, p=given[s]))]))
    return rows


def multiplicative_weights(data: list):
    """MWEM with fixed rounds: a query is chosen, measured, fitted."""
    rng = np.random.default_rng()
    true = np.array([sum(r["size"] == k for r in data) for k in range(5)], dtype=float)
    queries = np.tril(np.ones((5, 5)))
    total = max(true.sum() + rng.laplace(0, 4 / EPSILON), 1.0)
    fitted = np.full(5, total / 5)
    share = EPSILON * 0.75 / 3 / 2
    for _ in range(3):
        errors = np.abs(queries @ true - queries @ fitted)
        weights = np.exp(share / 2 * (errors - errors.max()))
        chosen = queries[int(rng.choice(5, p=weights / weights.sum()))]
        measured = chosen @ true + rng.laplace(0, 1 / share)
        fitted = fitted * np.exp(chosen * (measured - chosen @ fitted) / (2 * total))
        fitted *= total / fitted.sum()
    return fitted.round(2).tolist()


def normal_model(data: list):
    """A noisy count, sum and sum of squares; then draws of a normal law."""
    rng = np.random.default_rng()
    sizes = np.array([r["size"] for r in data], dtype=float)
    sizes = np.clip(np.nan_to_num(sizes), 0, 4) / 4
    moments = np.array([len(sizes), sizes.sum(), (sizes**2).sum()])
    n, first, second = moments + rng.laplace(0, 3 / EPSILON, 3)
    mean = first / max(n, 1.0)
    spread = np.sqrt(np.clip(second / max(n, 1.0) - mean**2, 0.01, 1.0))
    return 4 * np.clip(mean + spread * rng.standard_normal(ROWS), 0, 1)


APPROXIMATE = {"epsilon": EPSILON, "delta": DELTA}
ADD = {"data": CENSUS, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
CASES = {
    "independent_margins": ADD,
    "joint_table": ADD,
    "rounded_table": ADD,
    "chain_of_conditionals": ADD | {"claim": APPROXIMATE},
    "multiplicative_weights": ADD,
    "normal_model": ADD,
}
