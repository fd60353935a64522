"""Hostile key files."""

from __future__ import annotations

import json
import os
import random
from collections import Counter

import pytest
from command_line import here
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutated
from hostile.mutated_values import with_odd_fields
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.noise.key import PancakeKey

KEY = {
    "format": "dpaudit-pancake-key",
    "version": 1,
    "warning": "w",
    "dim": 64,
    "beta": 1e-3,
    "gamma": 16.0,
    "directions": 1,
    "secret": "ab" * 32,
}
BIG = "1" + "0" * 400


def written(path, data):
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        json.dumps(KEY).replace("64", BIG),
        json.dumps(KEY).replace("0.001", BIG),
        json.dumps(KEY).replace("16.0", BIG),
        json.dumps(KEY).replace("16.0", "Infinity"),
        json.dumps(KEY).replace("16.0", "1e999"),
        json.dumps(KEY).replace("0.001", "NaN"),
        json.dumps({**KEY, "\ud800\x1b[2J": 1}),
        json.dumps({**KEY, "dim": 10**13}),
        json.dumps({**KEY, "directions": 10**30}),
        "\x00" * 100_000,
        "",
    ],
    ids=range(12),
)
def test_a_key_file_made_by_hand_is_a_usage_error(tmp_path, text):
    path = written(tmp_path / "key.json", text.encode())
    assert not refuses_or_reads(lambda: PancakeKey.load(path), size=len(text))
    shown = here("key", "show", path)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "internal" not in shown.stderr


def test_a_folder_and_a_pipe_are_no_key_files(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("pipe", "folder"):
        shown = here("key", "show", tmp_path / name)
        assert shown.returncode == 2
        assert "not a plain file" in shown.stderr


@pytest.mark.parametrize(
    "options",
    [
        {"--dim": BIG},
        {"--dim": "1" + "0" * 5000},
        {"--beta": BIG},
        {"--beta": "nan"},
        {"--gamma": BIG},
        {"--gamma": "inf"},
        {"--gamma": "infd"},
        {"--gamma": "\x1b[2J"},
        {"--directions": BIG},
    ],
    ids=range(9),
)
def test_numbers_that_make_no_key(tmp_path, options):
    words = [str(w) for pair in {"--dim": 64, "--beta": 1e-3, **options}.items() for w in pair]
    made = here("key", "new", *words, "--out", tmp_path / "key.json")
    assert made.returncode == 2
    assert len(made.stderr) < 2000
    assert not (tmp_path / "key.json").exists()


def test_mutated_key_files(tmp_path):
    read, path, valid = Counter(), tmp_path / "key.json", json.dumps(KEY, indent=2).encode()
    assert PancakeKey.load(written(path, valid)).dim == 64

    @fuzzed
    @given(number=st.integers(0, 2**48))
    def try_one(number):
        rng = random.Random(number)
        if rng.randrange(2):
            data = json.dumps(with_odd_fields(rng, KEY)).encode()
        else:
            data = mutated(rng, valid, words=(b"[", b'{"a":', b"NaN", b"\\ud800", b"\xff"))
        written(path, data)
        read[refuses_or_reads(lambda: PancakeKey.load(path), size=len(data))] += 1

    try_one()
    print("read", read[True], "refused", read[False])
    assert read[True]
    assert read[False]
