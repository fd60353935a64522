import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.interfaces import Attack, SupportAttack
from dpaudit.noise.floating_point.laplace import NaiveLaplace
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_attack
from dpaudit_attacks.floating_point import laplace_support
from dpaudit_attacks.floating_point.laplace_support import LaplaceSupport
from dpaudit_attacks.floating_point.reach import Reach


def feasible(attack, y, v):
    y = np.atleast_1d(np.asarray(y, np.float64))
    return attack.feasible(y[:, None], np.array([v], np.float64))[:, 0]


def noise_numpy(k, bits, b):
    """random_laplace of numpy's distributions.c, word for word, one k at a time."""
    u = math.ldexp(k, -bits)
    return 0.0 - b * math.log(2.0 - u - u) if u >= 0.5 else 0.0 + b * math.log(u + u)


def whole_support(sampler, bits, b):
    if sampler == "numpy":
        return np.array([noise_numpy(k, bits, b) for k in range(1, 2**bits)])
    u = [k * 2.0**-bits for k in range(1, 2**bits + 1)]
    one_sided = np.concatenate([[-b * math.log(x) for x in u], -b * np.log(u)])
    return np.concatenate([one_sided, -one_sided])


@pytest.mark.parametrize(
    ("sampler", "bits"), [("numpy", 2), ("numpy", 8), ("numpy", 10), ("log", 1), ("log", 9)]
)
@pytest.mark.parametrize("b", [0.3, 77.0])
def test_every_uniform(sampler, bits, b):
    """All k, for values from far below the noise to far above it, with neighbours and others."""
    rng, attack = np.random.default_rng(1), LaplaceSupport(scale=b, sampler=sampler, bits=bits)
    noise = whole_support(sampler, bits, b)
    for v in (0.0, 1.0, -0.1, 5e-324, 1000.0, -3e12, 2.0**53, 1e17, 1e300):
        made = np.unique(v + noise)
        near = [np.nextafter(made, side) for side in (-np.inf, np.inf)]
        asked = np.concatenate(
            [made, *near, v + b * rng.laplace(size=500), [-0.0, 1e308, -1e308, 5e-324, v]]
        )
        assert np.array_equal(feasible(attack, asked, v), np.isin(asked, made)), v


@pytest.mark.parametrize("b", [1.0, 10.0])
@pytest.mark.parametrize(
    ("v", "w"), [(0.0, 1.0), (1.0, 0.0), (1000.0, 1001.0), (2.0**20, 2.0**20 + 1)]
)
def test_a_window_of_uniforms_at_53_bits(b, v, w):
    """2·600 + 1 uniforms around the answer by brute force; many lie nearest to 1."""
    y = np.concatenate(
        [v + np.random.default_rng(2).laplace(0, b, 60), v + np.ldexp([1.0, -3.0], -50)]
    )
    found = feasible(LaplaceSupport(scale=b), y, w)
    for release, got in zip(y, found, strict=True):
        exact = np.longdouble(release) - np.longdouble(w)
        middle = int(np.exp(-abs(exact) / np.longdouble(b)) * np.longdouble(2.0**52))
        js = range(max(1, middle - 600), min(2**52, middle + 600) + 1)
        ks = js if exact < 0 else (2**53 - j for j in js)
        # where the window is too short for all that round to y, its middle alone is hit
        wanted = any(w + noise_numpy(k, 53, b) == release for k in ks)
        assert got == wanted, (release, w)


