from __future__ import annotations

import time

import numpy as np
import pytest

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.samplers import open_sampler

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
"""


@pytest.fixture(scope="module")
def library(cc):
    return cc(CODE)


def test_values_arrive_in_order(library):
    with open_sampler(f"library:{library}:good", seed="1") as sampler:
        np.testing.assert_array_equal(sampler.draw(5, 3, timeout=20), np.arange(15.0).reshape(5, 3))
        np.testing.assert_array_equal(
            sampler.draw(1000, 2000, timeout=20), np.arange(2e6).reshape(1000, 2000)
        )


def test_a_name_without_a_slash_is_looked_for_here(library, monkeypatch):
    monkeypatch.chdir(library.parent)
    for text in ("library:libnoise.so:good", "library:./libnoise.so:good"):
        with open_sampler(text, seed="1") as sampler:
            np.testing.assert_array_equal(sampler.draw(2, 1, timeout=20), [[0], [1]])


def test_printing_does_no_harm(library):
    with open_sampler(f"library:{library}:loud", seed="1") as sampler:
        for _ in range(2):
            np.testing.assert_array_equal(sampler.draw(2, 1, timeout=20), [[0], [1]])


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
    with open_sampler(text, seed="1") as sampler, pytest.raises(SamplerOutputError, match=match):
        sampler.draw(4, 2, timeout=20)


def test_a_segmentation_fault_ends_the_worker_only(library, alive):
    text = f"library:{library}:sink"
    match = r"signal SIGSEGV after .* \(call n=4, d=2\)"
    with open_sampler(text, seed="1") as sampler, pytest.raises(SamplerCrashError, match=match):
        sampler.draw(4, 2, timeout=20)
    assert not alive(text)


def test_silence_ends_in_time(library, alive):
    text = f"library:{library}:hang"
    with open_sampler(text, seed="1") as sampler:
        sampler.start(timeout=60)
        start = time.monotonic()
        with pytest.raises(SamplerTimeoutError):
            sampler.draw(4, 2, timeout=0.2)
        assert time.monotonic() - start < 15
        assert not alive(text)


def test_slips(library, here):
    with pytest.raises(UsageError, match=r"library=./no.so"):
        open_sampler("library:./no.so:good", seed="1")
    (here / "text.so").write_text("not a library")
    for text, match in (
        (f"library:{library}:god", "symbol=god: not in"),
        ("library:./text.so:f", "cannot be loaded"),
    ):
        with open_sampler(text, seed="1") as sampler, pytest.raises(UsageError, match=match):
            sampler.draw(1, 1, timeout=20)
