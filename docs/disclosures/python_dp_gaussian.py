"""python-dp: releases of 0 that GaussianMechanism cannot make from 1; it claims (1, 1e-5)-DP."""

import math

from pydp.algorithms.numerical_mechanisms import GaussianMechanism

mechanism = GaussianMechanism(1.0, 1e-5, 1.0)  # epsilon, delta, sensitivity


def reachable(y, value):  # is there a double n with value + n == y?
    n = y - value
    return any(
        value + m == y for m in (n, math.nextafter(n, -math.inf), math.nextafter(n, math.inf))
    )


for value in (0.0, 1.0):
    impossible = sum(not reachable(mechanism.add_noise(value), 1.0) for _ in range(20_000))
    print(f"released {value}: {impossible} of 20000 outputs are impossible for 1.0")
