"""Tumult Core 0.19.1: a count and a sum with its noise measurements; (2, 0)-DP, one more or less.

Tumult Analytics 0.21.0 calls the same measurements in worker processes of Spark, which a replay
does not see.
"""

import numpy as np
from tmlt.core.domains.numpy_domains import NumpyFloatDomain
from tmlt.core.measurements.noise_mechanisms import AddGeometricNoise, AddLaplaceNoise


def run(data):
    """Geometric noise for the count, Laplace noise for the sum of ages up to 100."""
    count, ages = np.int64(len(data)), [min(max(float(p["age"]), 0.0), 100.0) for p in data]
    geometric = AddGeometricNoise(alpha=1)
    laplace = AddLaplaceNoise(NumpyFloatDomain(), scale=100)
    return {"count": int(geometric(count)), "total": float(laplace(np.float64(sum(ages))))}
