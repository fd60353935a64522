"""diffprivlib: releases of 0 that Laplace(epsilon=1) cannot make from 1."""

import math

from diffprivlib.mechanisms import Laplace

mechanism = Laplace(epsilon=1, sensitivity=1)


def reachable(y, value):  # is there a double n with value + n == y?
    n = y - value
    return any(
        value + m == y for m in (n, math.nextafter(n, -math.inf), math.nextafter(n, math.inf))
    )


for value in (0.0, 1.0):
    impossible = sum(not reachable(mechanism.randomise(value), 1.0) for _ in range(20_000))
    print(f"released {value}: {impossible} of 20000 outputs are impossible for 1.0")
