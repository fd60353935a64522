"""Libraries of noise: their laws, their versions, odd values, and what is missing."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from support.draws import draw

from dpaudit import registry
from dpaudit.claims import Claim
from dpaudit.errors import MissingExtraError, SamplerOutputError, UsageError
from dpaudit.protocols import Repeatable, Request, Session
from dpaudit.targets import open_sampler
from dpaudit.targets.adapters import opacus
from dpaudit.targets.adapters.base import Library, advice, installed_version
from dpaudit.targets.check import numbers
from dpaudit.targets.endpoints.callees import open_callee
from dpaudit.targets.resolve import open_mechanism

LIBRARIES = [
    "numpy", "scipy", "torch", "opacus", "opendp", "diffprivlib", "stdlib", "python-dp",
    "pipeline-dp",
]  # fmt: skip
# chance that an honest library fails one of the comparisons below; all together below 1e-6
MISS = 1e-8


def library(name) -> Library:
    return importlib.import_module(f"dpaudit.targets.adapters.{name.replace('-', '_')}").LIBRARY


def built(text):
    """The mechanism in this process, the release, and its claim."""
    name, _, target = text.partition(":")
    found = library(name)
    mechanism, options = found.find(target)
    pytest.importorskip(found.module.partition(".")[0], exc_type=ImportError)
    return mechanism, mechanism.make(importlib.import_module(found.module), **options), options


def distance_p(noise, claim):
    z = Claim.parse(claim).to_normal(
        np.asarray(noise, dtype=np.float64).ravel(), np.random.default_rng(1)
    )
    return scipy.stats.kstest(z, "norm").pvalue


CLAIMED = {
    "numpy:normal:scale=2": "gaussian:sigma=2",
    "numpy:normal:scale=0.5,dtype=f32": "gaussian:sigma=0.5",
    "numpy:laplace": "laplace:scale=1",
    "numpy:legacy-normal:scale=1.5": "gaussian:sigma=1.5",
    "numpy:legacy-laplace": "laplace:scale=1",
    "scipy:norm": "gaussian:sigma=1",
    "scipy:laplace:scale=3": "laplace:scale=3",
    "scipy:dlaplace:scale=3": "discrete-laplace:scale=3",
    "torch:normal": "gaussian:sigma=1",
    "torch:normal:std=2,dtype=f64": "gaussian:sigma=2",
    "torch:laplace:scale=2": "laplace:scale=2",
    "opacus:noise": "gaussian:sigma=1",
    "opacus:noise:std=3,secure_mode=true": "gaussian:sigma=3",
    "opacus:noise:dtype=f64": "gaussian:sigma=1",
    "opendp:gaussian:scale=2": "gaussian:sigma=2",
    "opendp:gaussian:k=-40": "gaussian:sigma=1",
    "opendp:laplace": "laplace:scale=1",
    "opendp:laplace:scale=2,k=-30": "laplace:scale=2",
    "opendp:discrete-gaussian": "discrete-gaussian:sigma=10",
    "opendp:discrete-laplace:scale=5": "discrete-laplace:scale=5",
    "diffprivlib:Laplace:epsilon=0.5": "laplace:scale=2",
    "diffprivlib:Laplace:epsilon=1,delta=0.3,sensitivity=2": "laplace:scale=1.474192",
    "diffprivlib:Gaussian:epsilon=0.5,delta=1e-5": "gaussian:sigma=9.68961",
    "diffprivlib:GaussianAnalytic:epsilon=0.5,delta=1e-5": "gaussian:sigma=7.03183",
    "diffprivlib:Geometric:epsilon=0.5,sensitivity=2": "discrete-laplace:scale=4",
    "opacus:step": "gaussian:sigma=1",
    (
        "opacus:step:max_grad_norm=2,secure_mode=true,loss_reduction=sum,expected_batch_size=9"
    ): "gaussian:sigma=2",
    "python-dp:laplace:epsilon=0.5": "laplace:scale=2",
    "python-dp:gaussian:epsilon=1,delta=1e-5": "gaussian:sigma=3.732421875",
    "pipeline-dp:count:epsilon=0.5,max_contributions_per_partition=3": "laplace:scale=6",
    (
        "pipeline-dp:sum:epsilon=1,delta=1e-5,noise_kind=gaussian,max_partitions_contributed=4,"
        "min_value=-1,max_value=0"
    ): "gaussian:sigma=7.46484375",
    "stdlib:gauss": "gaussian:sigma=1",
    "stdlib:normalvariate:sigma=2": "gaussian:sigma=2",
    "stdlib:system-gauss": "gaussian:sigma=1",
}
UNCLAIMED = [
    "diffprivlib:GaussianDiscrete:epsilon=0.5,delta=1e-5",
    "diffprivlib:Staircase:epsilon=1",
    "diffprivlib:Uniform:delta=0.1",
    "diffprivlib:Snapping:epsilon=1,lower=-10,upper=10",
    "diffprivlib:LaplaceTruncated:epsilon=1,lower=-10,upper=10",
    "diffprivlib:LaplaceFolded:epsilon=1,lower=-10,upper=10",
    "diffprivlib:LaplaceBoundedDomain:epsilon=1,lower=-10,upper=10",
    "diffprivlib:LaplaceBoundedNoise:epsilon=1,delta=0.1",
    "diffprivlib:GeometricTruncated:epsilon=1,lower=-10,upper=10",
    "diffprivlib:GeometricFolded:epsilon=1,lower=-10,upper=10",
    "python-dp:gaussian-int:epsilon=2,delta=1e-5",
    "python-dp:laplace-int:epsilon=0.25",
    "pipeline-dp:vector-sum:epsilon=1,vector_norm_kind=l1",
]
DATA = {  # mechanisms of data sets, and the mean of their releases of (0.5, 0, 1, 7)
    "diffprivlib:sum:epsilon=4,lower=0,upper=1": 2.5,
    "diffprivlib:mean:epsilon=4,lower=0,upper=1": 0.625,
    "diffprivlib:count_nonzero:epsilon=4": 3,
    "opendp:bounded-sum:epsilon=4,lower=0,upper=1": 2.5,
    "python-dp:bounded-sum:epsilon=4,lower_bound=0,upper_bound=1": 2.5,
    "python-dp:bounded-mean:epsilon=4,lower_bound=0,upper_bound=1": 0.625,
    "python-dp:count:epsilon=4": 4,
    "pipeline-dp:mean:epsilon=8,min_value=0,max_value=1": 0.625,
}


def test_every_mechanism_is_looked_at_below():
    there = {f"{name}:{mechanism}" for name in LIBRARIES for mechanism in library(name).table}
    looked_at = [*CLAIMED, *UNCLAIMED, *DATA, "python-dp:bounded-sum-int"]
    assert there == {":".join(text.split(":")[:2]) for text in looked_at}


@pytest.mark.parametrize("text", CLAIMED)
def test_the_claim_and_the_noise_agree(text):
    """An honest library fails with probability 4e-8; at a scale 60 % off the KS distance is 0.086
    or more (Laplace), 5.4 / √4000, where 3.1 / √4000 is enough."""
    mechanism, release, options = built(text)
    claim = mechanism.claim(**options)
    wanted, got = Claim.parse(CLAIMED[text]), Claim.parse(claim)
    assert (got.family, got.scale) == (wanted.family, pytest.approx(wanted.scale, rel=1e-6))
    n = 1000
    for value in (np.zeros(4), np.array([7.0, -3.0, 0.0, 1e4])):
        released = np.asarray(release(value, n), dtype=np.float64)
        assert released.shape == (n, 4)
        noise = released - value
        assert distance_p(noise, claim) > MISS
    option = "sigma" if "gauss" in got.family else "scale"
    assert distance_p(noise, f"{got.family}:{option}={1.6 * got.scale}") < MISS


@pytest.mark.parametrize("text", UNCLAIMED)
def test_mechanisms_whose_law_has_no_name_here(text):
    mechanism, release, options = built(text)
    assert mechanism.claim is None
    released = release(np.array([2.0, -1.0]), 200)
    assert released.shape == (200, 2)
    assert np.isfinite(released).all()
    if "lower" in options:
        assert np.abs(released).max() <= 10
    assert len(np.unique(released)) > 5
    assert np.abs(released.mean(0) - [2, -1]).max() < 6


@pytest.mark.parametrize("text", DATA)
def test_mechanisms_of_data_sets(text):
    """Mean of 500 releases of standard deviation < 1: 0.27 is 6 of its own, less than any error."""
    mechanism, release, _ = built(text)
    assert mechanism.data
    released = np.asarray(release(np.array([0.5, 0, 1, 7]), 500))
    assert released.shape == (500, 1)
    assert released.std() < 1
    assert abs(released.mean() - DATA[text]) < 0.27


def test_whole_data_sets():
    _, release, _ = built("python-dp:bounded-sum-int:epsilon=2,lower_bound=-1,upper_bound=1")
    released = release(np.array([3.0, -7, 0]), 2000)
    assert released.dtype.kind == "i"
    assert abs(released.mean()) < 6 * np.sqrt(2 / 2000)


@pytest.mark.parametrize("name", LIBRARIES)
def test_two_builds_share_no_noise(name):
    texts = (text for text in CLAIMED if text.startswith(f"{name}:"))
    text = next(text for text in texts if "discrete" not in text and "-int" not in text)
    assert registry.load("samplers", name) is library(name)
    one, two = (np.asarray(built(text)[1](np.zeros(3), 50)) for _ in range(2))
    assert not np.isin(one, two).any()


def test_the_tables_import_no_library():
    code = "import sys, importlib\n"
    modules = [name.replace("-", "_") for name in LIBRARIES]
    code += f"for n in {modules}: importlib.import_module('dpaudit.targets.adapters.' + n)\n"
    heavy = ("scipy", "torch", "opacus", "opendp", "diffprivlib", "sklearn", "pydp", "pipeline_dp")
    code += f"print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def opened(text):
    """What a worker makes of a library's sampler, in this process."""
    sampler = open_sampler(text, seed="1")
    return open_callee({"name": text, **sampler._spec})


