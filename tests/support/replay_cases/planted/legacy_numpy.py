"""Wrong, one mistake each: noise of numpy's older functions."""

import numpy as np

EPSILON = 0.5
INCOMES = [{"income": 1000.0 + 450 * (i % 9), "region": "NSEW"[i % 4]} for i in range(36)]


def incomes(data):
    """Incomes up to 5000, as shares of it; what is missing counts as 0."""
    values = np.array([r["income"] for r in data], dtype=float)
    return np.clip(np.nan_to_num(values), 0, 5000) / 5000


def global_seed(data):
    """The module's generator is seeded in the pipeline."""
    np.random.seed(0)  # mistake
    return len(data) + np.random.laplace(0, 1 / EPSILON)


def global_seed_of_the_sum(data):
    """The seed is made of the data."""
    np.random.seed(int(incomes(data).sum() * 5000) % (1 << 32))  # mistake
    return incomes(data).sum() + np.random.laplace(0, 1 / EPSILON)


def state_put_back(data):
    """The generator's state is put back between two statistics: they share their noise."""
    state = np.random.get_state()
    count = len(data) + np.random.laplace(0, 2 / EPSILON)
    np.random.set_state(state)  # mistake
    return {"count": count, "sum": incomes(data).sum() + np.random.laplace(0, 2 / EPSILON)}


def epsilon_as_scale(data):
    """ε is taken for the scale: a small one makes little noise."""
    return len(data) + np.random.laplace(0, EPSILON)  # mistake


def uniform_noise(data):
    """Uniform noise is bounded: its ends exclude a data set."""
    return len(data) + np.random.uniform(-2 / EPSILON, 2 / EPSILON)  # mistake


CLAIM = {"epsilon": EPSILON, "delta": 0.0}
ADD = {"data": INCOMES, "adjacency": "add-remove", "claim": CLAIM}
CASES = {
    "global_seed": ADD | {"expect": "seed"},
    "global_seed_of_the_sum": ADD | {"expect": "seed"},
    "state_put_back": ADD | {"expect": "reuse, seed"},
    "epsilon_as_scale": ADD | {"expect": "budget"},
    "uniform_noise": ADD | {"expect": "budget, release"},
}
