"""Libraries in environments of their own; missing ones are skipped (`make envs` makes them)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from support.draws import release

from dpaudit import registry
from dpaudit.claims import Claim
from dpaudit.errors import MissingExtraError, SamplerCrashError, UnknownNameError, UsageError
from dpaudit.protocols import RepeatableSampler, TimedMechanism, ValueSampler
from dpaudit.samplers import open_sampler
from dpaudit.samplers.adapters.base import Adapter
from dpaudit.samplers.resolve import open_mechanism

ENVS = Path(os.environ.get("DPAUDIT_ENVS") or Path(__file__).parents[3] / ".envs").resolve()
MISS = 1e-7  # chance that an honest library fails one of the comparisons below

TMLT = {
    "tmlt-core:laplace:scale=2": "laplace:scale=2",
    "tmlt-core:gaussian:sigma_squared=4": "gaussian:sigma=2",
    "tmlt-core:geometric:alpha=3": "discrete-laplace:scale=3",
    "tmlt-core:discrete-gaussian": "discrete-gaussian:sigma=10",
}
OLD = {
    "diffprivlib-old:Laplace:epsilon=0.5": "laplace:scale=2",
    "diffprivlib-old:Gaussian:epsilon=0.5,delta=1e-5": "gaussian:sigma=9.68961",
    "diffprivlib-old:GaussianAnalytic:epsilon=0.5,delta=1e-5": "gaussian:sigma=7.03183",
    "diffprivlib-old:Geometric:epsilon=0.5,sensitivity=2": "discrete-laplace:scale=4",
}


@pytest.fixture
def made(monkeypatch):
    """``made(text)``: skip if the library's environment is not there."""
    monkeypatch.setenv("DPAUDIT_ENVS", str(ENVS))

    def look(text: str):
        library = registry.load("samplers", text.partition(":")[0])
        if library.version is None:
            pytest.skip(f"{library.name} is not in {library.folder}: run `make envs`")
        return library

    return look


@pytest.mark.parametrize(
    "text", [*OLD, *(pytest.param(text, marks=pytest.mark.slow) for text in TMLT)]
)
def test_the_claim_and_the_noise_agree(text, made):
    library = made(text)
    mechanism, options = library.find(text.partition(":")[2])
    wanted, got = Claim.parse({**OLD, **TMLT}[text]), Claim.parse(mechanism.claim(**options))
    assert (got.family, got.scale) == (wanted.family, pytest.approx(wanted.scale, rel=1e-6))
    value = np.array([7.0, -3.0])
    with open_mechanism(text, seed="1") as opened:
        assert isinstance(opened, TimedMechanism)
        assert (opened.version, opened.advice) == (library.tested, "")
        released = opened.release(value, 1000, timeout=120)
        timed, seconds = opened.release_timed(value[:1], 100, timeout=120)
    assert released.shape == (1000, 2)
    assert (timed.shape, seconds.shape) == ((100, 1), (100,))
    assert (seconds > 0).all()
    assert len(np.unique(np.r_[timed[:, 0], released[:, 0]])) > 5
    noise = (released - value).ravel()
    for scale, honest in ((1.0, True), (1.6, False)):
        law = f"{got.family}:{'sigma' if 'gauss' in got.family else 'scale'}={scale * got.scale}"
        z = Claim.parse(law).to_normal(noise, np.random.default_rng(1))
        assert (scipy.stats.kstest(z, "norm").pvalue > MISS) == honest


def test_tmlt_core(made):
    """Scale 0.1 around 5: beyond 3 with probability 1e-13; two equal releases are rarer."""
    made("tmlt-core:laplace")
    with open_mechanism("tmlt-core:laplace:scale=0.1", seed="1") as mechanism:
        released, seconds = mechanism.release_timed(np.array([5.0, -5.0]), 20, timeout=120)
    assert released.shape == (20, 2)
    assert len(np.unique(released)) == 40
    assert np.abs(released - [5, -5]).max() < 3
    assert (seconds > 0).all()


