"""Wrong, one mistake each: measurements of OpenDP."""

import opendp.prelude as dp

dp.enable_features("contrib")
EPSILON = 1.0
AGES = [20 + (7 * i) % 60 for i in range(30)]
PETS = ("cat", "dog", "hen")
OWNERS = [{"pet": PETS[i % 3]} for i in range(21)]
INTEGERS = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
TEXTS = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
NUMBER = dp.atom_domain(T=int), dp.absolute_distance(T=int)


def ages(data):
    """Whole ages between 0 and 1000; what is no number counts as 0."""
    return [int(min(max(v, 0), 1000)) if v is not None and v == v else 0 for v in data]


def pets(data):
    """The pets as texts."""
    return [str(r["pet"]) for r in data]


def sum_not_clamped(data):
    """A base measurement, whose input is not clamped, with noise for 100."""
    return dp.m.make_laplace(*NUMBER, scale=100 / EPSILON)(sum(ages(data)))


def scale_of_the_data(data):
    """The scale is the largest age."""
    values = ages(data)
    return dp.m.make_laplace(*NUMBER, scale=float(max(values, default=1) or 1))(sum(values))


def clamped_by_the_data(data):
    """The bounds are the data's own."""
    values = ages(data)
    low, high = min(values, default=0), max(values, default=1) + 1
    query = INTEGERS >> dp.t.then_clamp((low, high)) >> dp.t.then_sum()
    return (query >> dp.m.then_laplace(scale=high / EPSILON))(values)


def categories_of_the_data(data):
    """The categories are those that occur."""
    found = sorted(set(pets(data))) or ["none"]
    query = TEXTS >> dp.t.then_count_by_categories(categories=found)
    return (query >> dp.m.then_laplace(scale=1 / EPSILON))(pets(data))


def measured_twice(data):
    """A measurement of ε is called twice."""
    count = INTEGERS >> dp.t.then_count() >> dp.m.then_laplace(scale=1 / EPSILON)
    return (count(ages(data)) + count(ages(data))) / 2


def size_of_the_data(data):
    """A mean for a known size, which is the data's."""
    n = max(len(data), 1)
    space = dp.vector_domain(dp.atom_domain(bounds=(0.0, 100.0)), size=n), dp.symmetric_distance()
    mean = space >> dp.t.then_mean() >> dp.m.then_laplace(scale=100.0 / n / EPSILON)
    return mean([float(min(v, 100)) for v in ages(data)] or [0.0])


def count_released_with_it(data):
    """A noisy sum, and the true count."""
    query = INTEGERS >> dp.t.then_clamp((0, 100)) >> dp.t.then_sum()
    return (query >> dp.m.then_laplace(scale=100 / EPSILON))(ages(data)), len(data)


def noisy_maximum_of_sums(data):
    """Sums of up to 10 are compared with noise for counts."""
    values = ages(data)
    sums = [sum(min(v, 100) // 10 for v in values if v % 3 == k) for k in range(3)]
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int)
    return dp.m.make_noisy_max(*space, dp.max_divergence(), scale=2 / EPSILON)(sums)


ADD = {
    "data": AGES,
    "adjacency": "add-remove",
    "claim": {"epsilon": EPSILON},
    "neighbour": [*AGES, 90],
}
FAR = {**ADD, "neighbour": [*AGES, 500]}
CASES = {
    "sum_not_clamped": {**FAR, "expect": "budget", "or": ["sensitivity"]},
    "scale_of_the_data": {**FAR, "expect": "scale"},
    "clamped_by_the_data": {**FAR, "expect": "scale", "or": ["sensitivity"]},
    "categories_of_the_data": {
        **ADD,
        "data": OWNERS,
        "neighbour": [*OWNERS, {"pet": "owl"}],
        "expect": "control flow",
        "or": ["shape", "scale", "domain", "sensitivity", "budget"],
    },
    "measured_twice": {**ADD, "expect": "budget"},
    "size_of_the_data": {**ADD, "expect": "scale"},
    "count_released_with_it": {**ADD, "expect": "release"},
    "noisy_maximum_of_sums": {**ADD, "expect": "budget", "or": ["sensitivity"]},
}
