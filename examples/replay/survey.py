"""A yearly survey: tables of income and working hours by region, with one mistake to find.

    dpaudit replay examples/replay/survey.py:run --data examples/replay/survey.csv \\
        --claim-epsilon 1 --bounds 'income=0:10000;hours=0:80'

docs/replay-your-pipeline.md goes from here to the line, and to a run without a finding.
"""

import pandas as pd
from diffprivlib.mechanisms import Geometric, Laplace

REGIONS = ["east", "north", "south", "west"]
INCOME = (0.0, 10_000.0)
HOURS = (0.0, 80.0)
EPSILON = 1.0  # for one person, all tables together
SMALL = 5


def clean(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep what the tables need, in the ranges that they are made for."""
    frame = frame[["region", "income", "hours"]].copy()
    frame = frame[frame["region"].isin(REGIONS)]
    frame["income"] = pd.to_numeric(frame["income"], errors="coerce").fillna(0.0)
    frame["hours"] = pd.to_numeric(frame["hours"], errors="coerce").fillna(0.0)
    frame["income"] = frame["income"].clip(*INCOME)
    frame["hours"] = frame["hours"].clip(*HOURS)
    return frame


def counts_by_region(frame: pd.DataFrame, epsilon: float) -> dict[str, int]:
    """How many people answered, in each region."""
    geometric = Geometric(epsilon=epsilon, sensitivity=1)
    groups = frame.groupby("region").size().reindex(REGIONS, fill_value=0)
    return {region: geometric.randomise(int(groups[region])) for region in REGIONS}


def mean_income_by_region(
    frame: pd.DataFrame, counts: dict[str, int], epsilon: float
) -> dict[str, float]:
    """The mean income of each region: a noisy sum over the number of people."""
    laplace = Laplace(epsilon=epsilon, sensitivity=INCOME[1])
    means = {}
    for region in REGIONS:
        people = frame[frame["region"] == region]
        total = laplace.randomise(float(people["income"].sum()))
        means[region] = round(total / max(len(people), 1), 2)
    return means


def mean_hours(frame: pd.DataFrame, counts: dict[str, int], epsilon: float) -> float:
    """The mean working time of all regions."""
    laplace = Laplace(epsilon=epsilon, sensitivity=HOURS[1])
    return round(laplace.randomise(float(frame["hours"].sum())) / max(sum(counts.values()), 1), 1)


def run(frame: pd.DataFrame) -> dict[str, object]:
    """Everything that is published."""
    frame = clean(frame)
    counts = counts_by_region(frame, EPSILON / 4)
    means = mean_income_by_region(frame, counts, EPSILON / 2)
    return {
        "people": {region: max(count, 0) for region, count in counts.items()},
        "mean_income": {r: m for r, m in means.items() if counts[r] >= SMALL},
        "mean_hours": mean_hours(frame, counts, EPSILON / 4),
    }
