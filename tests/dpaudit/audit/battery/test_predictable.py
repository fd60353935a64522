"""Noise from a common generator under a seed that can be guessed."""

import ctypes
import hashlib
import math
import random
import time

import numpy as np
import pytest
import torch
from support.battery import evidence_of

from dpaudit.audit.battery.predictable import generators, predictable
from dpaudit.audit.battery.predictable.catalogue import TRANSFORMS, seedings
from dpaudit.audit.battery.predictable.generators import GENERATORS
from dpaudit.audit.battery.predictable.predictable import (
    Predictable,
    dates,
    near,
    seeds_from,
    small,
)
from dpaudit.audit.battery.predictable.windows import TOLERANCE, Windows
from dpaudit.audit.block import SampleBlock
from dpaudit.audit.options import AuditOptions
from dpaudit.audit.run import run_audit
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream
from dpaudit.targets.callables import CallableTarget

SEEDS = np.array([0, 1, 42, 12345, 2**32 - 1, 2**32, 123456789012345678], np.uint64)


def seen(blocks, claim="gaussian:sigma=1", **more):
    return evidence_of(Predictable, blocks, claim, **more)


def honest(*shape):
    return KeyedStream.from_seed("honest").numpy().standard_normal(shape)


@pytest.mark.parametrize("count", [1, 30, 227, 700])
def test_twisters_are_those_of_numpy_and_python(count):
    words = [np.random.RandomState(int(s))._bit_generator.random_raw(count) for s in SEEDS[:5]]
    np.testing.assert_array_equal(generators.by_genrand(SEEDS[:5], count), np.stack(words, 1))
    pythons = [random.Random(int(s)) for s in SEEDS]
    words = [[one.getrandbits(32) for _ in range(count)] for one in pythons]
    np.testing.assert_array_equal(generators.by_array(SEEDS, count), np.stack(words, 1))


@pytest.mark.parametrize("count", [1, 9, 300])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (generators.by_seed_sequence, np.random.MT19937),
        (generators.pcg64, np.random.PCG64),
        (generators.pcg64_dxsm, np.random.PCG64DXSM),
        (generators.philox, np.random.Philox),
        (generators.sfc64, np.random.SFC64),
    ],
)
def test_seed_sequences_are_numpys(ours, theirs, count):
    words = np.stack([theirs(int(s)).random_raw(count) for s in SEEDS], 1)
    np.testing.assert_array_equal(ours(SEEDS, count), words)


PRINTED = {  # the seed and the first normals
    # as R prints ``set.seed(42); rnorm(3)``
    "R's set.seed and rnorm": [
        (42, [1.37095845, 0.56469817, 0.36312841]),
        (1, [0.62645381, 0.18364332, 0.83562861]),
    ],
    # magnitudes that libstdc++ (GCC) prints of std::normal_distribution
    "std::mt19937 and the polar method, second value first": [
        (5489, [0.134529658472, 0.14638178119, 0.460650182383])
    ],
    "std::minstd_rand and the polar method, second value first": [
        (3, [0.828087975049, 1.159963951239, 1.332138434206])
    ],
    "std::minstd_rand0 and the polar method, second value first": [
        (1, [0.121965784142, 1.086818044261, 0.684289943797])
    ],
}


@pytest.mark.parametrize("name", PRINTED)
def test_seeds_give_the_normals_that_r_and_cpp_print(name):
    for seed, expected in PRINTED[name]:
        of = seedings("gaussian", np.array([seed], np.uint64), common=True)
        found = {s.name: v for s, _, v in of}[name]
        np.testing.assert_allclose(found[:, 0], expected, atol=1e-8 if name[0] == "R" else 1e-11)


@pytest.mark.parametrize("seed", [0, 1, 42, 2**31 + 5])
def test_cs_generators_are_those_of_this_libc(seed):
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        pytest.skip("not glibc")
    libc.drand48.restype = ctypes.c_double
    libc.srand(seed)
    libc.srand48(ctypes.c_long(seed))
    one = np.array([seed], np.uint64)
    given = [(libc.rand() / 2**31, libc.drand48()) for _ in range(5)]
    for name, numbers in zip(("glibc's rand", "drand48"), np.array(given).T, strict=True):
        np.testing.assert_array_equal(GENERATORS[name](one, 5)[:, 0], numbers)


KNOWN = {
    # of their standards and authors: the 10,000th number, the first nextDouble, the first words
    "minstd 16807": (1, 10_000, 1043618065 / (2**31 - 1)),
    "minstd 48271": (1, 10_000, 399268537 / (2**31 - 1)),
    "java.util.Random": (42, 1, 0.7275636800328681),
    "splitmix64": (1234567, 1, (6457827717110365317 >> 11) * 2.0**-53),
    "xorshift32": (1, 1, 270369 * 2.0**-32),
    "RANDU": (1, 2, 393225 / 2**31),
}


