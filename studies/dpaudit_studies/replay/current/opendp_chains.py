"""OpenDP 0.16.0: a sum, a histogram, a quantile from chains; (1, 0)-DP each, one more or less."""

import opendp.prelude as dp

dp.enable_features("contrib")
AGES = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
CITIES = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
NAMES = ["Bonn", "Graz", "Wien"]


def total(data):
    """A sum whose noise is found by search."""
    query = AGES >> dp.t.then_clamp((0, 100)) >> dp.t.then_sum()
    found = dp.binary_search_chain(lambda s: query >> dp.m.then_laplace(s), d_in=1, d_out=1.0)
    return found([int(p["age"]) for p in data])


def histogram(data):
    """Counts of known cities, and of all others."""
    query = CITIES >> dp.t.then_count_by_categories(categories=NAMES)
    found = dp.binary_search_chain(lambda s: query >> dp.m.then_laplace(s), d_in=1, d_out=1.0)
    return dict(zip([*NAMES, "other"], found([str(p["city"]) for p in data]), strict=True))


def median(data):
    """The score of each candidate goes to the noisy maximum."""
    candidates = [20, 40, 60, 80]
    query = AGES >> dp.t.then_quantile_score_candidates(candidates, alpha=0.5)
    found = dp.binary_search_chain(
        lambda s: query >> dp.m.then_noisy_max(dp.max_divergence(), s), d_in=1, d_out=1.0
    )
    return candidates[found([int(p["age"]) for p in data])]
