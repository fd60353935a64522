"""What is left out for speed is 0 in doubles: the same bits as the whole sums."""

import math

import numpy as np
import pytest

from dpaudit.accounting._phase import Pair, _rest


def whole(u, beta):
    a = np.abs(u)
    others = sum(
        np.exp(-math.pi * (k * k - 2 * k * a) / beta**2)
        + np.exp(-math.pi * (k * k + 2 * k * a) / beta**2)
        for k in range(1, 5)
    )
    return np.log1p(others)


@pytest.mark.parametrize(
    "beta", [1e-7, 1e-3, 0.05, 0.0647, 0.0915, 0.092, 0.1, 0.11, 0.2, 0.5, 0.999]
)
def test_the_other_teeth(beta):
    rng = np.random.default_rng(0)
    near = 10 ** rng.uniform(-17, -0.31, 3000)
    u = np.concatenate(
        [rng.uniform(-0.5, 0.5, 3000), 0.5 - near, near - 0.5, near, [0.0, 0.5, -0.5]]
    )
    np.testing.assert_array_equal(_rest(u, beta), whole(u, beta))


def test_the_wave():
    rng = np.random.default_rng(1)
    for gamma in [0.01, *10 ** rng.uniform(-2.3, 4, 100)]:
        for across in (0.8, 0.01):
            ratio = gamma * (across / math.hypot(0.6, across))
            whole = 2 * sum(math.exp(-math.pi * (m * ratio) ** 2) for m in range(1, 1000))
            want = math.inf if ratio < 0.01 else whole
            assert Pair(1.0, 0.1, float(gamma), 0.6, across).wave == want
