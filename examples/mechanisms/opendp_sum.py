"""An OpenDP pipeline, noisy sum and count of ages, and a wrapper that chooses its bounds badly."""

import opendp.prelude as dp

dp.enable_features("contrib")
AGES = dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance()


def released(people, n, low, high):
    ages = [person["age"] for person in people]
    total = AGES >> dp.t.then_clamp((low, high)) >> dp.t.then_sum() >> dp.m.then_laplace(2.0 * high)
    count = AGES >> dp.t.then_count() >> dp.m.then_laplace(2.0)
    return [{"sum": total(ages), "count": count(ages)} for _ in range(n)]


def fixed_bounds(people, n):
    """Claimed: ε = 1; half is for the sum of ages clipped to 0…100, half for the count."""
    return released(people, n, 0, 100)


def bounds_from_data(people, n):
    """The same, clipped to what ages there are: the noise then depends on the oldest."""
    return released(people, n, 0, max([1, *(person["age"] for person in people)]))
