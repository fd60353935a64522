"""Right: measurements of OpenDP, chained from the data or called on a query's result."""

import opendp.prelude as dp

dp.enable_features("contrib")
EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
AGES = [20 + (7 * i) % 60 for i in range(30)]
PETS = ("cat", "dog", "hen")
OWNERS = [{"pet": PETS[i % 3]} for i in range(21)]
INTEGERS = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
TEXTS = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()


def ages(data):
    """Whole ages between 0 and 120; what is no number counts as 0."""
    return [int(min(max(v, 0), 120)) if v is not None and v == v else 0 for v in data]


def pets(data):
    """The pets as texts."""
    return [str(r["pet"]) for r in data]


def sum_chained(data):
    """A sum of clamped ages, noise for the largest of them."""
    query = INTEGERS >> dp.t.then_clamp((0, 100)) >> dp.t.then_sum()
    return (query >> dp.m.then_laplace(scale=100 / EPSILON))(ages(data))


def sum_by_search(data):
    """The noise is found by binary search."""
    query = INTEGERS >> dp.t.then_clamp((0, 100)) >> dp.t.then_sum()
    chain = dp.binary_search_chain(lambda s: query >> dp.m.then_laplace(s), 1, EPSILON)
    return chain(ages(data))


def count_base_gaussian(data):
    """A measurement of one number, called on the count."""
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    return dp.m.make_gaussian(*space, scale=SIGMA)(float(len(data)))


def counts_chained(data):
    """Counts by public categories, and of all others."""
    query = TEXTS >> dp.t.then_count_by_categories(categories=list(PETS))
    return (query >> dp.m.then_laplace(scale=1 / EPSILON))(pets(data))


def most_owned(data):
    """Noisy maximum of counts; each count moves by 1 at most."""
    counts = [pets(data).count(p) for p in PETS]
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int)
    choose = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=2 / EPSILON)
    return PETS[choose(counts)]


def cats_locally(data):
    """Randomised response: each record is true with 3/4."""
    respond = dp.m.make_randomized_response_bool(0.75)
    return [respond(p == "cat") for p in pets(data)]


def pets_locally(data):
    """Randomised response with three public answers; others answer cat."""
    respond = dp.m.make_randomized_response(list(PETS), 0.6)
    return [respond(p if p in PETS else "cat") for p in pets(data)]


def by_context(data):
    """Two queries of the Context API."""
    context = dp.Context.compositor(
        data=ages(data),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=EPSILON),
        split_evenly_over=2,
        domain=dp.vector_domain(dp.atom_domain(T=int)),
    )
    count = context.query().count().laplace().release()
    total = context.query().clamp((0, 100)).sum().laplace().release()
    return {"count": count, "mean": total / max(count, 1)}


PURE = {"epsilon": EPSILON, "delta": 0.0}
ADD = {"data": AGES, "adjacency": "add-remove", "claim": PURE}
PETS_ADDED = {"data": OWNERS, "adjacency": "add-remove", "claim": PURE}
LOCAL = {"data": OWNERS, "adjacency": "replace", "claim": {"epsilon": 1.0987, "delta": 0.0}}
CASES = {
    "sum_chained": ADD,
    "sum_by_search": ADD,
    "count_base_gaussian": ADD | {"claim": {"epsilon": EPSILON, "delta": DELTA}},
    "counts_chained": PETS_ADDED,
    "most_owned": PETS_ADDED,
    "cats_locally": LOCAL,
    "pets_locally": LOCAL,
    "by_context": ADD,
}
