"""How functions are called: by their parameters, or as ``--call`` says."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.draws import draw, release

import dpaudit
from dpaudit.errors import SamplerCrashError, SamplerOutputError, UsageError
from dpaudit.protocols import Request
from dpaudit.targets import open_sampler
from dpaudit.targets.calls import Call, python_call
from dpaudit.targets.functions import ReleasesBy, noise_by
from dpaudit.targets.resolve import open_mechanism


@pytest.mark.parametrize(
    ("function", "noise", "releases"),
    [
        (lambda: 0.0, "f()", None),
        (lambda n: n, "f(n)", None),
        (lambda size: size, "f(size=(n, d))", None),
        (lambda n, d: 0, "f(n, d)", None),
        (lambda dim, n: 0, "f(d, n)", "f(value, n)"),
        (lambda n, d, value=0.0: 0, "f(n, d, value=value)", None),
        (lambda n, d, value=0.0, /: 0, "f(n, d)", None),
        (lambda *, n, d: 0, "f(n=n, d=d)", None),
        (lambda *any_: 0, "f(n, d)", "f(value, n)"),
        (lambda scale=1.0: 0, "f()", None),
        (lambda value: value, "f(value)", "f(value)"),
        (lambda n, value: value, "f(n, value)", "f(n, value)"),
        (lambda value, size=None: value, "f(value, size=(n, d))", "f(value, size=n)"),
        (lambda x: x, None, "f(value)"),
        (random.gauss, "f()", None),
        (np.random.laplace, "f(size=(n, d))", None),
        (np.random.default_rng().normal, "f(size=(n, d))", None),
        (functools.partial(np.random.laplace, 0.0, 2.0), "f(size=(n, d))", None),
        # a constant is never taken for a count
        (lambda scale: scale, None, None),
        (lambda value, epsilon: value, None, None),
        (lambda n, sigma: n, None, None),
        (lambda n, d, scale: n, None, None),
        (lambda scale, size: scale, None, None),
    ],
)
def test_parameters_tell_how_to_call_or_are_refused(function, noise, releases):
    for expected, wanted in ((noise, False), (releases, True)):
        if expected is None:
            with pytest.raises(UsageError, match=r"--call '|take no value"):
                python_call(function, None, name="x", releases=wanted)
        else:
            call = python_call(function, None, name="x", releases=wanted)
            assert str(call) == expected
            assert Call.parse(expected) == call


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (lambda d: d, "f(value)"),
        (lambda d, n: d, "f(value, n)"),
        (lambda data, n=1: data, "f(value, n=n)"),
        (lambda: 0, None),
        (lambda scale: 0, None),
    ],
)
def test_a_data_set_may_be_called_d(function, call):
    def found():
        return python_call(function, None, name="x", releases=True, dataset=True)

    if call is not None:
        assert str(found()) == call
        assert str(Call.parse(call.replace("value", "dataset"))) == call
    else:
        with pytest.raises(UsageError, match=r"take no data set; write f\(dataset\)"):
            found()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("g(n)", "called f here, not g"),
        ("f", "not a call"),
        ("f(n)(d)", "not a call"),
        ("f(sigma)", "sigma is none of n, d, value"),
        ("f(__import__('os').system('touch ran'))", "neither a name nor a constant"),
        ("f(x=[open('ran', 'w')])", "neither a name nor a constant"),
        ("f(*n)", "neither a name nor a constant"),
        ("f(**n)", "each name is written once"),
        ("f(a=1, a=2)", "each name is written once"),
        ("f(long(out))", "out is no number"),
        ("f(long(1, 2))", "holds one name or number"),
        ("f(eval(value))", "neither a name nor a constant"),
        ("f(1.0) -> void", "returns double, float, int, long"),
        ("(" * 5000, "not a call"),
        ("f(\x1b[31m)", "not a call"),
    ],
)
def test_what_is_no_call_is_refused_and_never_run(text, match, here):
    with pytest.raises(UsageError, match=match) as caught:
        Call.parse(text)
    assert "\x1b" not in str(caught.value)
    assert not list(here.iterdir())


@pytest.mark.slow
@given(st.one_of(st.text(max_size=40), st.text("f(nd,)=value.1-'[]{}*>ong ", max_size=40)))
@settings(derandomize=True, deadline=None, max_examples=200, database=None)
def test_any_text_is_a_call_or_refused(text):
    for body in (text, f"f({text})", f"f(n, x={text}) -> long"):
        try:
            call = Call.parse(body)
        except UsageError as error:
            assert str(error).isprintable()  # noqa: PT017 not raised for most
        else:
            assert call.slots <= {"n", "d", "value", "out", "m"}
            assert str(call).startswith("f(")


@pytest.mark.parametrize(
    ("call", "releases", "match"),
    [
        ("f(1.0, 2.0, 3.0)", False, "too many positional"),
        ("f(n, scales=2)", False, "unexpected keyword"),
        ("f(out, n)", False, "out does not apply"),
        ("f(n) -> double", False, "-> double does not apply"),
        ("f(n)", True, "must be told the value"),
        ("f(value, d)", True, "d does not apply"),
    ],
)
def test_a_call_must_fit_the_function(call, releases, match):
    with pytest.raises(UsageError, match=match):
        python_call(lambda n, scale=1.0: 0, call, name="x", releases=releases)


def test_every_form_gives_rows_in_order():
    counted = iter(range(1000))
    forms = {
        "f()": lambda: next(counted),
        "f(n)": lambda n: [next(counted) for _ in range(n)],
        "f(d)": lambda d: [next(counted) for _ in range(d)],
        "f(n, d)": lambda n, d: [[next(counted) for _ in range(d)] for _ in range(n)],
        "f(value)": lambda value: value + next(counted),
    }
    for text, function in forms.items():
        first = next(counted) + 1
        drawn = noise_by(Call.parse(text), function, name="x")(3, 2, 0.0)
        np.testing.assert_array_equal(drawn, first + np.arange(6.0).reshape(3, 2), err_msg=text)
    at = noise_by(Call.parse("f(value)"), lambda value: value, name="x")
    assert (at(3, 2, 7.0) == 7).all()


@pytest.mark.parametrize(
    ("text", "function", "match"),
    [
        ("f()", lambda: None, r"dtype=object, which is not real numbers \(one call\)"),
        ("f()", lambda: [1.0, 2.0], r"shape \(2,\) \(one call\); return one number"),
        ("f(n)", lambda n: [0.0] * (n + 1), r"shape \(7,\), wanted n=6"),
        ("f(n, d)", lambda n, d: 1.0, r"shape \(\), .*say --call 'f\(\)'"),
        ("f(d)", lambda d: 1.0, "return 2 numbers"),
    ],
)
def test_answers_of_another_length(text, function, match):
    with pytest.raises(SamplerOutputError, match=match):
        noise_by(Call.parse(text), function, name="x")(3, 2, 0.0)


def test_a_release_per_call_gets_a_value_of_its_own():
    def greedy(value):
        value[0] += 1
        return value

    released = ReleasesBy(Call.parse("f(value)"), greedy)(np.array([1.0, 5.0]), 3)
    np.testing.assert_array_equal(released, [[2.0, 5.0]] * 3)


FOREIGN = """
    import itertools
    count = itertools.count()
    def one(): return next(count)
    def mechanism(value, epsilon): return value + epsilon
    def size(size): return [0.0 for _ in range(size)]
