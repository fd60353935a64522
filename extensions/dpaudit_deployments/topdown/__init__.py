"""A small TopDown, as in the 2020 census: geographies × a histogram, measured and estimated."""

from __future__ import annotations

from dpaudit_deployments.topdown.budget import PUBLISHED_DELTA, PUBLISHED_RHO, Budget
from dpaudit_deployments.topdown.geography import LEVELS, Census, Level, read_census
from dpaudit_deployments.topdown.measurements import NoisyMeasurements, NoisyQuery
from dpaudit_deployments.topdown.schema import Query, Schema, census_schema
from dpaudit_deployments.topdown.topdown import Noise, TopDown

__all__ = [
    "LEVELS",
    "PUBLISHED_DELTA",
    "PUBLISHED_RHO",
    "Budget",
    "Census",
    "Level",
    "Noise",
    "NoisyMeasurements",
    "NoisyQuery",
    "Query",
    "Schema",
    "TopDown",
    "census_schema",
    "read_census",
]
