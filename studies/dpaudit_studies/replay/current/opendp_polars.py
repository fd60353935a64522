"""OpenDP 0.16.0: the Polars interface, a count and a sum of ages; (1, 0)-DP, one more or less."""

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")


def run(data):
    """One query of two columns."""
    frame = pl.LazyFrame({"age": [int(p["age"]) for p in data]}, schema={"age": pl.Int64})
    context = dp.Context.compositor(
        data=frame,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=1,
        margins=[dp.polars.Margin(max_length=1000)],
    )
    query = context.query().select(dp.len(), pl.col("age").fill_null(0).dp.sum((0, 100)))
    return query.release().collect()


def cities(data):
    """Counts of cities whose names are private: few people are not shown; δ is 1e-5."""
    frame = pl.LazyFrame({"city": [str(p["city"]) for p in data]}, schema={"city": pl.String})
    context = dp.Context.compositor(
        data=frame,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-5),
        split_evenly_over=1,
        margins=[dp.polars.Margin(max_length=1000)],
    )
    return context.query().group_by("city").agg(dp.len()).release().collect().sort("city")
