"""PipelineDP: nobody, or one person: an error tells which, whatever the noise."""

import pipeline_dp


def fails(rows):
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=0)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
    count = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.COUNT],
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
    )
    parts = pipeline_dp.DataExtractors(*(lambda row, i=i: row[i] for i in range(3)))
    try:
        engine.aggregate(rows, count, parts, public_partitions=["Bonn"])
    except ValueError:
        return True
    return False


for rows in ([], [(0, "Bonn", 1)]):
    errors = sum(fails(rows) for _ in range(20))
    print(f"{len(rows)} people: {errors} of 20 runs end with an error")
