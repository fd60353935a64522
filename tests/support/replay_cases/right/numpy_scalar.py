"""Right: single numbers with noise of a numpy generator, as analysts write them.

Values may be missing, infinite or far out: they are clipped, and a missing one counts as the least.
"""

from dataclasses import dataclass

import numpy as np

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
LOW, HIGH = 0.0, 100.0
RNG = np.random.default_rng()
AGES = [{"age": 20 + (7 * i) % 55, "smoker": i % 3 == 0} for i in range(30)]


def clipped(data, field="age", low=LOW, high=HIGH):
    """A field's values between public bounds."""
    values = np.array([r[field] for r in data], dtype=float)
    return np.clip(np.nan_to_num(values), low, high)


def count_laplace(data):
    """A count, with noise of the module's generator."""
    return len(data) + RNG.laplace(scale=1 / EPSILON)


def count_gaussian_as_location(data):
    """A count given as the location of the noise."""
    return float(np.random.default_rng().normal(len(data), SIGMA))


def count_logistic(data):
    """Logistic noise: its log density has slope at most ε."""
    return len(data) + np.random.default_rng().logistic(0.0, 1 / EPSILON)


def sum_gaussian_centred(data):
    """A sum of values that are centred first: sensitivity 50."""
    centred = clipped(data) - 50
    return centred.sum() + np.random.default_rng().normal(scale=50 * SIGMA)


def mean_of_two_queries(data):
    """Noisy sum by noisy count, half of ε each."""
    rng = np.random.default_rng()
    total = clipped(data).sum() + rng.laplace(scale=HIGH / (EPSILON / 2))
    count = len(data) + rng.laplace(scale=1 / (EPSILON / 2))
    return float(np.clip(total / max(count, 1.0), LOW, HIGH))


def mean_of_known_size(data):
    """A mean where one record is replaced: the number of records is public."""
    n = max(len(data), 1)
    return clipped(data).sum() / n + np.random.default_rng().laplace(scale=HIGH / n / EPSILON)


def count_in_a_sentence(data):
    """A text with the noisy number."""
    noisy = len(data) + np.random.default_rng().laplace(scale=1 / EPSILON)
    return f"about {noisy:.1f} people took part (ε = {EPSILON:g})"


@dataclass
class Summary:
    """What is published."""

    smokers: float
    share: float


def summary_in_a_dataclass(data):
    """Two counts, half of ε each; the share is made of noisy numbers."""
    rng = np.random.default_rng()
    smokers = sum(bool(r["smoker"]) for r in data) + rng.laplace(0, 2 / EPSILON)
    people = len(data) + rng.laplace(0, 2 / EPSILON)
    return Summary(float(smokers), float(min(max(smokers / max(people, 1.0), 0.0), 1.0)))


def second_query_if_many(data):
    """A branch on a noisy count; the second half of ε may stay unspent."""
    rng = np.random.default_rng()
    count = len(data) + rng.laplace(scale=2 / EPSILON)
    if count < 10:
        return {"count": count}
    total = clipped(data).sum() + rng.laplace(scale=HIGH * 2 / EPSILON)
    return {"count": count, "mean": total / count}


def message_with_the_noisy_number(data):
    """A message is printed, of the noisy number alone."""
    noisy = len(data) + np.random.default_rng().laplace(scale=1 / EPSILON)
    print(f"counted {noisy:.2f}")
    return noisy


PURE, APPROXIMATE = {"epsilon": EPSILON, "delta": 0.0}, {"epsilon": EPSILON, "delta": DELTA}
ADD = {"data": AGES, "adjacency": "add-remove", "claim": PURE}
CASES = {
    "count_laplace": ADD,
    "count_gaussian_as_location": ADD | {"claim": APPROXIMATE},
    "count_logistic": ADD,
    "sum_gaussian_centred": ADD | {"claim": APPROXIMATE},
    "mean_of_two_queries": ADD,
    "mean_of_known_size": ADD | {"adjacency": "replace"},
    "count_in_a_sentence": ADD,
    "summary_in_a_dataclass": ADD,
    "second_query_if_many": ADD,
    "message_with_the_noisy_number": ADD,
}
