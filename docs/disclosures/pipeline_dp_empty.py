"""PipelineDP: nobody, or one person: an error tells which, whatever the noise."""

import pipeline_dp


def released(rows):
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=0)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.COUNT],
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
    )
    parts = pipeline_dp.DataExtractors(*(lambda row, i=i: row[i] for i in range(3)))
    counts = engine.aggregate(rows, params, parts, public_partitions=["Bonn"])
    budget.compute_budgets()
    return [(city, metrics.count) for city, metrics in counts]


print("one person:", released([(0, "Bonn", 1)]))
print("nobody:", released([]))
