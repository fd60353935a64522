"""Programs as samplers of noise, and as whole mechanisms."""

from __future__ import annotations

import shlex
import sys
import time

import numpy as np
import pytest
from support.draws import draw, release

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.protocols import Dataset, Request, Session
from dpaudit.targets import open_sampler
from dpaudit.targets.endpoints.command import CommandTarget
from dpaudit.targets.resolve import open_mechanism
from dpaudit.targets.sandbox.policy import sandbox_policy

PLAIN = "import sys, struct; n, d = map(int, sys.argv[1:3]); out = sys.stdout.buffer; "
WRITES = PLAIN + "import numpy as np; x = np.arange(n * d); assert sys.stdin.read() == ''; "


def command(code: str, *extra: str, head: str = WRITES) -> str:
    return "command:" + shlex.join([sys.executable, "-c", head + code, "{n}", "{d}", *extra])


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("out.write(x.astype('<f8').tobytes())", {}),
        ("out.write(x.astype('<f4').tobytes())", {"dtype": "f32"}),
        ("print(*x, sep='\\n')", {"text_mode": True}),
        ("print(*x, end='')", {"text_mode": True}),
    ],
)
def test_values_arrive_in_order(code, options):
    np.testing.assert_array_equal(
        draw(command(code), 5, 3, **options), np.arange(15.0).reshape(5, 3)
    )


@pytest.mark.slow
def test_a_big_block_arrives_whole():
    values = draw(command("out.write(x.astype('<f8').tobytes())"), 1000, 2000)
    np.testing.assert_array_equal(values, np.arange(2e6).reshape(1000, 2000))


@pytest.mark.slow
def test_text_longer_than_one_chunk_is_joined_up():
    values = draw(command("np.savetxt(sys.stdout, x / 7, fmt='%.17g')"), 50_000, 2, text_mode=True)
    np.testing.assert_array_equal(values, np.arange(1e5).reshape(-1, 2) / 7)


@pytest.mark.slow
def test_a_program_beside_us_in_quotes(here):
    (here / "sampler").write_text(
        f"#!{sys.executable}\n{WRITES}out.write(x.astype('<f8').tobytes())"
    )
    (here / "sampler").chmod(0o755)
    np.testing.assert_array_equal(draw("command:'./sampler {n} {d}'", 1, 3), [[0, 1, 2]])


@pytest.mark.slow
def test_each_draw_runs_the_program(here):
    text = command("open('log', 'a').write(f'{n} {d};'); out.write(x.astype('<f8').tobytes())")
    with sandbox_policy("none"), open_sampler(text, seed="1").open(timeout=60) as sampler:
        sampler.ask(Request(2, 1), timeout=20)
        sampler.ask(Request(3, 2), timeout=20)
    assert (here / "log").read_text() == "2 1;3 2;"


@pytest.mark.parametrize(
    ("code", "options", "match"),
    [
        ("out.write(bytes(8 * 7))", {}, r"gave 7 values .* wanted exactly n\*d=8"),
        ("out.write(bytes(8 * 4 + 3))", {}, r"gave 4 values \(35 bytes, wanted 64\)"),
        ("out.write(bytes(8 * 8 + 1))", {}, r"at least 8 values and 1 byte, wanted exactly n\*d=8"),
        ("out.write(bytes(64))", {"dtype": "f32"}, "at least 8 values"),
        ("print(*range(7))", {"text_mode": True}, "gave 7 values, wanted exactly"),
        ("print('1,2\\n' * 4)", {"text_mode": True}, "'1,2', which is not a number"),
        ("out.write(b'1' * 1000000)", {"text_mode": True}, "not a number"),
        (
            "out.write(struct.pack('<8d', 0, 1, 2, float('nan'), 4, 5, 6, float('inf')))",
            {},
            r"2 of 8 .* \[1, 1\]=nan",
        ),
        ("print('1 2 3 inf 5 6 7 8')", {"text_mode": True}, r"1 of 8 .* \[1, 1\]=inf"),
    ],
)
def test_wrong_output_says_what_was_wanted(code, options, match):
    with pytest.raises(SamplerOutputError, match=match):
        draw(command(code, head=PLAIN), **options)


@pytest.mark.parametrize("options", [{}, {"text_mode": True}])
def test_a_flood_is_stopped_at_once(options, marker, alive):
    text = command("\nwhile True: out.write(b'1.5 \\n' * 20000)", marker, head=PLAIN)
    start = time.monotonic()
    with pytest.raises(SamplerOutputError, match="at least"):
        draw(text, timeout=20, **options)
    assert time.monotonic() - start < 15
    assert not alive(marker)


