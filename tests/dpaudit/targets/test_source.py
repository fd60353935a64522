"""The sources of this package as samplers and as mechanisms."""

from __future__ import annotations

import base64
import sys

import numpy as np
import pytest

from dpaudit import registry
from dpaudit.errors import DuplicatePluginError, UnknownNameError, UsageError
from dpaudit.protocols import Request, Target
from dpaudit.randomness import KeyedStream
from dpaudit.targets import open_sampler
from dpaudit.targets.endpoints.callees import open_callee
from dpaudit.targets.endpoints.worker_main import Dispatcher
from dpaudit.targets.resolve import open_mechanism

torch = pytest.importorskip("torch")
gaussian = pytest.importorskip("dpaudit.noise.gaussian")
secure = pytest.importorskip("dpaudit.noise.secure_gaussian")


@pytest.mark.slow
def test_calls_draw_from_children_of_the_seed():
    """One worker: two calls, then three in one message, then a fork, which is two."""
    with open_sampler("gaussian:sigma=2", seed="7").open(timeout=60) as sampler:
        assert sampler.facts.dim is None
        blocks = [sampler.ask(Request(n, 3), timeout=60).values for n in (4, 5)]
        many = sampler.ask(Request(2, 3, calls=3), timeout=60).values
        pair = sampler.ask(Request(10, 3, forked=True), timeout=60).values
        blocks += [*np.split(many, 3), sampler.ask(Request(6, 3), timeout=60).values]
    assert pair is None or (pair[0] != pair[1]).all()
    source = gaussian.Gaussian(sigma=2)
    for call, block in zip((0, 1, 2, 3, 4, 7), blocks, strict=True):
        expected = source.sample(
            len(block), 3, stream=KeyedStream.from_seed("7").child("call", call)
        )
        np.testing.assert_array_equal(block, expected)
    assert blocks[0].dtype == np.float64


@pytest.mark.slow
def test_a_source_says_its_own_claim_and_none_behind_a_mitigation():
    with open_sampler("gaussian:sigma=2", seed="7").open(timeout=60) as sampler:
        assert sampler.facts.claim == "gaussian:sigma=2.0"
    with open_sampler("gaussian", seed="7", mitigation="smoothing:tau=0.05").open(
        timeout=60
    ) as sampler:
        assert sampler.facts.claim is None


def opened(text, mitigation=None):
    """What the worker calls, in this process."""
    return open_callee(open_sampler(text, seed="7", mitigation=mitigation)._spec)


def test_a_mitigation_releases_zeros():
    rotation = pytest.importorskip("dpaudit_mitigations.rotation.fresh").Rotation
    block = opened("gaussian", "rotation").noise(4, 6, 0, 0.0)
    stream = KeyedStream.from_seed("7").child("call", 0)
    zeros = torch.zeros((4, 6), dtype=torch.float64)
    np.testing.assert_array_equal(
        block, rotation().release(zeros, gaussian.Gaussian(), stream=stream).numpy()
    )


def test_errors_of_the_registry_come_through_as_they_are():
    with pytest.raises(UsageError, match="sigma=-1"):
        opened("gaussian:sigma=-1")
    # from a worker: cli/test_cli.py
    with pytest.raises(UnknownNameError, match="did you mean 'sigma'"):
        opened("gaussian:sgma=1")
    with pytest.raises(UsageError, match="name=value"):
        open_sampler("gaussian:2", seed="1")


# ---------------------------------------------------------------- mechanisms

VALUE = np.array([1.0, -0.25, 1e5 + 0.1])


def rows(n, value=VALUE):
    return torch.from_numpy(np.tile(value, (n, 1)))


class Here:
    """A mechanism whose worker is this process."""

    def __init__(self, text, mitigation=None):
        spec = {"name": text, **open_mechanism(text, seed="7", mitigation=mitigation)._spec}
        self.worker = Dispatcher(open_callee(spec), spec)

    def release(self, value, n, *, timed=False):
        question = {"release": base64.b64encode(value.tobytes()).decode()}
        question |= {"n": 1, "calls": n} if timed else {"n": n}
        return self.worker.answer({**question, "d": 1, "call": 0, "seconds": 1e9})


