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
SUM = INTEGERS >> dp.t.then_clamp((0, 100)) >> dp.t.then_sum()


def ages(data):
    """Whole ages between 0 and 1000; what is no number counts as 0."""
    return [int(min(max(v, 0), 1000)) if v is not None and v == v else 0 for v in data]


def pets(data):
    """The pets as texts."""
    return [str(r["pet"]) for r in data]


def sum_not_clamped(data):
    """A base measurement, whose input is not clamped, with noise for 100."""
    return dp.m.make_laplace(*NUMBER, scale=100 / EPSILON)(sum(ages(data)))  # mistake


def scale_of_the_data(data):
    """The scale is one more than the largest age."""
    values = ages(data)
    scale = (1.0 + max(values, default=0)) / EPSILON
    return dp.m.make_laplace(*NUMBER, scale=scale)(sum(values))  # mistake


def clamped_by_the_data(data):
    """The bounds are the data's own."""
    high = max(ages(data), default=0) + 1
    query = INTEGERS >> dp.t.then_clamp((0, high)) >> dp.t.then_sum()
    return (query >> dp.m.then_laplace(scale=high / EPSILON))(ages(data))  # mistake


def categories_of_the_data(data):
    """The categories are those that occur."""
    found = sorted(set(pets(data))) or ["none"]
    query = TEXTS >> dp.t.then_count_by_categories(categories=found)
    return (query >> dp.m.then_laplace(scale=1 / EPSILON))(pets(data))  # mistake


def measured_four_times(data):
    """A measurement of ε is called four times."""
    count = INTEGERS >> dp.t.then_count() >> dp.m.then_laplace(scale=1 / EPSILON)
    return [count(ages(data)) for _ in range(4)]  # mistake


def size_of_the_data(data):
    """A mean for a known size, which is the data's."""
    values = [float(min(v, 100)) for v in ages(data)] or [0.0]
    domain = dp.vector_domain(dp.atom_domain(bounds=(0.0, 100.0)), size=len(values))
    mean = (domain, dp.symmetric_distance()) >> dp.t.then_mean()
    return (mean >> dp.m.then_laplace(scale=100.0 / len(values) / EPSILON))(values)  # mistake


def noisy_maximum_of_a_sum(data):
    """A sum of up to 10 from each is compared with 5, with noise for counts."""
    scores = [sum(min(v, 100) // 10 for v in ages(data)), 5]
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int)
    choose = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=2 / EPSILON)
    return choose(scores)  # mistake


ADD = {"data": AGES, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
CASES = {
    "sum_not_clamped": ADD | {"expect": "budget, sensitivity"},
    "scale_of_the_data": ADD | {"expect": "scale"},
    "clamped_by_the_data": ADD | {"expect": "scale, sensitivity"},
    "categories_of_the_data": ADD
    | {"data": OWNERS, "expect": "control flow, shape, scale, domain, sensitivity"},
    "measured_four_times": ADD | {"expect": "budget"},
    "size_of_the_data": ADD | {"expect": "scale"},
    "noisy_maximum_of_a_sum": ADD | {"data": [90, 90], "expect": "budget, sensitivity"},
}
