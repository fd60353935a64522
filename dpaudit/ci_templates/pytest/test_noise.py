"""The gate: these tests fail if noise or a mechanism is not what it claims to be.

Written by ``dpaudit init pytest``; the fixture ``dpaudit`` comes with the package. Put your own
sampler, mechanism and claims in the place of the first two tests, and keep the third.
"""

import numpy as np

generator = np.random.default_rng()


def noise(n, d):
    """Your sampler: an array (n, d)."""
    return generator.standard_normal((n, d))


def private_count(value, n):
    """Your mechanism: n releases of a query result. Here a count, in exact whole numbers."""
    p = 1 - np.exp(-1.0)
    return value + generator.geometric(p, n) - generator.geometric(p, n)


def test_noise(dpaudit):
    """Your sampler against its claim."""
    dpaudit.assert_no_finding(noise, claim="gaussian:sigma=1")


def test_mechanism(dpaudit):
    """Your mechanism against its ε, at two neighbouring results."""
    dpaudit.assert_private(private_count, neighbours=(0, 1), epsilon=1)


def test_the_gate_still_catches(dpaudit):
    """A control: the day this fails, the gate lets flawed noise pass."""
    dpaudit.assert_finding(noise, claim="gaussian:sigma=1.1", by="moments")