def test_calls_release_from_children_of_the_seed():
    mechanism = Here("secure-gaussian:sigma=2")  # from a worker: studies/test_libraries.py
    got = [mechanism.release(VALUE, n) for n in (4, 5)]
    for call, released in enumerate(got):
        stream = KeyedStream.from_seed("7").child("release", call)
        expected = secure.SecureGaussian(sigma=2).release(rows(4 + call), stream=stream)
        np.testing.assert_array_equal(released, expected.numpy())


def test_plain_noise_is_added_in_floating_point_and_a_mitigation_may_stand_between():
    rotation = pytest.importorskip("dpaudit_mitigations.rotation.fresh").Rotation
    stream = KeyedStream.from_seed("7").child("release", 0)
    released = Here("gaussian:sigma=3").release(VALUE, 6)
    noise = gaussian.Gaussian(sigma=3).sample(6, 3, stream=stream, dtype=torch.float64)
    np.testing.assert_array_equal(released, (rows(6) + noise).numpy())
    turned = Here("gaussian:sigma=3", mitigation="rotation").release(VALUE, 6)
    expected = rotation().release(rows(6), gaussian.Gaussian(sigma=3), stream=stream)
    np.testing.assert_array_equal(turned, expected.numpy())


def test_timed_releases_are_as_many_calls():
    mechanism = Here("discrete-laplace:scale=4")
    mechanism.release(np.array([3.0]), 2)
    released, seconds = mechanism.release(np.array([3.0]), 5, timed=True).T
    source = registry.create("sources", "discrete-laplace:scale=4")
    root = KeyedStream.from_seed("7")
    one = rows(1, np.array([3.0]))
    expected = [source.release(one, stream=root.child("release", 1 + i)).item() for i in range(5)]
    assert released.ravel().tolist() == expected
    assert seconds.shape == (5,)
    assert (seconds > 0).all()


def test_nothing_is_imported_on_the_auditors_side(monkeypatch):
    monkeypatch.delitem(sys.modules, "dpaudit.noise.snapping", raising=False)
    mechanism = open_mechanism("snapping:epsilon=2", seed="1")
    assert "dpaudit.noise.snapping" not in sys.modules
    assert mechanism.name == "snapping:epsilon=2"
    assert isinstance(mechanism, Target)
    assert "releases in calls" in mechanism.facts.accepts


@pytest.mark.parametrize(
    ("text", "kind", "match"),
    [
        ("secure-gaussian:sgma=1", UnknownNameError, "did you mean 'sigma'"),
        (
            "discrete-gaussian",
            UsageError,
            r"query value=0\.5: discrete-gaussian takes whole numbers",
        ),
        ("secure-gaussian:sigma=1e-20", UsageError, r"query value=0\.5: .*coarser granularity"),
    ],
)
def test_what_the_source_refuses_is_said_in_its_words(text, kind, match):
    with pytest.raises(kind, match=match):
        Here(text).release(np.array([0.5]), 3)


@pytest.mark.slow
def test_a_source_of_one_dimension_refuses_another(tmp_path, make_key):
    path = tmp_path / "key.json"
    make_key(dim=8).save(path)
    with open_mechanism(f"pancake:key={path}", seed="1").open(timeout=60) as mechanism:
        assert mechanism.ask(Request(2, input=np.zeros(8)), timeout=60).values.shape == (2, 8)
        with pytest.raises(UsageError, match=r"value of 3 numbers: source pancake.*dim=8"):
            mechanism.ask(Request(2, input=VALUE), timeout=60)


def test_names_that_do_not_fit_are_refused(monkeypatch):
    with pytest.raises(UnknownNameError, match="did you mean 'secure-gaussian'"):
        open_mechanism("secure-gausian", seed="1")
    with pytest.raises(UnknownNameError, match="mitigation=rotatoin"):
        open_mechanism("gaussian", seed="1", mitigation="rotatoin")
    with pytest.raises(UsageError, match="mitigation=rotation"):
        open_mechanism("numpy:laplace", seed="1", mitigation="rotation")
    every = registry.plugins("sources")
    monkeypatch.setattr(
        registry,
        "plugins",
        lambda kind: every | {"numpy": every["gaussian"]} if kind == "sources" else {"numpy": None},
    )
    with pytest.raises(DuplicatePluginError, match="mechanism=numpy"):
        open_mechanism("numpy:laplace", seed="1")
