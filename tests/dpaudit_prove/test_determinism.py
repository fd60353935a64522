"""Compiled samplers with coins of the auditor's choice."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import here as dpaudit

from dpaudit.errors import UsageError
from dpaudit_prove.determinism.check import determinism
from dpaudit_prove.determinism.driver import scan

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or not (shutil.which("cc") and shutil.which("objdump")),
    reason="needs Linux, a C compiler and binutils",
)

HEAD = """
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
static double unit(void) {
  uint64_t x;
  if (getrandom(&x, 8, 0) != 8) abort();
  return (double)(x >> 11) * 0x1p-53;
}
#define EACH void noise(double *o, size_t n, size_t d) { for (size_t i = 0; i < n * d; i++)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory):
    """``library(code)`` → a shared library with a function ``noise``."""

    def build(code: str) -> Path:
        folder = tmp_path_factory.mktemp("c")
        (folder / "x.c").write_text(HEAD + code)
        flags = ("-O1", "-shared", "-fPIC", "-o", folder / "libnoise.so", folder / "x.c", "-lm")
        subprocess.run(["cc", *flags], check=True, capture_output=True)
        return folder / "libnoise.so"

    return build


def slow(*values: str):
    return pytest.param(*values, marks=pytest.mark.slow)


def check(path: Path):
    return determinism(path, "noise", calls=2, dim=2, timeout=60)


@pytest.mark.slow
def test_a_value_that_rejects_is_a_function_of_its_own_coins(library) -> None:
    found = check(library("EACH { double u; do u = unit(); while (u < 0.4); o[i] = log(u); } }"))
    assert (found.verdict, found.findings, found.not_controlled) == ("no-finding", (), ())
    assert [taken.value for taken in found.coin_bytes] == [0, 1]
    assert all(taken.least >= 7 and taken.most % 8 in (0, 7) for taken in found.coin_bytes)
    assert set(found.sources) == {"getrandom"}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("EACH o[i] = unit() + 1e-3 * (double)(time(0) & 1023); }", "at another time"),
        slow("EACH o[i] = unit() + (double)getpid(); }", "under another process number"),
        ("static int k; EACH o[i] = unit() + k++; }", "without the calls before"),
        slow(
            "EACH { volatile unsigned char *p = malloc(64); o[i] = unit() + p[17]; } }",
            "fresh memory holds",
        ),
        slow("EACH o[i] = 0.5 * i; }", "4 of 4 values are the same whatever the coins"),
        (
            "void noise(double *o, size_t n, size_t d) { double k = unit();"
            "for (size_t i = 0; i < n * d; i++) o[i] = floor(1000 * unit()) + k; }",
            "shared by several values",
        ),
        slow(
            "static double spare; static int has; EACH {"
            "if (has) { o[i] = spare; has = 0; } else { o[i] = unit(); spare = 1 - o[i]; has = 1; }"
            "} }",
            "shared by several values",
        ),
    ],
)
def test_what_is_no_function_of_its_own_coins_is_found(library, code: str, words: str) -> None:
    found = check(library(code))
    assert found.verdict == "finding"
    assert any(words in finding for finding in found.findings), found.findings


@pytest.mark.slow
def test_coins_that_are_read_ahead_are_told_apart(library) -> None:
    found = check(
        library(
            "void noise(double *o, size_t n, size_t d) { uint32_t b[64]; FILE *f = "
            'fopen("/dev/urandom", "r"); if (fread(b, 4, n * d, f) != n * d) abort(); fclose(f);'
            "for (size_t i = 0; i < n * d; i++) o[i] = b[i]; }"
        )
    )
    assert found.verdict == "no-finding"
    assert [(t.value, t.least, t.most) for t in found.coin_bytes] == [(0, 4, 4), (1, 4, 4)]
    assert found.sources == {"/dev/urandom": 2}


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
def test_rdrand_and_the_time_stamp_counter_are_trapped(library) -> None:
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        flags = ""
    if "rdrand" not in flags:
        pytest.skip("a processor without RDRAND")
    draw = "unsigned long long x; __builtin_ia32_rdrand64_step(&x); o[i] = (double)(x >> 11);"
    code = f'__attribute__((target("rdrnd"))) EACH {{ {draw} }} }}'
    path = library(code)
    assert len(scan(path).random_instructions) == 1
    found = check(path)
    assert (found.verdict, found.sources) == ("no-finding", {"rdrand": 4})
    counted = check(library("EACH o[i] = unit() + (double)__builtin_ia32_rdtsc(); }"))
    assert counted.verdict == "finding"
    assert "at another time" in counted.findings[0]


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
def test_what_cannot_be_interposed_leaves_the_question_open(library) -> None:
    hidden = library(
        'static long own(void) { long r; __asm__ volatile("syscall" : "=a"(r) : "0"(39) :'
        ' "rcx", "r11", "memory"); return r; } EACH o[i] = unit() + 0 * own(); }'
    )
    found = check(hidden)
    assert found.verdict != "no-finding"
    assert any("syscall" in word for word in found.not_controlled)
    read = 'FILE *f = fopen("/etc/hostname", "r"); if (f) fclose(f); o[i] = unit(); }'
    for code, said in (
        ("EACH o[i] = unit() + 0 * rand(); }", "imports rand"),
        (f"EACH {{ {read} }}", "asked for: file /etc/hostname"),
    ):
        found = check(library(code))
        assert (found.verdict, found.not_controlled) == ("inconclusive", (said,))


@pytest.mark.parametrize(
    ("code", "words"),
    [("EACH if (i) o[i] = unit(); }", "not written"), slow("EACH o[i + 1] = unit(); }", "value")],
)
def test_a_sampler_that_breaks_its_contract_is_a_usage_error(library, code, words) -> None:
    with pytest.raises(UsageError, match=words):
        check(library(code))


@pytest.mark.slow
def test_a_missing_symbol_or_file_is_a_usage_error(library, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such symbol"):
        determinism(library("EACH o[i] = 1; }"), "nois", calls=2, dim=1, timeout=60)
    with pytest.raises(UsageError, match="no such file"):
        determinism(tmp_path / "x.so", "noise")
    (tmp_path / "y.so").write_text("no library")
    with pytest.raises(UsageError, match="objdump"):
        determinism(tmp_path / "y.so", "noise")


@pytest.mark.slow
def test_the_command_says_what_was_seen(library, tmp_path: Path) -> None:
    path = library("EACH o[i] = unit() + 1e-3 * (double)(time(0) & 1023); }")
    done = dpaudit("prove", f"library:{path}:noise", "--determinism", "--out", tmp_path)
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "getrandom 16 time 16" in text
    assert "Finding: a value of noise in libnoise.so is not a function of coins of its own" in text
    assert "the same coins give another value at another time" in text
    stored = json.loads((tmp_path / "result.json").read_text())
    assert (stored["kind"], stored["verdict"]) == ("determinism", "finding")
    assert [f["name"] for f in stored["provenance"]["files"]] == [str(path)]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "is not a function of coins of its own" in page
    assert "coins that were not tried" in page


def test_the_command_wants_a_library() -> None:
    done = dpaudit("prove", "python:random:random", "--determinism")
    assert done.returncode == 2
    assert "library:PATH:SYMBOL" in done.stderr
