"""Hostile result documents: ``result.json`` in a folder of which somebody wants the page."""

from __future__ import annotations

import json
import os
import random
from collections import Counter

import pytest
from command_line import here
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutated
from hostile.mutated_values import deep, with_odd_fields
from hypothesis import given
from hypothesis import strategies as st
from support import documents

from dpaudit.cli.formats import read_report
from dpaudit.report import document_of
from dpaudit.types import to_dict

FORMATS = ("junit", "sarif", "markdown")


@pytest.fixture(scope="module")
def valid():
    made = (documents.audit("finding"), documents.audit("no-finding"), documents.experiment())
    return [json.dumps(to_dict(document_of(document)), indent=2).encode() for document in made]


BY_HAND = {
    "nested": b"[" * 100_000,
    "nested deep": b'{"kind": "audit", "result": ' + json.dumps(deep(200)).encode() + b"}",
    "no object": b"3",
    "no result": b'{"kind": "audit"}',
    "Infinity": b'{"kind": "audit", "result": Infinity}',
    "digits": b'{"kind": "audit", "result": {"alpha": 1' + b"0" * 4000 + b"}}",
    "not UTF-8": b"\xff\xfe",
    "values": b'{"kind": "audit", "result": {"a": [' + b"[]," * 400_000 + b"[]]}}",
    "kind is a list": b'{"kind": []}',
    "schema is an object": b'{"schema": {}, "kind": "audit"}',
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_document_made_by_hand_is_a_usage_error(tmp_path, name):
    (tmp_path / "result.json").write_bytes(BY_HAND[name])
    size = len(BY_HAND[name])
    assert not refuses_or_reads(lambda: read_report(tmp_path / "result.json", FORMATS), size=size)
    done = here("report", tmp_path, "--also", "junit,sarif,markdown")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_a_folder_a_pipe_and_a_file_are_no_folder_of_results(tmp_path):
    (tmp_path / "a" / "result.json").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "result.json")
    (tmp_path / "c").touch()
    for name in ("a", "b", "c", "no such", "\x1b[2J"):
        shown = here("report", tmp_path / name)
        assert shown.returncode == 2, name
        assert "\x1b" not in shown.stderr


def test_mutated_documents(valid, tmp_path):
    read, path = Counter(), tmp_path / "result.json"
    for data in valid:
        path.write_bytes(data)
        read_report(path, FORMATS)  # figures load their libraries before memory is limited
        assert refuses_or_reads(lambda: read_report(path, FORMATS), size=len(data))

    @fuzzed
    @given(number=st.integers(0, 2**48))
    def try_one(number):
        rng = random.Random(number)
        data = rng.choice(valid)
        if rng.randrange(4):
            data = json.dumps(with_odd_fields(rng, json.loads(data))).encode()
        else:
            data = mutated(rng, data, others=valid, words=(b"[", b"NaN", b"\\ud800", b"null"))
        path.write_bytes(data)
        read[refuses_or_reads(lambda: read_report(path, FORMATS), size=len(data))] += 1

    try_one()
    print("read", read[True], "refused", read[False])
    assert read[True]
    assert read[False]
