"""PipelineDP 0.3.1: a count of public cities from a list of rows; (1, 0)-DP, one more or less."""

import operator

import pipeline_dp


def run(data):
    """As in the library's local example, the rows are a list."""
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=0)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        metrics=[pipeline_dp.Metrics.COUNT],
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
    )
    rows = [(i, person["city"], 1) for i, person in enumerate(data)]
    extractors = pipeline_dp.DataExtractors(*map(operator.itemgetter, range(3)))
    cities = ["Bonn", "Graz", "Wien"]
    result = engine.aggregate(rows, params, extractors, public_partitions=cities)
    budget.compute_budgets()
    return {city: metrics.count for city, metrics in sorted(result)}
