"""PipelineDP 0.3.1: sums of cities that it selects; (6, 1e-5)-DP, one more or less."""

import operator

import pipeline_dp


def run(data):
    """The local backend; a record is a person; which cities there are is private."""
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=6, total_delta=1e-5)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
        metrics=[pipeline_dp.Metrics.PRIVACY_ID_COUNT, pipeline_dp.Metrics.SUM],
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=0,
        max_value=100,
    )
    rows = ((i, person["city"], person["age"]) for i, person in enumerate(data))
    extractors = pipeline_dp.DataExtractors(*map(operator.itemgetter, range(3)))
    result = engine.aggregate(rows, params, extractors)
    budget.compute_budgets()
    return {city: tuple(metrics) for city, metrics in sorted(result)}