def test_small_generators_give_their_published_numbers():
    for name, (seed, place, expected) in KNOWN.items():
        assert GENERATORS[name](np.array([seed], np.uint64), place)[-1, 0] == expected, name


def test_java_and_the_polar_method_give_nextgaussian():
    """``new Random(42).nextGaussian()``, as Java prints it."""
    polar = {t.name: t for t in TRANSFORMS["gaussian"]}["the polar method"]
    u = GENERATORS["java.util.Random"](np.array([42], np.uint64), polar.needs(1))
    assert polar.apply(u, 1)[0, 0] == pytest.approx(1.1419053154730547, abs=1e-12)


def python(draw, seed):
    random.seed(seed)
    return np.array([[draw(0.0, 2.0) for _ in range(64)] for _ in range(20)])


def normal_of_torch(seed):
    torch.manual_seed(seed)
    return 2.0 * torch.randn(20, 64).double().numpy()


def laplace_of_torch(seed):
    torch.manual_seed(seed)
    return torch.distributions.Laplace(0.0, 2.0).sample((20, 64)).double().numpy()


def sfc(seed):
    return np.random.Generator(np.random.SFC64(seed))


LEGACY, NUMPY, SHAPE = np.random.RandomState, np.random.default_rng, (0, 2, (20, 64))
COMMON = {
    "numpy.random.RandomState and the polar method": (77, lambda s: LEGACY(s).normal(*SHAPE)),
    "numpy.random.Generator(PCG64)": (977, lambda s: NUMPY(s).normal(*SHAPE)),
    "numpy.random.Generator(SFC64)": (123456789, lambda s: sfc(s).normal(*SHAPE)),
    "Python's random.seed and Box-Muller, angle first": (12, lambda s: python(random.gauss, s)),
    "Python's random.seed and the ratio": (12, lambda s: python(random.normalvariate, s)),
    "torch.manual_seed and torch.randn": (5, normal_of_torch),
    "numpy.random.PCG64 and the inverse": (3, lambda s: NUMPY(s).laplace(*SHAPE)),
    "numpy.random.RandomState and the inverse": (3, lambda s: LEGACY(s).laplace(*SHAPE)),
    "torch.manual_seed and torch.distributions.Laplace": (5, laplace_of_torch),
}


@pytest.mark.parametrize("name", COMMON)
def test_a_common_generator_under_a_common_seed_is_found(name):
    seed, make = COMMON[name]
    laplace = "Laplace" in name or "inverse" in name
    evidence = seen([make(seed)], "laplace:scale=2" if laplace else "gaussian:sigma=2")
    assert evidence.p < 1e-300
    assert evidence.details["generator"].startswith(name)
    assert evidence.details["seed"] == str(seed)
    assert evidence.details["predicted"] == "1021 of 1021"
    assert evidence.details["at"] == {"process": 0, "value": 0}


def bits(value):
    return int(np.float64(value).view(np.uint64))


