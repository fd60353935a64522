"""Wrong, one mistake each: noise of numpy's older functions."""

import numpy as np

EPSILON, DELTA = 0.5, 1e-5
INCOMES = [{"income": 1000.0 + 450 * (i % 9), "region": "NSEW"[i % 4]} for i in range(36)]


def incomes(data):
    """Incomes up to 5000, as shares of it; what is missing counts as 0."""
    values = np.array([r["income"] for r in data], dtype=float)
    return np.clip(np.nan_to_num(values), 0, 5000) / 5000


def region_counts(data):
    """Counts of public regions."""
    return {name: sum(r["region"] == name for r in data) for name in "NSEW"}


def global_seed(data):
    """The module's generator is seeded in the pipeline."""
    np.random.seed(0)
    return len(data) + np.random.laplace(0, 1 / EPSILON)


def global_seed_of_the_sum(data):
    """The seed is made of the data."""
    np.random.seed(int(incomes(data).sum() * 5000) % (1 << 32))
    return incomes(data).sum() + np.random.laplace(0, 1 / EPSILON)


def state_put_back(data):
    """The generator's state is put back between two statistics: they share their noise."""
    state = np.random.get_state()
    count = len(data) + np.random.laplace(0, 2 / EPSILON)
    np.random.set_state(state)
    return {"count": count, "sum": incomes(data).sum() + np.random.laplace(0, 2 / EPSILON)}


def epsilon_as_scale(data):
    """ε is taken for the scale: a small one makes little noise."""
    return len(data) + np.random.laplace(0, EPSILON)


def small_groups_hidden(data):
    """True counts below nine are set to 0 before the noise."""
    noisy = {}
    for name, n in region_counts(data).items():
        noisy[name] = n + np.random.laplace(0, 1 / EPSILON) if n >= 9 else 0
    return noisy


def averaged_answers(data):
    """The mean of many answers with all of ε each."""
    return np.mean([len(data) + np.random.laplace(0, 1 / EPSILON) for _ in range(50)])


def scale_of_the_deviation(data):
    """The noise is as wide as the data."""
    shares = incomes(data)
    return shares.sum() + np.random.normal(0, 4 * np.std(shares) if len(shares) else 1.0)


def noise_for_each_record(data):
    """Noise on each record, and the mean by the true count: the number of draws is the data's."""
    noisy = [x + np.random.laplace(0, 1 / EPSILON) for x in incomes(data)]
    return sum(noisy) / len(noisy) if noisy else 0.0


MORE = [*INCOMES, {"income": 4000.0, "region": "N"}]
ADD = {
    "data": INCOMES,
    "adjacency": "add-remove",
    "claim": {"epsilon": EPSILON},
    "neighbour": MORE,
}
CASES = {
    "global_seed": {**ADD, "expect": "seed"},
    "global_seed_of_the_sum": {**ADD, "expect": "seed"},
    "state_put_back": {**ADD, "expect": "reuse", "or": ["seed"]},
    "epsilon_as_scale": {**ADD, "expect": "budget"},
    "small_groups_hidden": {
        **ADD,
        "neighbour": INCOMES[1:],
        "expect": "control flow",
        "or": ["release"],
    },
    "averaged_answers": {**ADD, "expect": "budget"},
    "scale_of_the_deviation": {
        **ADD,
        "claim": {"epsilon": EPSILON, "delta": DELTA},
        "expect": "scale",
    },
    "noise_for_each_record": {**ADD, "expect": "control flow", "or": ["shape", "release"]},
}
