"""Functions of C libraries: arrays filled in place, or called as ``--call`` says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.draws import draw, release

from dpaudit.errors import SamplerCrashError, SamplerOutputError, UsageError
from dpaudit.protocols import Request
from dpaudit.targets import open_sampler
from dpaudit.targets.resolve import open_mechanism

CODE = """
    #include <stddef.h>
    #include <stdio.h>
    #include <unistd.h>
    void good(double *out, size_t n, size_t d) { for (size_t i = 0; i < n * d; i++) out[i] = i; }
    void loud(double *out, size_t n, size_t d) {
        printf("hello\\n"); fflush(stdout); good(out, n, d);
    }
    void lazy(double *out, size_t n, size_t d) {
        for (size_t i = 0; i + 1 < n * d; i++) out[i] = i;
    }
    void over(double *out, size_t n, size_t d) { good(out, n, d + 1); }
    void nans(double *out, size_t n, size_t d) { good(out, n, d); out[1] = 0.0 / (out[0] * 0.0); }
    void sink(double *out, size_t n, size_t d) { volatile int *p = 0; *p = (int)n; }
    void hang(double *out, size_t n, size_t d) { for (;;) sleep(1000); }
    static double count;
    double next(void) { return count++; }
    double scaled(double scale) { return scale; }
    long whole(double value) { return (long)value + 1; }
    double at(double value) { return value + 0.5; }
    void fill(size_t n, double scale, double *out) { while (n--) out[n] = scale; }
    void many(const double *value, size_t m, double *out, size_t n) {
        for (size_t i = 0; i < n * m; i++) out[i] = value[i % m] + i / m;
    }
    void short_of(const double *value, size_t m, double *out, size_t n) { out[0] = 1; }
    long both(int k, double epsilon, float x, long value) { return k + epsilon + x + value; }
    long big(void) { return (1l << 60) + 1; }