def true_releases(name, v, b, n):
    """Releases of the real samplers at a fixed seed, added by hand and by their own loc."""
    rng, legacy = np.random.default_rng(3), np.random.RandomState(3)
    if name == "generator":
        return np.concatenate([v + rng.laplace(0, b, n - n // 4), rng.laplace(v, b, n // 4)])
    if name == "legacy":
        return np.concatenate([v + legacy.laplace(0, b, n - n // 4), legacy.laplace(v, b, n // 4)])
    if name == "scipy":
        return scipy.stats.laplace.rvs(loc=v, scale=b, size=n, random_state=rng)
    if name == "torch":
        torch.manual_seed(3)
        law = torch.distributions.Laplace(torch.tensor(v), torch.tensor(b))
        return (
            torch.cat([law.sample((n - 350,)), *(law.sample((7,)) for _ in range(50))])
            .double()
            .numpy()
        )
    form, bits = name.split("-")
    source = NaiveLaplace(scale=b, bits=int(bits), form=form)
    return v + source.sample(n, 1, stream=KeyedStream.from_seed("laplace-support"))[:, 0]


def attack_on(name, b):
    sampler, _, bits = {"generator": "numpy", "legacy": "numpy"}.get(name, name).partition("-")
    return LaplaceSupport(scale=b, sampler=sampler, bits=int(bits or 53))


SAMPLERS = ["generator", "legacy", "scipy", "torch", "log-24", "log-53", "numpy-32", "numpy-53"]


@pytest.mark.parametrize("name", SAMPLERS)
def test_truth_is_never_ruled_out(name):
    for v, b in ((0.0, 1.0), (1e7, 1.0), (1001.0, 10.0)):
        y = true_releases(name, v, b, 4_000)
        assert feasible(attack_on(name, b), y, v).all(), (v, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("b", [1.0, 10.0])
@pytest.mark.parametrize("v", [0.0, 1.0, 1000.0])
def test_truth_is_never_ruled_out_in_a_million(name, b, v):
    assert feasible(attack_on(name, b), true_releases(name, v, b, 1_000_000), v).all()


@pytest.mark.parametrize("b", [1.0, 10.0])
@pytest.mark.parametrize("name", ["generator", "legacy", "scipy", "torch"])
def test_names_the_value_in_nine_of_ten(name, b):
    """0 against 1, a coin where both are feasible; ideal noise allows 70 % right at scale 1."""
    attack, n = attack_on(name, b), 40_000 if name == "torch" else 4_000
    right = 0.0
    for v, w in ((0.0, 1.0), (1.0, 0.0)):
        y = true_releases(name, v, b, n)
        right += 1 - feasible(attack, y, w).mean() / 2
    assert right / 2 > 0.9


def test_only_what_reach_allows_and_everything_where_many_uniforms_round_alike():
    rng = np.random.default_rng(4)
    y = rng.laplace(0, 1, 2_000)
    for w in (0.0, 1.0, 0.25):
        assert not (feasible(LaplaceSupport(), y, w) & ~feasible(Reach(), y, w)).any()
    high = 1e9 + rng.laplace(0, 1, 2_000)
    assert feasible(LaplaceSupport(), high, 1e9 + 1).all()
    assert feasible(LaplaceSupport(scale=1e9), high, 1e9 + 1).mean() < 1


def test_by_hand():
    """The largest noise of numpy's Laplace is 53·ln 2: U = 1 − 2⁻⁵³ makes 2 − U round to 1."""
    attack = LaplaceSupport()
    assert feasible(attack, [-math.log(2.0**-53), math.log(2.0**-52), 0.0, -0.0], 0.0).all()
    assert not feasible(attack, [math.log(2.0**-53), 36.9, 1e300, -1e300, 5e-324], 0.0).any()
    assert list(feasible(attack, [1e18, 1e18 + 128], 1e18)) == [True, False]
    coarse = LaplaceSupport(sampler="log", bits=1)
    assert feasible(coarse, [math.log(0.5), -math.log(0.5)], 0.0).all()


def test_both_logarithms_count_for_log():
    """Where numpy's vectorised log and the C library's differ, releases of either are possible."""
    u = np.random.default_rng(5).integers(1, 2**53, 40_000) * 2.0**-53
    ours, theirs = -np.log(u), -np.array([math.log(x) for x in u])
    attack = LaplaceSupport(sampler="log")
    assert feasible(attack, ours, 0.0).all()
    assert feasible(attack, theirs, 0.0).all()


def test_torch_that_draws_otherwise_is_refused(monkeypatch):
    monkeypatch.setattr(laplace_support, "_BITS32", 10)
    laplace_support._torch_unit_noise.cache_clear()
    laplace_support._torch_noise.cache_clear()
    with pytest.raises(UsageError, match="draws uniforms in a way"):
        feasible(LaplaceSupport(sampler="torch"), [1.0], 0.0)


def test_scores_and_conformance():
    rng = np.random.default_rng(6)
    y = torch.from_numpy(rng.laplace(0, 1, (300, 2)))
    q = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    attack = LaplaceSupport()
    scores = attack.score(y, q)
    assert bool((scores[:, 1] == 0).all())
    wanted = -(~attack.feasible(y.numpy(), q[0].numpy())).sum(1)
    assert np.array_equal(scores[:, 0].numpy(), wanted)
    seen = attack.evidence(y, q, torch.ones(300, dtype=torch.int64))["feasibility"]
    assert (seen["truth_ruled_out"], seen["another_ruled_out"]) == (
        0,
        int((scores[:, 0] < 0).sum()),
    )
    made = registry.create("attacks", "laplace-support:scale=2,sampler=log,bits=32")
    assert isinstance(made, SupportAttack)
    assert isinstance(made, Attack)
    check_attack(made, dim=4)
    check_attack(attack, dim=1)


def test_needs_neither_torch_nor_numba():
    program = (
        "import sys; sys.modules['torch'] = sys.modules['numba'] = None; import numpy as np\n"
        "from dpaudit_attacks.floating_point.laplace_support import LaplaceSupport\n"
        "from dpaudit_attacks.floating_point.reach import Reach\n"
        "for a in (LaplaceSupport(), Reach()):\n"
        "    assert a.feasible(np.zeros((3, 2)), np.zeros(2)).all()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"sampler": "ziggurat"}, "sampler=ziggurat"),
        ({"scale": 0.0}, "scale=0.0"),
        ({"scale": "wide"}, "scale=wide: must be a number"),
        ({"scale": -1.0}, "scale=-1.0"),
        ({"scale": math.nan}, "scale=nan"),
        ({"scale": 1e-300}, "scale=1e-300"),
        ({"scale": 1e40, "sampler": "torch"}, "scale=1e"),
        ({"bits": 0, "sampler": "log"}, "bits=0"),
        ({"bits": 1}, "bits=1"),
        ({"bits": 54}, "bits=54"),
        ({"bits": 24, "sampler": "torch"}, "bits=24"),
        ({"bits": 32.0}, "bits=32.0"),
    ],
)
def test_bad_options(options, what):
    with pytest.raises(UsageError, match=what):
        LaplaceSupport(**options)


def test_bad_input():
    attack = LaplaceSupport()
    with pytest.raises(UsageError, match="releases: contain NaN"):
        attack.feasible(np.full((1, 1), math.nan), np.zeros(1))
    with pytest.raises(UsageError, match="value: contain NaN"):
        attack.feasible(np.zeros((1, 1)), np.full(1, math.inf))
    with pytest.raises(UsageError, match="value of 2 numbers"):
        attack.feasible(np.zeros((4, 1)), np.zeros(2))
    with pytest.raises(UsageError, match="releases of shape"):
        attack.feasible(np.zeros(4), np.zeros(1))
    with pytest.raises(UsageError, match="no float32 number"):
        feasible(LaplaceSupport(sampler="torch"), [0.1], 0.0)
    with pytest.raises(UsageError, match="above the largest float32"):
        feasible(LaplaceSupport(sampler="torch"), [0.5], 1e300)
