"""A small TopDown, as in the 2020 census: geographies × a histogram, measured and estimated."""

from __future__ import annotations

from dpaudit.hosts.topdown.measurements import NoisyMeasurements, NoisyQuery

__all__ = ["NoisyMeasurements", "NoisyQuery"]
