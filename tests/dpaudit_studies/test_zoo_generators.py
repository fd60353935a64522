"""Transforms of the unseen zoo are those of the libraries; peers keep a level."""

import importlib
import math

import numpy as np
import pytest
import scipy

from dpaudit.numeric import generators
from dpaudit_studies.zoo import measures, transforms
from dpaudit_studies.zoo.unseen import congruential as congruential_noise


def twister(seed):
    return generators.mt19937(np.asarray(np.random.RandomState(seed).get_state()[1], np.uint32))


def test_transforms_are_those_of_the_libraries():
    polar = transforms.polar(transforms.fifty_three(twister(7)))()[:1000]
    legacy = np.random.RandomState(7).standard_normal(1000)  # the second of a pair first
    assert np.allclose(polar.reshape(-1, 2)[:, ::-1].ravel(), legacy, rtol=1e-12, atol=0)
    java = generators.congruential(0x5DEECE66D, 11, 1 << 48, 42 ^ 0x5DEECE66D)
    gaussian = transforms.polar(congruential_noise._java(java))()
    assert gaussian[0] == pytest.approx(1.1419053154730547, rel=1e-14)  # nextGaussian()
    u = transforms.top(twister(7), 32, 32)(64)
    assert u.tolist() == ((twister(7)(64) + 0.5) * 2.0**-32).tolist()
    z = transforms.inverse(transforms.top(twister(7), 32, 32))()
    assert np.allclose(scipy.special.ndtr(z[:64]), u)
    pairs = transforms.box_muller(transforms.top(twister(7), 32, 32))()[:64].reshape(-1, 2)
    assert np.allclose((pairs**2).sum(1), -2 * np.log1p(-u[::2]))
    assert np.allclose(np.arctan2(pairs[:, 1], pairs[:, 0]) / (2 * np.pi) % 1, u[1::2])


def test_a_series_is_dealt_out_the_same_in_any_portions():
    def chunks():
        counter = iter(range(100))
        return transforms.dealt(lambda: np.arange(next(counter) * 7, dtype=float))

    one, other = chunks(), chunks()
    whole = one(500)
    assert np.array_equal(whole, np.concatenate([other(k) for k in (1, 0, 3, 96, 100, 300)]))


def test_anderson_darling_against_tables_and_the_definition():
    # Marsaglia and Marsaglia (2004): P(A² < x) in the limit
    for x, p in ((1.933, 0.90), (2.492, 0.95), (3.878, 0.99)):
        assert measures._adinf(x) == pytest.approx(p, abs=3e-4)
    z = np.sort(np.random.default_rng(5).standard_normal(50))
    phi = scipy.special.ndtr(z)
    square = (
        -50
        - sum((2 * i + 1) * (math.log(phi[i]) + math.log1p(-phi[49 - i])) for i in range(50)) / 50
    )
    p = 1 - measures._adinf(square)
    assert measures.anderson_darling(z, p + 1e-9)
    assert not measures.anderson_darling(z, p - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", measures.PEERS)
def test_peers_keep_their_level_and_see_gross_flaws(name):
    if name == "sp800_22":
        pytest.importorskip("sp80022suite")
    rng = np.random.default_rng(11)
    rounds = 4 if name == "sp800_22" else 400
    found = sum(
        bool(measures.PEERS[name](rng.standard_normal(60_000 if rounds == 4 else 2_000), 0.01))
        for _ in range(rounds)
    )
    # exceeded with probability 6e-4 of 4, with 7e-5 of 400
    assert found <= (1 if rounds == 4 else 13)
    z = np.abs(rng.standard_normal(60_000))
    assert measures.PEERS[name](z, 0.01) is True


def test_a_peer_that_is_not_installed_says_so(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert measures.sp800_22(np.zeros(10), 0.01) == measures.NOT_INSTALLED
