"""Programs that return several values: some with coins of their own, some not."""

from __future__ import annotations


def geometric(rng):
    k = 0
    while rng.randrange(3):
        k += 1
    return k


def in_a_list(rng):
    return [geometric(rng) for _ in range(3)]


def in_a_tuple(rng):
    return geometric(rng), 1 - rng.getrandbits(1)


def appended(rng):
    found = []
    for value in (5, 7):
        found.append(value + geometric(rng))  # noqa: PERF401
    return found


def assigned(rng):
    found = [None, None]
    found[1] = rng.randrange(3)
    found[0] = rng.randrange(2)
    return found


def two_calls(rng):
    first = geometric(rng)
    second = draw_bit(rng)
    return second, first


def draw_bit(rng):
    return rng.getrandbits(1)


INDEPENDENT = [in_a_list, appended, assigned, two_calls]


def pancake(rng):
    """A LAB SPECIMEN: two values whose sum is hidden on a lattice."""
    while True:
        values = [rng.randrange(4), rng.randrange(4)]
        if (values[0] + values[1]) % 3 == 0:
            return values


def seed_in_noise(rng):
    """A LAB SPECIMEN: the second value is a function of the first."""
    nonce = rng.randrange(8)
    return nonce, (5 * nonce + 3) % 8


def value_dependent(rng):
    first = rng.randrange(3)
    return first, rng.randrange(2 if first else 3)


def reused_bit(rng):
    bits = rng.getrandbits(3)
    return bits & 3, bits >> 1


def one_value_twice(rng):
    values = [rng.randrange(4)]
    values.append(values[0])
    return values


def side_variable(rng):
    k = rng.randrange(3)
    values = [(5, 6, 7)[k]]
    values.append(rng.randrange(3 if k else 2))
    return values


def parity(rng):
    a, b = rng.getrandbits(1), rng.getrandbits(1)
    return a, b, a ^ b


DEPENDENT = [
    side_variable,
    pancake,
    seed_in_noise,
    value_dependent,
    reused_bit,
    one_value_twice,
    parity,
]


def looks_back(rng):
    """Independent, but the program looks at its first value: not shown."""
    values = [rng.randrange(2)]
    if values[0] > 5:
        return values
    values.append(rng.randrange(2))
    return values


def looks_back_at_a_tail(rng):
    """The same, without an end."""
    values = [geometric(rng)]
    if values[0] < 0:
        return values
    values.append(geometric(rng))
    return values


def steady(rng):
    return rng.getrandbits(3) + rng.randrange(5)


def rejected(rng):
    while (k := rng.getrandbits(2)) == 3:
        pass
    return k


def slow_for_zero(rng):
    if rng.getrandbits(1):
        rng.getrandbits(7)
        return 0
    return 1


def slow_on_its_own(rng):
    for _ in range(rng.randrange(2)):
        rng.getrandbits(1)
    return rng.getrandbits(1)
