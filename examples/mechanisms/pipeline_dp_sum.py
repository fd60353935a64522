"""A PipelineDP pipeline: noisy sum of ages per city, ages clipped to 0…100; claimed: ε = 1."""

import operator

import pipeline_dp

CITIES = ["Bonn", "Graz", "Oslo"]
PARAMS = pipeline_dp.AggregateParams(
    metrics=[pipeline_dp.Metrics.SUM],
    max_partitions_contributed=1,
    max_contributions_per_partition=1,
    min_value=0,
    max_value=100,
)


def as_returned(people):
    """A sum per city, in the order of PipelineDP's local backend: cities that occur come first."""
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=0)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
    rows = ((i, person["city"], person["age"]) for i, person in enumerate(people))
    extractors = pipeline_dp.DataExtractors(*map(operator.itemgetter, range(3)))
    sums = engine.aggregate(rows, PARAMS, extractors, public_partitions=CITIES)
    budget.compute_budgets()
    return {city: metrics.sum for city, metrics in sums}


def by_city(people):
    """The same, in an order that does not depend on the data."""
    return dict(sorted(as_returned(people).items()))
