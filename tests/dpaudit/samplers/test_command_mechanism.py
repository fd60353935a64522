"""A program as a whole mechanism."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.interfaces import Mechanism, TimedMechanism
from dpaudit.samplers.endpoints.dataset_command import DatasetCommand
from dpaudit.samplers.resolve import open_mechanism

ECHO = """
import struct, sys
value = [float(x) for x in sys.argv[1].removeprefix("--value=").split(",")]
n = int(sys.argv[2])
sys.stdout.buffer.write(struct.pack(f"<{len(value) * n}d", *(value * n)))
"""
ODD = np.array(
    [-0.0, 5e-324, -2.2250738585072014e-308, 0.1, 1 / 3, 2.0**53 + 2, -1.7976931348623157e308]
)


@pytest.fixture
def script(here):
    """``script(code)`` → the text that names it as a mechanism."""

    def write(code: str, arguments: str = "--value={value} {n}") -> str:
        (here / "mechanism.py").write_text(code)
        return f"command:{sys.executable} mechanism.py {arguments}"

    return write


def release(text, value=(1.0,), n=3, timeout=30.0):
    with open_mechanism(text, seed="1") as mechanism:
        return mechanism.release(np.array(value), n, timeout=timeout)


def test_every_bit_of_the_value_arrives_and_comes_back(script):
    with open_mechanism(script(ECHO), seed="1") as mechanism:
        assert isinstance(mechanism, Mechanism)
        assert not isinstance(mechanism, TimedMechanism)
        assert (mechanism.version, mechanism.advice) == (None, "")
        released = mechanism.release(ODD, 3, timeout=30)
    assert released.shape == (3, len(ODD))
    assert released.tobytes() == ODD.tobytes() * 3


def test_the_longest_value(script):
    value = np.random.default_rng(5).standard_normal(4096) * 1e-300
    assert release(script(ECHO), value, 1).tobytes() == value.tobytes()


def test_a_negative_value_is_no_option_when_it_is_joined_to_one(script):
    parsed = """
        import argparse, struct, sys
        p = argparse.ArgumentParser(); p.add_argument("--value"); p.add_argument("n", type=int)
        a = p.parse_args()
        sys.stdout.buffer.write(struct.pack("<d", float(a.value.split(",")[1])) * a.n)
    """
    code = "\n".join(line.strip() for line in parsed.splitlines())
    np.testing.assert_array_equal(release(script(code), [-1.5, -2.0]), [[-2.0]] * 3)
    with pytest.raises(
        SamplerCrashError, match=r"exit status 2; stderr ends with .*expected one argument"
    ):
        release(script(code, "--value {value} {n}"), [-1.5, -2.0])


@pytest.mark.parametrize(
    ("body", "kind", "match"),
    [
        (
            "out.write(b'1234567')",
            SamplerOutputError,
            r"wrote 7 bytes, .* per release \(release n=3\); write n rows",
        ),
        (
            "out.write(struct.pack('<4d', 1, 2, 3, 4))",
            SamplerOutputError,
            r"wrote 32 bytes, 1\.33333 numbers per release",
        ),
        ("pass", SamplerOutputError, "wrote 0 bytes"),
        (
            "out.write(struct.pack('<3d', 1, float('nan'), 3))",
            SamplerOutputError,
            r"1 of 3 .* \[1, 0\]=nan",
        ),
        (
            "sys.exit('no negative counts')",
            SamplerCrashError,
            "exit status 1; stderr ends with 'no negative counts'",
        ),
        ("os.kill(os.getpid(), 11)", SamplerCrashError, "SIGSEGV"),
    ],
)
def test_programs_that_answer_something_else(body, kind, match, script):
    with pytest.raises(kind, match=match):
        release(script(f"import os, struct, sys\nout = sys.stdout.buffer\n{body}"))


def test_a_hanging_program_ends_at_the_time_limit(script, marker, alive):
    text = script(
        f"import time\nmarker = {marker!r}\ntime.sleep(1000)", f"{{value}} {{n}} {marker}"
    )
    start = time.monotonic()
    with pytest.raises(SamplerTimeoutError, match=r"timeout=0.5 s \(release n=3\)"):
        release(text, timeout=0.5)
    assert time.monotonic() - start < 15
    assert not alive(marker)


def test_a_program_that_writes_without_end_is_stopped(script, monkeypatch):
    monkeypatch.setattr("dpaudit.samplers.endpoints.command_mechanism.MOST", 1 << 18)
    with pytest.raises(SamplerOutputError, match="more than 262144 numbers"):
        release(script("import sys\nwhile True: sys.stdout.buffer.write(bytes(1 << 20))"))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("command:true {n}", r"must be told the value; write \{value\}"),
        ("command:true {value}", r"must be told how many releases are wanted; write \{n\}"),
        ("command:./not_there {value} {n}", "no such program"),
        ("command:'true {value}", "cannot be split"),
        ("command:", "no such program"),
    ],
)
def test_commands_that_are_no_mechanism(text, match, here):
    with pytest.raises(UsageError, match=match):
        open_mechanism(text, seed="1")


def test_outside_with_nothing_is_released(script):
    with pytest.raises(UsageError, match="not open"):
        open_mechanism(script(ECHO), seed="1").release(np.ones(1), 1, timeout=5)
    with pytest.raises(UsageError, match="value=nan"):
        release(script(ECHO), [np.nan])


def test_a_data_set_is_a_file_of_records():
    pd = pytest.importorskip("pandas")
    program = "import json,sys; print(json.dumps([sys.argv[1][-4:], open(sys.argv[1]).read()]))"
    with DatasetCommand(f"{sys.executable} -c '{program}' {{dataset}}") as mechanism:
        for dataset, written in (
            (pd.DataFrame({"a": [1], "b": ["x"]}), [".csv", "a,b\n1,x\n"]),
            ([], [".csv", "a,b\n"]),
            ([{"a": [1, None]}], ["json", '[{"a": [1, null]}]']),
            ({"a": np.eye(1)}, ["json", '{"a": [[1.0]]}']),
        ):
            assert mechanism.release_any(dataset, 1, timeout=60) == [written]