def test_options_that_the_library_refuses():
    pytest.importorskip("diffprivlib", exc_type=ImportError)
    assert open_sampler("diffprivlib:Laplace:epsilon=-1", seed="1").facts.claim is None
    with pytest.raises(UsageError, match=r"diffprivlib refuses the options .*[Ee]psilon"):
        opened("diffprivlib:Laplace:epsilon=-1")


@pytest.mark.parametrize(
    ("name", "text", "extra"),
    [
        ("opendp", "opendp:laplace", "opendp"),
        ("diffprivlib", "diffprivlib:Uniform:delta=1", "diffprivlib"),
        ("pydp", "python-dp:laplace:epsilon=1", "python-dp"),
        ("pydp", "pipeline-dp:count:epsilon=1", "pipeline-dp"),
    ],
)
def test_an_absent_library_says_what_to_install(name, text, extra, monkeypatch):
    pytest.importorskip("pipeline_dp" if "pipeline" in text else "numpy", exc_type=ImportError)
    for loaded in [m for m in sys.modules if m.split(".")[0] in (name, "pipeline_dp")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, name, None)
    match = rf"{text}: needs {name}, which is not installed; pip install 'dpaudit\[{extra}\]'"
    with pytest.raises(MissingExtraError, match=match):
        opened(text)
    with pytest.raises(MissingExtraError, match=match):
        open_callee({"name": text, **open_mechanism(text, seed="1")._spec})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "code", "text", "kind", "match"),
    [
        (
            "opendp",
            "import not_there",
            "opendp:laplace",
            MissingExtraError,
            r"needs not_there, .*dpaudit\[opendp\]",
        ),
        (
            "diffprivlib",
            "from sys import DOUBLE",
            "diffprivlib:Laplace:epsilon=1",
            UsageError,
            r"diffprivlib.mechanisms cannot be imported \(ImportError: .*DOUBLE.*pip install",
        ),
    ],
)
def test_a_library_that_is_broken_or_lacks_something_says_how(
    package, code, text, kind, match, here, monkeypatch
):
    (here / package).mkdir()
    (here / package / "__init__.py").write_text(code)
    # found before the installed one; the sandbox shows what PYTHONPATH names
    monkeypatch.setenv("PYTHONPATH", str(here))
    with pytest.raises(kind, match=match):
        draw(text, 1, 1)