"""


@pytest.mark.slow
def test_functions_in_their_own_process(module):
    module(FOREIGN)
    with open_sampler("python:foreign:one", seed="1").open(timeout=60) as sampler:
        np.testing.assert_array_equal(
            sampler.ask(Request(2, 2), timeout=20).values, [[0, 1], [2, 3]]
        )
        again = sampler.again()
    told = "f(value, epsilon=0.25)"
    with open_sampler("python:foreign:mechanism", seed="1", call=told).open(timeout=60) as sampler:
        assert "noise for a value" in sampler.facts.accepts
        assert (sampler.ask(Request(2, 2), timeout=20).values == 0.25).all()
        assert (sampler.ask(Request(2, 2, 8.0), timeout=20).values == 0.25).all()
        again = sampler.again()
    with again.open(timeout=60) as session:
        assert (session.ask(Request(1, 1), timeout=20).values == 0.25).all()
    with open_mechanism("python:foreign:mechanism", seed="1", call=told).open(
        timeout=60
    ) as mechanism:
        released = mechanism.ask(Request(3, input=np.array([1.0])), timeout=20).values
        np.testing.assert_array_equal(released, [[1.25]] * 3)
        reply = mechanism.ask(Request(1, input=np.array([1.0]), calls=2), timeout=20)
        assert reply.values.shape == (2, 1)
    with pytest.raises(UsageError, match=r"--call 'f\(value, epsilon=1\.0\)'"):
        release("python:foreign:mechanism", np.array([1.0]), 3)


@pytest.mark.slow
def test_a_wrong_guess_says_how_it_was_called(module):
    module(FOREIGN)
    match = r"TypeError.*foreign\.py, line \d+.*--call \(it was f\(size=\(n, d\)\)\)"
    with pytest.raises(SamplerCrashError, match=match):
        draw("python:foreign:size", 2, 2)
    assert (draw("python:foreign:size", 2, 2, call="f(size=n)") == 0).all()


@pytest.mark.slow
def test_whole_numbers_are_passed_as_such(module):
    module("def f(value):\n    assert type(value) is int\n    return value")
    with open_sampler("python:foreign:f", seed="1", call="f(int(value))").open(
        timeout=60
    ) as sampler:
        assert (sampler.ask(Request(2, 2), timeout=20).values == 0).all()
        assert "noise for a value" not in sampler.facts.accepts  # the audit would try 1000.5
    with open_mechanism("python:foreign:f", seed="1", call="f(int(value))").open(
        timeout=60
    ) as mechanism:
        assert mechanism.ask(Request(2, input=np.array([7.0])), timeout=20).values.tolist() == [
            [7],
            [7],
        ]
        with pytest.raises(UsageError, match=r"value=0\.5"):
            mechanism.ask(Request(2, input=np.array([0.5])), timeout=20)


def test_other_kinds_have_no_call(here):
    for text in ("command:true", "file:x.npy", "gaussian", "http://127.0.0.1/"):
        with pytest.raises(UsageError, match=r"call=f\(\)"):
            open_sampler(text, seed="1", call="f()")
    with pytest.raises(UsageError, match=r"call=f\(value\)"):
        open_mechanism("numpy:laplace", seed="1", call="f(value)")


def test_callables_of_this_process():
    rng = random.Random(1)
    asked = {"claim": "gaussian:sigma=1", "samples": 2000, "seed": 1, "tests": ["moments"]}
    honest = dpaudit.audit_sampler(lambda: rng.gauss(0, 1), alpha=1e-6, **asked)
    assert honest.verdict == "no-finding"
    wide = dpaudit.audit_sampler(
        lambda value, sigma: value + rng.gauss(0, sigma), call="f(value, sigma=1.5)", **asked
    )
    (found,) = {t.reproduce for t in wide.tests if t.finding}
    assert "call='f(value, sigma=1.5)'" in found
    whole = dpaudit.audit_mechanism(
        lambda value, scale: value + round(rng.expovariate(1 / scale)),
        neighbours=(0, 1), epsilon=1, samples=2000, seed=1, call="f(value, scale=0.2)",
    )  # fmt: skip
    assert whole.verdict == "finding"
