import math

import pytest
import torch

from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.testing import check_mitigation
from dpaudit_mitigations.none import NoMitigation
from dpaudit_mitigations.smoothing.rounding import Rounding
from dpaudit_mitigations.smoothing.smoothing import Smoothing


@pytest.mark.parametrize("mitigation", [NoMitigation(), Smoothing(tau=0.5), Rounding(grid=1)])
def test_conforms(mitigation, make_key):
    check_mitigation(mitigation, Gaussian(sigma=2.0))
    check_mitigation(mitigation, Pancake(key=make_key(), sigma=2.0))


def test_without_a_mitigation_the_key_holder_has_the_sources_epsilon(make_key):
    host = Histogram()
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=22.4)
    assert NoMitigation().epsilon(pancake, 1e-10, host=host) == pancake.epsilon(1e-10, host=host)
    assert NoMitigation().epsilon(pancake, 1e-10, host=host).low > 1e5
    many = NoMitigation().epsilon_after(pancake, 1e-9, host=host, releases=10)
    assert many.high == 10 * pancake.epsilon(1e-10, host=host).high
    honest = NoMitigation().epsilon_after(Gaussian(sigma=22.4), 1e-10, host=host, releases=100)
    assert honest.low == honest.high == gaussian_epsilon(1e-10, sigma=22.4, sensitivity=10.0)


@pytest.mark.parametrize("mitigation", [NoMitigation(), Smoothing(tau=0.1), Rounding(grid=1)])
def test_bad_queries(mitigation, stream):
    for query, says in (
        (torch.full((2, 3), math.nan), "NaN"),
        (torch.tensor([[1.0, math.inf]]), "infinity"),
        (torch.ones(2, 3, dtype=torch.int64), "floating-point query"),
        (torch.ones(3), "one row per release"),
    ):
        with pytest.raises(UsageError, match=says):
            mitigation.release(query, Gaussian(), stream=stream)