@pytest.mark.slow
def test_a_sampler_in_its_own_process():
    with open_sampler("numpy:laplace:scale=2", seed="1").open(timeout=60) as sampler:
        assert isinstance(sampler, Session)
        assert isinstance(sampler, Repeatable)
        assert sampler.name == "numpy:laplace:scale=2"
        assert (sampler.facts.dim, sampler.facts.available) == (None, None)
        assert sampler.facts.claim == "laplace:scale=2"
        assert "noise for a value" not in sampler.facts.accepts
        values = sampler.ask(Request(500, 8), timeout=60).values
        reply = sampler.ask(Request(1, 8, calls=500), timeout=60)
        many, seconds = reply.values, reply.seconds
        with sampler.again().open(timeout=60) as other:
            others = other.ask(Request(500, 8), timeout=60).values
        with pytest.raises(UsageError, match="does not answer noise for a value"):
            sampler.ask(Request(1, 1, 1.0), timeout=60)
    assert seconds.shape == (500,)
    for noise in (values, many, others):
        assert noise.shape == (500, 8)
        assert distance_p(noise, sampler.facts.claim) > MISS
    assert len(np.unique([values, many, others])) == 3 * 4000


@pytest.mark.slow
def test_a_library_that_adds_the_noise_itself_is_told_the_value():
    pytest.importorskip("pydp")
    with open_sampler("python-dp:laplace:epsilon=1", seed="1").open(timeout=60) as sampler:
        assert "noise for a value" in sampler.facts.accepts
        for value in (0.0, 1000.5):
            assert (
                distance_p(
                    sampler.ask(Request(250, 8, value), timeout=60).values, sampler.facts.claim
                )
                > MISS
            )
        with pytest.raises(UsageError, match="finite"):
            sampler.ask(Request(1, 1, float("nan")), timeout=60)