@pytest.mark.parametrize(
    "seed",
    [
        bits,
        lambda v: bits(v) & 0xFFFFFFFF,
        lambda v: round(abs(v) * 10**6),
        lambda v: int.from_bytes(hashlib.sha256(np.float64(v).tobytes()).digest()[:8], "big"),
    ],
)
def test_a_seed_made_of_the_first_value_of_a_row_is_found(seed):
    rows = honest(40, 64)
    for row in rows:
        row[1:] = sfc(seed(row[0])).standard_normal(63)
    evidence = seen([rows[:20], rows[20:]])
    assert evidence.p < 1e-100
    assert "SFC64" in evidence.details["generator"]
    row = rows[evidence.details["at"].get("value", 0) // 64]
    assert int(evidence.details["seed"]) == seed(row[0])


def test_a_seed_that_is_a_float_seen_in_the_noise_is_found():
    rows = honest(20, 64)
    for row in rows:
        random.seed(float(row[0]))
        row[1:] = [random.gauss(0, 1) for _ in range(63)]
    assert seen([rows]).p < 1e-100


def test_noise_seeded_by_the_value_that_it_is_for_is_found():
    random.seed(1000.5)
    rows = np.array([[random.gauss(0, 1) for _ in range(64)] for _ in range(20)])
    assert seen([rows], value=1000.5).p < 1e-100
    assert seen([rows], value=1000.25).p == 1


def test_the_time_is_a_seed(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1795400000.7)
    for seed in (1795400000 - 60, 1795400001):
        evidence = seen([np.random.RandomState(seed).standard_normal((20, 64))])
        assert evidence.details["seed"] == str(seed)
    milliseconds = np.random.default_rng(1795400000690).standard_normal((20, 64))
    assert seen([milliseconds]).details["seed"] == "1795400000690"
    assert seen([np.random.RandomState(1795300000).standard_normal((20, 64))]).p == 1


def test_other_processes_and_later_rows_are_looked_at():
    begun = np.random.default_rng(7).standard_normal((20, 64))
    assert seen([begun], process=2).details["at"] == {"process": 2, "value": 0}
    blocks = [honest(300, 64), np.concatenate([honest(5, 64) * 1.01, begun])]
    assert seen(blocks).details["at"] == {"process": 0, "call": 1, "row": 5}


def test_honest_noise_and_an_unknown_seed_pass():
    for claim, noise in (
        ("gaussian:sigma=1", honest(100, 64)),
        ("laplace:scale=1", KeyedStream.from_seed("l").numpy().laplace(size=(100, 64))),
        ("gaussian:sigma=1", np.random.default_rng((5, 2311)).standard_normal((100, 64))),
        ("gaussian:sigma=1", np.full((100, 64), 1e308)),
    ):
        evidence = seen([noise], claim)
        assert evidence.p == 1
        assert evidence.effect.startswith("no seeding fits")
    effect = seen([np.rint(10 * honest(100, 64))], "discrete-gaussian:sigma=10").effect
    assert effect == "not applicable: the claimed law is discrete"


@pytest.mark.parametrize("run", [4, 5, 6, 20, "from the noise"])
def test_the_p_value_is_the_bound_of_the_run_found(run):
    """A run under a seed from the noise counts one value less."""
    noise = honest(100, 64)
    if run == "from the noise":
        run, paid = 7, 6
        noise[63, 1:8] = sfc(bits(noise[63, 0])).standard_normal(7)
    else:
        paid = run
        noise[3, :run] = np.random.default_rng(9).standard_normal(run)
    evidence = seen([noise])
    windows, tries = evidence.details["places"], evidence.details["tries"]
    assert evidence.details["values in a row"] == run
    assert evidence.p == pytest.approx(min(1.0, windows * tries * 2.0 ** (-16 * paid)), abs=0)
    assert tries > 1024 * len(TRANSFORMS["gaussian"])


def test_an_honest_value_is_near_a_number_less_often_than_the_bound_says():
    """2^-16 for an interval of 2·2^-19 (times the number, above 1), whatever the number."""
    x = np.linspace(0, 40, 4001)
    for density in (2 * np.exp(-x * x / 2) / math.sqrt(2 * math.pi), np.exp(-x)):
        worst = (density * 2 * TOLERANCE * np.maximum(x, 1)).max()
        assert worst <= 2.0**-18 < predictable._ALIKE / 2


def test_more_values_buy_more_seeds():
    few, many = (
        seen(blocks).blind_spots[0] for blocks in ([honest(100, 64)], [honest(4096, 64)] * 2)
    )
    assert (few.size, many.size) == (1024, 2 * 4096 * 64 // 150)
    assert {9, 2024, 5489, 123456789, 0xDEADBEEF} <= set(small(10))
    assert set(near(1e9, 5)[:21]) == set(range(10**9 - 5, 10**9 + 16))
    assert {20261123, 20200229} <= set(dates(1795400000.0))  # in 2026
    assert len(dates(1795400000.0)) == 11 * 366
    assert hash(0.5) in seeds_from([0.5])


def test_an_audit_names_generator_and_seed():
    asked = {"seed": "1", "samples": 20_000, "dim": 8, "alpha": 1e-4}
    options = AuditOptions(tests=("predictable", "moments"), **asked)

    def audited(generator):
        draw = CallableTarget(lambda n, d: generator.standard_normal((n, d)), name="f", call=None)
        with draw.open(timeout=60) as opened:
            return run_audit(opened, claim=Claim.parse("gaussian:sigma=1"), options=options)

    found = audited(np.random.default_rng(42))
    assert [t.name for t in found.tests if t.finding] == ["predictable"]
    assert "PCG64) and its standard_normal with seed 42 gives the noise" in found.tests[0].effect
    assert audited(np.random.default_rng()).verdict == "no-finding"


def test_values_near_the_edge_of_a_cell_are_found_too():
    """Of 600 windows rounded to float32 about one in ten has a value near an edge."""
    exact = np.abs(honest(600, 8))
    windows, law, stream = Windows(1.0), Claim.parse("gaussian:sigma=1"), KeyedStream.from_seed(1)
    for i, row in enumerate(exact + 0.9 * TOLERANCE):
        windows.add(SampleBlock(i, row[None], claim=law, spread=stream.numpy()))
    found = {column for column, _ in windows.index().find(exact[:, :3].T)}
    assert found == set(range(600))
