"""Hostile experiment specifications."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from command_line import here
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutated
from hypothesis import given
from hypothesis import strategies as st

from dpaudit import registry
from dpaudit.cli.running import _check_columns
from dpaudit.experiments.spec_file import load_spec, spec_names

for measure in registry.plugins("measures"):  # torch and others, before memory is limited
    registry.load("measures", measure)

GOOD = """name = "t"
epsilon = [0.5, 1.0]
delta = 1e-10
trials = 50
[host]
name = "histogram"
[key]
beta = [1e-4, 1e-3]
gamma = "2sqrtd"
[[source]]
name = "gaussian"
[[source]]
name = "pancake"
key = { gamma = 0.5 }
[[mitigation]]
name = "none"
[[mitigation]]
name = "smoothing"
tau = [0.1, 0.2, 0.3]
[[attack]]
name = "likelihood-ratio"
[[exclude]]
source = "gaussian"
mitigation = "smoothing"
[audit]
samples = 10000
"""
TABLE = """name = "m"
measure = "precision"
epsilon = 1.0
delta = 1e-10
[host]
name = "histogram"
[[source]]
name = "gaussian"
[[column]]
key = "d"
label = "d"
[published]
file = "hist-da"
on = { d = "num_bins" }
value = "success_rate"
ours = "d"
[grid]
dtype = ["float64", "float32"]
"""
ODD = (
    "1" + "0" * 500, "0x1" + "0" * 4999, "1e999", "nan", "-inf", "[]", "{}", "{name = 3}", "[[]]",
    "['x', 1]", "true", "2020-01-01", "07:32:00", '"\\u001b[2J"', '"\\u202e"', "''", "[" * 300,
    "{a=" * 40 + "1" + "}" * 40, "[[source]]", "[[exclude]]\nsource = [[1]]\n", "[grid]\n",
    "[published]\n", "[audit]\nalpha = 1e-400\n", "keep_trials = true\n", "measure = 'zoo'\n",
    "a.b.c.d = 1\n", ".a" * 100, "\0", "\u2028", "name", "label = 3\n",
)  # fmt: skip
WORDS = tuple(text.encode() for text in ODD)


def door(path):
    """What ``dpaudit run`` does before it runs anything."""
    spec = load_spec(str(path))
    spec.check()
    _check_columns(spec)


def refused(tmp_path, data):
    path = tmp_path / "s.toml"
    path.write_bytes(data)
    assert not refuses_or_reads(lambda: door(path), size=len(data))
    run = here("run", path, "--out", tmp_path / "out")
    assert run.returncode == 2, run.stderr
    assert len(run.stderr) < 2000
    assert not (tmp_path / "out").exists()
    return run.stderr


LONG_AXES = "[grid]\n" + "\n".join(f"a{i} = [1, 2]" for i in range(20_000))
MANY = "\n".join(f'[[source]]\nname = "gaussian"\nlabel = "{i}"' for i in range(900))
BY_HAND = {
    "nested": b"a = " + b"[" * 5000,
    "nested tables": GOOD.encode() + b"[grid]\na = " + b"[" * 40 + b"]" * 40,
    "UTF-16": b"\xff\xfe\x00",
    "500 digits": GOOD.replace("0.5, 1.0", "1" + "0" * 500).encode(),
    "5000 digits": GOOD.replace("0.5, 1.0", "1" + "0" * 5000).encode(),
    "5000 hexadecimal digits": GOOD.replace("0.5, 1.0", "0x1" + "0" * 5000).encode(),
    "seed of 5000 hexadecimal digits": b"seed = 0x1" + b"0" * 5000 + b"\n" + GOOD.encode(),
    "source is a table": b'source = {name = "gaussian"}\n'
    + GOOD.replace('[[source]]\nname = "gaussian"\n', "").encode(),
    "key is a list": b"key = []\n" + GOOD.replace("[key]", "[grid]").encode(),
    "20,000 axes": (GOOD + LONG_AXES).encode(),
    "a key of 30,000 dots": b"a" + b".a" * 30_000 + b" = 1",
    "a key of dots after a string of quotes": b'x = """a"""" # """"\na' + b".a" * 30_000 + b" = 1",
    "a billion combinations": (
        GOOD + MANY + MANY.replace("source", "mitigation").replace("gaussian", "none")
    ).encode(),
    "exclusion of a table": GOOD.replace('source = "gaussian"\n', "source = {a = 1}\n").encode(),
    "exclusion of lists": GOOD.replace('source = "gaussian"\n', "source = [[1]]\n").encode(),
    "key of a column that is a list": TABLE.replace('key = "d"', "key = []").encode(),
    "published file elsewhere": TABLE.replace('"hist-da"', '"../../x"').encode(),
    "published file that is a list of lists": TABLE.replace('"hist-da"', "[[1]]").encode(),
    "published value that is a list": TABLE.replace('"success_rate"', "[]")
    .replace('{ d = "num_bins" }', "{}")
    .encode(),
    "published ratio of nothing": TABLE.replace(
        'value = "success_rate"', 'value = "d"\nover = 3'
    ).encode(),
    "escapes in a name": GOOD.replace("[host]", '[host]\n"\\u001b[2J" = 2020-01-01').encode(),
    "600 kB": b"#" * 600_000,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_spec_made_by_hand_is_a_usage_error(tmp_path, name):
    refused(tmp_path, BY_HAND[name])


@pytest.mark.parametrize("name", ["x" * 5000 + ".toml", "a\x1b[2J.toml", "\x1b[2J", "x" * 5000])
def test_a_name_that_no_file_has_is_a_usage_error(tmp_path, name):
    run = here("run", name, "--out", tmp_path / "out")
    assert run.returncode == 2
    assert len(run.stderr) < 2000
    assert "\x1b" not in run.stderr


def test_a_pipe_is_no_spec(tmp_path):
    os.mkfifo(tmp_path / "s.toml")
    assert "not a plain file" in here("run", tmp_path / "s.toml").stderr


@pytest.mark.parametrize("name", spec_names())
def test_built_in_specs_pass_the_same_door(name):
    assert refuses_or_reads(lambda: door(name), size=10_000)


def test_mutated_specs(tmp_path):
    read, path, valid = Counter(), tmp_path / "s.toml", [GOOD.encode(), TABLE.encode()]
    for data in valid:
        path.write_bytes(data)
        assert refuses_or_reads(lambda: door(path), size=len(data))

    @fuzzed
    @given(number=st.integers(0, 2**48))
    def try_one(number):
        rng = random.Random(number)
        data = rng.choice(valid)
        data = (
            with_odd_lines(rng, data.decode()).encode()
            if rng.randrange(2)
            else mutated(rng, data, others=valid, words=WORDS)
        )
        path.write_bytes(data)
        read[refuses_or_reads(lambda: door(path), size=len(data))] += 1

    try_one()
    print("read", read[True], "refused", read[False])
    assert read[True]
    assert read[False]


def with_odd_lines(rng, text):
    """``text`` with values of other types, and lines doubled, missing or elsewhere."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        what = rng.randrange(5)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif what == 2:
            lines.insert(at, rng.choice(ODD))
        elif "=" in lines[at]:
            lines[at] = f"{lines[at].split('=')[0]}= {rng.choice(ODD)}"
        lines = lines or ["x = 1"]
    return "\n".join(lines)
