"""Right: noise of numpy's older functions and of sums of other draws."""

import numpy as np

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
PARTIES = 5
INCOMES = [{"income": 1000.0 + 450 * (i % 9), "region": "NSEW"[i % 4]} for i in range(36)]


def incomes(data):
    """Incomes up to 5000, as shares of it; what is missing counts as 0."""
    values = np.array([r["income"] for r in data], dtype=float)
    return np.clip(np.nan_to_num(values), 0, 5000) / 5000


def count_global_laplace(data):
    """The module's own generator, seeded by the system."""
    return len(data) + np.random.laplace(0, 1 / EPSILON)


def sum_randn(data):
    """A sum with scaled standard normal noise."""
    return 5000 * (incomes(data).sum() + SIGMA * np.random.randn())


def count_random_state(data):
    """A generator of the older class, seeded by the system."""
    state = np.random.RandomState()
    return len(data) + state.laplace(scale=1 / EPSILON)


def sum_exponential_difference(data):
    """A difference of exponential draws is Laplace noise."""
    b = 1 / EPSILON
    noise = np.random.exponential(b) - np.random.exponential(b)
    return 5000 * (incomes(data).sum() + noise)


def regions_uniform_inverse(data):
    """Laplace noise of uniform draws, for four public regions."""
    counts = np.array([sum(r["region"] == name for r in data) for name in "NSEW"], dtype=float)
    u = np.random.uniform(-0.5, 0.5, size=4)
    noise = -np.sign(u) * np.log1p(-2 * np.abs(u)) / EPSILON
    return dict(zip("NSEW", counts + noise, strict=True))


def count_geometric_difference(data):
    """A difference of geometric draws is discrete Laplace noise."""
    p = 1 - np.exp(-EPSILON)
    return int(len(data) + np.random.geometric(p) - np.random.geometric(p))


def sum_of_distributed_noise(data):
    """Five servers add a part of the noise each; together it is Laplace noise."""
    shape, b = 1 / PARTIES, 1 / EPSILON
    total = incomes(data).sum()
    for _ in range(PARTIES):
        total = total + np.random.gamma(shape, b) - np.random.gamma(shape, b)
    return total


def count_gamma_of_vector(data):
    """Noise of a random length and sign: a Laplace draw in one dimension."""
    length = np.random.gamma(1.0, 1 / EPSILON)
    sign = 1 if np.random.randint(2) else -1
    return len(data) + sign * length


PURE, APPROXIMATE = {"epsilon": EPSILON, "delta": 0.0}, {"epsilon": EPSILON, "delta": DELTA}
ADD = {"data": INCOMES, "adjacency": "add-remove", "claim": PURE}
CASES = {
    "count_global_laplace": ADD,
    "sum_randn": ADD | {"claim": APPROXIMATE},
    "count_random_state": ADD,
    "sum_exponential_difference": ADD,
    "regions_uniform_inverse": ADD,
    "count_geometric_difference": ADD,
    "sum_of_distributed_noise": ADD,
    "count_gamma_of_vector": ADD,
}