def test_whole_number_noise_is_not_asked_for_broken_values():
    assert (
        "noise for a value" not in open_sampler("opendp:discrete-gaussian", seed="1").facts.accepts
    )


# ---------------------------------------------------------------- versions


def distribution(folder, name, version):
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_versions_are_read_from_metadata():
    assert installed_version("numpy") == np.__version__
    assert installed_version("no-such-library") is None
    assert installed_version("") == ".".join(map(str, sys.version_info[:3]))
    assert library("numpy").version == np.__version__
    assert library("stdlib").version is not None


@pytest.mark.slow
def test_another_version_than_the_tested_one_is_told(tmp_path, monkeypatch):
    distribution(tmp_path, "numpy", "99.5.0")
    monkeypatch.syspath_prepend(tmp_path)
    with open_mechanism("numpy:laplace", seed="1").open(timeout=60) as mechanism:
        assert mechanism.facts.version == "99.5.0"
        assert mechanism.facts.advice.startswith(
            f"numpy: adapter tested with numpy {library('numpy').tested}, installed 99"
        )
        assert mechanism.ask(Request(1, input=np.zeros(1)), timeout=60).values.shape == (1, 1)
    sampler = open_sampler("numpy:laplace", seed="1")
    assert (sampler.facts.version, sampler.facts.advice) == ("99.5.0", mechanism.facts.advice)


@pytest.mark.parametrize(
    ("version", "told"),
    [("2.4.6", False), ("2.4.6+cpu", False), ("2.4.60", True), ("2.5.0", True), (None, False)],
)
def test_advice(version, told):
    assert bool(advice("x", "y", tested="2.4.6", installed=version)) == told


# ---------------------------------------------------------------- odd values

ODD = [-0.0, 5e-324, -2.2250738585072014e-308, 2.0**53, -(2.0**53), 1e300]