def test_a_closed_sampler(made):
    made("diffprivlib-old:Laplace")
    with open_sampler("diffprivlib-old:Laplace:epsilon=1", seed="1") as sampler:
        assert isinstance(sampler, RepeatableSampler)
        assert isinstance(sampler, ValueSampler)
        assert (sampler.claim, sampler.takes_value, sampler.version) == (
            "laplace:scale=1",
            True,
            "0.4.1",
        )
        one, two = sampler.draw(20, 3, timeout=60), sampler.draw_at(1e6, 20, 3, timeout=60)
        many, seconds = sampler.draw_calls(2, 2, 3, timeout=60)
        with sampler.again() as other:
            third = other.draw(20, 3, timeout=60)
    assert (many.shape, seconds.shape) == ((4, 3), (2,))
    assert len(np.unique([one, two, third])) == 180
    assert np.abs([one, two, third]).max() < 60


@pytest.mark.parametrize(
    ("text", "value", "kind", "match"),
    [
        (
            "diffprivlib-old:Laplace:epsilon=-1",
            1.0,
            UsageError,
            "diffprivlib-old refuses the options .*: 'ValueError: Epsilon must be non-neg",
        ),
        (
            "diffprivlib-old:Geometric:epsilon=1",
            0.5,
            UsageError,
            r"value=0\.5: .* takes whole numbers",
        ),
        (
            "diffprivlib-old:Geometric:epsilon=1e-6",
            2.0**53,
            SamplerCrashError,
            r"above 2\^53, which float64 would round",
        ),
    ],
)
def test_what_the_library_refuses(text, value, kind, match, made):
    made(text)
    with pytest.raises(kind, match=match):
        release(text, np.array([value]), 30)


@pytest.mark.parametrize("name", ["tmlt-core", "diffprivlib-old"])
def test_an_environment_that_is_not_there_says_what_to_run(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DPAUDIT_ENVS", str(tmp_path))
    library = registry.load("samplers", name)
    assert isinstance(library, Adapter)
    assert (library.version, library.advice) == (None, "")
    target = "laplace" if name == "tmlt-core" else "Laplace:epsilon=1"
    folder = f"{tmp_path}/{name}"
    match = (
        rf"^{name}: needs \S+ {library.tested} in an .* {folder} does not have bin/python; "
        rf"run `make envs`, or: python3 -m venv {folder} && {folder}/bin/python "
        rf"-m pip install {library.distribution}=={library.tested} "
    )
    for opened in (
        open_mechanism(f"{name}:{target}", seed="1"),
        open_sampler(f"{name}:{target}", seed="1"),
    ):
        with pytest.raises(MissingExtraError, match=match), opened:
            pass


def test_an_environment_without_the_library_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("DPAUDIT_ENVS", str(tmp_path))
    python = tmp_path / "tmlt-core" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    with pytest.raises(MissingExtraError, match="tmlt-core does not have it; run `make envs`"):
        open_mechanism("tmlt-core:laplace", seed="1").__enter__()


def test_an_environment_whose_library_does_not_import_says_so_in_its_words(tmp_path, monkeypatch):
    monkeypatch.setenv("DPAUDIT_ENVS", str(tmp_path))
    folder = tmp_path / "tmlt-core"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    info = folder / "lib" / "python3.11" / "site-packages" / "tmlt_core-0.21.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tmlt.core\nVersion: 0.21.0\n")
    with open_mechanism("tmlt-core:laplace", seed="1") as mechanism:
        assert "adapter tested with tmlt.core 0.20.0, installed 0.21.0" in mechanism.advice
        match = "tmlt.core 0.21.0 cannot be imported in .*No module named 'tmlt'.*run `make envs`"
        with pytest.raises(UsageError, match=match):
            mechanism.release(np.zeros(1), 1, timeout=60)


def test_names_and_options_are_checked_without_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("DPAUDIT_ENVS", str(tmp_path))
    with pytest.raises(UnknownNameError, match="did you mean 'laplace'"):
        open_mechanism("tmlt-core:lapace", seed="1")
    with pytest.raises(UnknownNameError, match="Snapping: not in diffprivlib-old"):
        open_mechanism("diffprivlib-old:Snapping:epsilon=1,lower=0,upper=1", seed="1")
    with pytest.raises(UsageError, match="scale=0"):
        open_mechanism("tmlt-core:laplace:scale=0", seed="1")
    with pytest.raises(UsageError, match="dtype=f32"):
        open_sampler("tmlt-core:laplace", seed="1", dtype="f32")