"""


@pytest.fixture(scope="module")
def library(cc):
    return cc(CODE)


@pytest.mark.slow
def test_values_arrive_in_order(library):
    np.testing.assert_array_equal(
        draw(f"library:{library}:good", 5, 3), np.arange(15.0).reshape(5, 3)
    )


@pytest.mark.slow
def test_a_name_without_a_slash_is_looked_for_here(library, monkeypatch):
    monkeypatch.chdir(library.parent)
    for text in ("library:libnoise.so:good", "library:./libnoise.so:good"):
        np.testing.assert_array_equal(draw(text, 2, 1), [[0], [1]])


@pytest.mark.slow
def test_printing_does_no_harm(library):
    with open_sampler(f"library:{library}:loud", seed="1").open(timeout=60) as sampler:
        for _ in range(2):
            np.testing.assert_array_equal(sampler.ask(Request(2, 1), timeout=20).values, [[0], [1]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("symbol", "match"),
    [
        ("lazy", r"wrote 7 values, wanted n\*d=8"),
        ("over", "past the end"),
        ("nans", r"1 of 8 .* \[0, 1\]=-?nan"),
    ],
)
def test_wrong_answers(library, symbol, match):
    text = f"library:{library}:{symbol}"
    with pytest.raises(SamplerOutputError, match=match):
        draw(text, 4, 2)


@pytest.mark.slow
def test_a_segmentation_fault_ends_the_worker_only(library, alive):
    text = f"library:{library}:sink"
    match = r"signal SIGSEGV after .* \(call n=4, d=2\)"
    with pytest.raises(SamplerCrashError, match=match):
        draw(text, 4, 2)
    assert not alive(text)


@pytest.mark.slow
def test_slips(library, here):
    with pytest.raises(UsageError, match=r"library=./no.so"):
        open_sampler("library:./no.so:good", seed="1")
    (here / "text.so").write_text("not a library")
    for text, match in (
        (f"library:{library}:god", "symbol=god: not in"),
        ("library:./text.so:f", "cannot be loaded"),
    ):
        with pytest.raises(UsageError, match=match):
            draw(text, 1, 1)


# ---------------------------------------------------------------- with --call


@pytest.mark.slow
@pytest.mark.parametrize(
    ("symbol", "call", "values"),
    [
        ("next", "f() -> double", [[0, 1], [2, 3]]),
        ("scaled", "f(2.5) -> double", [[2.5, 2.5], [2.5, 2.5]]),
        ("whole", "f(value) -> long", [[1, 1], [1, 1]]),
        ("both", "f(int(1), 2, float(0.5), long(value)) -> long", [[3, 3], [3, 3]]),
        ("fill", "f(n, 0.25, out)", [[0.25, 0.25], [0.25, 0.25]]),
    ],
)
def test_c_functions_as_noise(library, symbol, call, values):
    np.testing.assert_array_equal(draw(f"library:{library}:{symbol}", 2, 2, call=call), values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("symbol", "call", "values"),
    [
        ("many", None, [[1, 10], [2, 11], [3, 12]]),
        ("at", "f(value) -> double", [[1.5, 10.5]] * 3),
        ("whole", "f(value) -> long", [[2, 11]] * 3),
        ("both", "f(int(1), 2, float(0.5), long(value)) -> long", [[4, 13]] * 3),
    ],
)
def test_c_functions_as_mechanisms(library, symbol, call, values):
    with open_mechanism(f"library:{library}:{symbol}", seed="1", call=call).open(
        timeout=60
    ) as mechanism:
        released = mechanism.ask(Request(3, input=np.array([1.0, 10.0])), timeout=20).values
        np.testing.assert_array_equal(released, values)
        reply = mechanism.ask(Request(1, input=np.array([1.0]), calls=2), timeout=20)
        one, seconds = reply.values, reply.seconds
        assert one.shape == (2, 1)
        assert (seconds >= 0).all()
        both = mechanism.ask(Request(1, input=np.array([1.0, 10.0]), calls=2), timeout=20).values
        np.testing.assert_array_equal(both[:1], values[:1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("symbol", "call", "kind", "match"),
    [
        ("scaled", None, SamplerOutputError, r"wrote 0 values.*--call 'f\(1\.0\) -> double'"),
        ("big", "f() -> long", SamplerOutputError, "float64 would round"),
        ("fill", "f(out, n) -> double", UsageError, "writes to out"),
        ("fill", "f(out, n, m)", UsageError, "m is how many"),
        ("fill", "f(out, n, long('x'))", UsageError, "by position"),
    ],
)
def test_c_calls_that_do_not_fit(library, symbol, call, kind, match):
    with pytest.raises(kind, match=match):
        draw(f"library:{library}:{symbol}", 2, 2, call=call)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("symbol", "call", "kind", "match"),
    [
        ("short_of", None, SamplerOutputError, r"mechanism library:.* wrote 1 values, .*=6"),
        ("next", "f() -> double", UsageError, "is told the value"),
        ("at", None, SamplerCrashError, r"SIGSEGV|wrote 0 values"),
    ],
)
def test_c_mechanisms_that_do_not_fit(library, symbol, call, kind, match):
    with pytest.raises((kind, SamplerOutputError), match=match):
        release(f"library:{library}:{symbol}", np.array([1.0, 10.0]), 3, call=call)


@pytest.mark.slow
def test_the_example_of_a_vendor(cc):
    """Fails with probability below 1e-8 each: the mean size is 2 ± 6 standard errors."""
    code = Path(__file__).parents[3] / "examples" / "c_sampler" / "noise.c"
    library = cc(code.read_text())
    n = 40_000
    drawn = draw(f"library:{library}:laplace", n, 1, call="f(2.0) -> double")
    assert abs(np.abs(drawn).mean() - 2) < 12 / np.sqrt(n)
    assert abs((drawn > 0).mean() - 0.5) < 3 / np.sqrt(n)
    value = np.array([5.0, 70.0])
    for symbol, call in (("released", "f(value) -> double"), ("released_many", None)):
        noise = release(f"library:{library}:{symbol}", value, n, call=call) - value
        assert (np.abs(np.abs(noise).mean(0) - 1) < 6 / np.sqrt(n)).all()


@pytest.mark.slow
def test_a_crash_by_the_default_call_says_how_to_call_otherwise(cc):
    library = cc("double laplace(double *scale) { return *(volatile double *)8; }")
    with pytest.raises(SamplerCrashError, match=r"SIGSEGV.*--call 'f\(1\.0\) -> double'"):
        draw(f"library:{library}:laplace", 2, 2)