@pytest.mark.parametrize(
    ("code", "match"),
    [
        (
            "sys.exit('no licence found')",
            r"gave 0 values .*exit status 1; stderr ends with 'no licence found'",
        ),
        ("out.write(bytes(64)); out.flush(); sys.exit(7)", "exit status 7"),
        ("import os; os.kill(os.getpid(), 11)", "signal SIGSEGV"),
    ],
)
def test_a_bad_end_is_a_crash(code, match):
    with pytest.raises(SamplerCrashError, match=match) as caught:
        draw(command(code, head=PLAIN))
    assert "(call n=4, d=2)" in str(caught.value)


def test_endless_white_space_ends_in_time():
    start = time.monotonic()
    with pytest.raises(SamplerTimeoutError):
        draw("command:yes ''", timeout=0.3, text_mode=True)
    assert time.monotonic() - start < 15


def test_a_child_left_behind_is_killed_and_not_waited_for(marker, alive):
    child = "[sys.executable, '-c', 'import time; time.sleep(1000)', *sys.argv]"
    code = f"import subprocess; subprocess.Popen({child}); out.write(bytes(64))"
    assert draw(command(code, marker, head=PLAIN), timeout=60).shape == (4, 2)
    assert not alive(marker)


def test_no_shell_runs():
    code = "assert sys.argv[3] == '$HOME;{x}'; out.write(struct.pack('<d', 3))"
    assert draw(command(code, "$HOME;{x}", head=PLAIN), 1, 1) == 3


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        ("command:./no-such-program {n}", {}, "no such program"),
        ("command:./plain {n}", {}, "not executable"),
        ("command:'./x", {}, "quotes"),
        ("command:true", {"dtype": "f16"}, "dtype=f16"),
        ("command:true", {"dtype": "f32", "text_mode": True}, "dtype=f32"),
    ],
)
def test_slips_are_found_at_once(text, options, match, here):
    (here / "plain").write_text("hello")
    with pytest.raises(UsageError, match=match):
        open_sampler(text, seed="1", **options)


def test_a_program_for_another_machine_is_named(here):
    (here / "odd").write_bytes(b"\x7fELF nonsense")
    (here / "odd").chmod(0o755)
    with pytest.raises(SamplerCrashError, match=r"cannot start ./odd: Exec format error"):
        draw("command:./odd {n} {d}")


# ---------------------------------------------------------------- mechanisms

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


def test_every_bit_of_the_value_arrives_and_comes_back(script):
    with open_mechanism(script(ECHO), seed="1").open(timeout=60) as mechanism:
        assert isinstance(mechanism, Session)
        assert "releases in calls" not in mechanism.facts.accepts
        assert (mechanism.facts.version, mechanism.facts.advice) == (None, "")
        released = mechanism.ask(Request(3, input=ODD), timeout=30).values
    assert released.shape == (3, len(ODD))
    assert released.tobytes() == ODD.tobytes() * 3


@pytest.mark.slow
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
    ],
)
def test_programs_that_answer_something_else(body, kind, match, script):
    with pytest.raises(kind, match=match):
        release(script(f"import os, struct, sys\nout = sys.stdout.buffer\n{body}"))


@pytest.mark.slow
def test_a_program_that_writes_nothing_or_without_end_is_stopped(
    script, monkeypatch, alive, marker
):
    text = script("import time; time.sleep(1000)", f"{{value}} {{n}} {marker}")
    with pytest.raises(SamplerTimeoutError, match=r"timeout=0.5 s \(release n=3\)"):
        release(text, timeout=0.5)
    assert not alive(marker)
    monkeypatch.setattr("dpaudit.targets.endpoints.command.MOST", 1 << 18)
    with pytest.raises(SamplerOutputError, match="more than 262144 numbers"):
        release(script("import sys\nwhile True: sys.stdout.buffer.write(bytes(1 << 20))"))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("command:true {n}", r"must be told the value; write \{value\}"),
        ("command:true {value}", r"must be told how many releases are wanted; write \{n\}"),
    ],
)
def test_commands_that_are_no_mechanism(text, match, here):
    with pytest.raises(UsageError, match=match):
        open_mechanism(text, seed="1")


@pytest.mark.slow
def test_a_data_set_is_a_file_of_records():
    pd = pytest.importorskip("pandas")
    program = "import json,sys; print(json.dumps([sys.argv[1][-4:], open(sys.argv[1]).read()]))"
    with CommandTarget(f"{sys.executable} -c '{program}' {{dataset}}", role="datasets").open(
        timeout=60
    ) as mechanism:
        for dataset, written in (
            (pd.DataFrame({"a": [1], "b": ["x"]}), [".csv", "a,b\n1,x\n"]),
            ([], [".csv", "a,b\n"]),
            ([{"a": [1, None]}], ["json", '[{"a": [1, null]}]']),
            ({"a": np.eye(1)}, ["json", '{"a": [[1.0]]}']),
        ):
            assert mechanism.ask(Request(1, input=Dataset(dataset)), timeout=60).values == [written]
