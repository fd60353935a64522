"""PipelineDP 0.3.1: count, sum and mean of public cities; (1, 0)-DP, one record more or less."""

import operator

import pipeline_dp


def run(data):
    """The local backend; a record is a person."""
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=0)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        metrics=[pipeline_dp.Metrics.COUNT, pipeline_dp.Metrics.MEAN],
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=0,
        max_value=100,
    )
    rows = ((i, person["city"], person["age"]) for i, person in enumerate(data))
    extractors = pipeline_dp.DataExtractors(*map(operator.itemgetter, range(3)))
    cities = ["Bonn", "Graz", "Wien"]
    result = engine.aggregate(rows, params, extractors, public_partitions=cities)
    budget.compute_budgets()
    return {city: tuple(metrics) for city, metrics in sorted(result)}