def release(text, value, n=4):
    """A library's releases, in this process, as the worker would take them."""
    return numbers(built(text)[1](np.array(value, dtype=np.float64), n), "it returned", "")


@pytest.mark.slow
def test_odd_values_arrive_bit_by_bit(tell):
    assert tell("return np.tile(value, (n, 1))", ODD).tobytes() == np.array(ODD).tobytes() * 4


@pytest.mark.parametrize(
    "text", ["numpy:laplace", "scipy:norm", "stdlib:gauss", "python-dp:laplace:epsilon=1"]
)
def test_libraries_take_odd_values(text):
    released = release(text, ODD)
    assert released.shape == (4, len(ODD))
    assert (np.abs(released[:, :3]) < 50).all()
    assert (released[:, -1] == 1e300).all()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (
            [2**53 + 1] * 4,
            "returned 9007199254740993, which float64 would round: whole numbers are accepted up",
        ),
        ([-(2**53) - 1, 0, 0, 0], "returned -9007199254740993, which"),
        ([2**70] * 4, "returned 1180591620717411303424, which"),
        (np.full(4, 2**64 - 1, np.uint64), "returned 18446744073709551615, which"),
        (np.full(4, np.longdouble(1) / 3), r"returned 0\.333.*, which float64 would round"),
    ],
)
def test_releases_that_float64_would_round_are_refused(given, match):
    with pytest.raises(SamplerOutputError, match=match):
        numbers(given, "it returned", "")


@pytest.mark.slow
def test_they_are_refused_by_samplers_and_by_mechanisms(ask, tell):
    for answer in (lambda body: ask(body, 4, 1), tell):
        with pytest.raises(
            SamplerOutputError, match="returned 9007199254740993, which float64 would round"
        ):
            answer("return [2**53 + 1] * n")


@pytest.mark.parametrize("given", [[2**53] * 4, [-(2**53), 0] * 2, np.full(4, 7, np.int8)])
def test_whole_numbers_that_fit_are_taken(given):
    np.testing.assert_array_equal(numbers(given, "it returned", ""), given)


def test_counts_near_the_end_of_exact_numbers_are_not_silently_rounded():
    """A geometric release of 2^53 is above it with probability 0.27: one of 200 is (1 − 1e-27)."""
    with pytest.raises(SamplerOutputError, match="which float64 would round"):
        release("diffprivlib:Geometric:epsilon=1", [2.0**53], 200)
    released = release("diffprivlib:Geometric:epsilon=1", [2.0**53 - 1000], 200)
    assert len(np.unique(released)) > 4


def test_a_value_beyond_a_librarys_integers_is_its_refusal_in_its_words():
    with pytest.raises(Exception, match=r"i64|int|range|large"):
        release("opendp:discrete-laplace", [1e300])


@pytest.mark.parametrize(
    ("options", "value", "match"),
    [
        ("max_grad_norm=1e-5", 1.0, "raise it and lower noise_multiplier"),
        ("max_grad_norm=0.01", 1.2345678, "do not sum to it exactly in float32"),
        ("noise_multiplier=1", 1e300, "too large for the float32"),
    ],
)
def test_a_step_that_cannot_add_up_to_the_value_is_refused(options, value, match):
    module = pytest.importorskip("opacus.optimizers.optimizer", exc_type=ImportError)
    step, given = opacus.LIBRARY.find(f"step:{options}")
    with pytest.raises(UsageError, match=match):
        step.make(module, **given)(np.array([value]), 1)


@pytest.mark.slow
def test_a_step_from_many_clipped_gradients():
    """Noise 1e-8 is lost in a float32 of 1: the release is the sum of 128 unclipped gradients."""
    module = pytest.importorskip("opacus.optimizers.optimizer", exc_type=ImportError)
    step, given = opacus.LIBRARY.find("step:max_grad_norm=0.01,noise_multiplier=1e-7")
    np.testing.assert_array_equal(
        step.make(module, **given)(np.array([1.0, -0.5]), 3), [[1, -0.5]] * 3
    )
