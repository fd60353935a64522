"""tmlt.core: releases of 0 that AddGaussianNoise cannot make from 1, although it claims zCDP."""

import math

from tmlt.core.domains.numpy_domains import NumpyFloatDomain
from tmlt.core.measurements.noise_mechanisms import AddGaussianNoise

mechanism = AddGaussianNoise(NumpyFloatDomain(), sigma_squared=1)


def reachable(y, value):  # is there a double n with value + n == y?
    n = y - value
    return any(
        value + m == y for m in (n, math.nextafter(n, -math.inf), math.nextafter(n, math.inf))
    )


for value in (0.0, 1.0):
    impossible = sum(not reachable(mechanism(value), 1.0) for _ in range(5_000))
    print(f"released {value}: {impossible} of 5000 outputs are impossible for 1.0")
