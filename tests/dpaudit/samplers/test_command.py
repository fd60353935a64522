from __future__ import annotations

import shlex
import struct
import sys
import time

import numpy as np
import pytest

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.samplers import open_sampler
from dpaudit.samplers.sandbox.policy import asking

PLAIN = "import sys, struct; n, d = map(int, sys.argv[1:3]); out = sys.stdout.buffer; "
WRITES = PLAIN + "import numpy as np; x = np.arange(n * d); "


def command(code: str, *extra: str, head: str = WRITES) -> str:
    return "command:" + shlex.join([sys.executable, "-c", head + code, "{n}", "{d}", *extra])


def draw(text, n=4, d=2, timeout=20, **options):
    with open_sampler(text, seed="1", **options) as sampler:
        return sampler.draw(n, d, timeout=timeout)


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


def test_a_big_block_arrives_whole():
    values = draw(command("out.write(x.astype('<f8').tobytes())"), 1000, 2000)
    np.testing.assert_array_equal(values, np.arange(2e6).reshape(1000, 2000))


def test_text_longer_than_one_chunk_is_joined_up():
    values = draw(command("np.savetxt(sys.stdout, x / 7, fmt='%.17g')"), 50_000, 2, text_mode=True)
    np.testing.assert_array_equal(values, np.arange(1e5).reshape(-1, 2) / 7)


def test_a_compiled_program(cc, here):
    path = cc(
        """
        #include <stdio.h>
        #include <stdlib.h>
        int main(int c, char **v) {
            long k = atol(v[1]) * atol(v[2]);
            for (long i = 0; i < k; i++) { double x = i; fwrite(&x, 8, 1, stdout); }
        }
        """,
        program=True,
    )
    (here / "sampler").symlink_to(path)
    # quotes that came through, too
    with open_sampler("command:'./sampler {n} {d}'", seed="1") as sampler:
        np.testing.assert_array_equal(sampler.draw(2, 2, timeout=20), [[0, 1], [2, 3]])
        np.testing.assert_array_equal(sampler.draw(1, 3, timeout=20), [[0, 1, 2]])


def test_each_draw_runs_the_program(here):
    text = command("open('log', 'a').write(f'{n} {d};'); out.write(x.astype('<f8').tobytes())")
    with asking("none"), open_sampler(text, seed="1") as sampler:
        sampler.draw(2, 1, timeout=20)
        sampler.draw(3, 2, timeout=20)
    assert (here / "log").read_text() == "2 1;3 2;"


@pytest.mark.parametrize(
    ("code", "options", "match"),
    [
        ("out.write(bytes(8 * 7))", {}, r"gave 7 values .* wanted exactly n\*d=8"),
        ("out.write(bytes(8 * 4 + 3))", {}, r"gave 4 values \(35 bytes, wanted 64\)"),
        ("pass", {}, "gave 0 values"),
        ("out.write(bytes(8 * 8 + 1))", {}, r"at least 8 values and 1 byte, wanted exactly n\*d=8"),
        ("out.write(bytes(32))", {}, "gave 4 values.*dtype"),
        ("out.write(bytes(64))", {"dtype": "f32"}, "at least 8 values"),
        ("print(*range(7))", {"text_mode": True}, "gave 7 values, wanted exactly"),
        ("print(*range(9))", {"text_mode": True}, "at least 9 values"),
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
        ("import os; os.kill(os.getpid(), 9)", "signal SIGKILL"),
    ],
)
def test_a_bad_end_is_a_crash(code, match):
    with pytest.raises(SamplerCrashError, match=match) as caught:
        draw(command(code, head=PLAIN))
    assert "(call n=4, d=2)" in str(caught.value)


SLEEP = "import time; time.sleep(1000)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        SLEEP,
        f"import subprocess; subprocess.run([sys.executable, '-c', {SLEEP!r}, *sys.argv])",
        f"out.write(bytes(64)); out.flush(); import os; os.close(1); {SLEEP}",
        f"out.write(bytes(63)); out.flush(); {SLEEP}",
        "\nwhile True: sys.stderr.write('x' * 10000)",
    ],
)
def test_silence_ends_in_time_and_leaves_nothing(code, marker, ends_in_time):
    text = command(code, marker, head="import sys; out = sys.stdout.buffer; ")
    ends_in_time(text, marker)


def test_endless_white_space_ends_in_time():
    start = time.monotonic()
    with pytest.raises(SamplerTimeoutError):
        draw("command:yes ''", timeout=0.3, text_mode=True)
    assert time.monotonic() - start < 15


def test_a_child_left_behind_is_killed_and_not_waited_for(marker, alive):
    child = f"[sys.executable, '-c', {SLEEP!r}, *sys.argv]"
    code = f"import subprocess; subprocess.Popen({child}); out.write(bytes(64))"
    assert draw(command(code, marker, head=PLAIN), timeout=60).shape == (4, 2)
    assert not alive(marker)


def test_no_shell_runs():
    values = draw(
        command(
            "assert sys.argv[3] == '$HOME;{x}'; out.write(struct.pack('<d', 3))".replace(
                "out", "import struct; out", 1
            ),
            "$HOME;{x}",
        ),
        1,
        1,
    )
    assert values == struct.unpack("<d", struct.pack("<d", 3))[0]


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


def test_standard_input_is_empty():
    assert draw(
        command("assert sys.stdin.read() == ''; out.write(bytes(64))", head=PLAIN)
    ).shape == (4, 2)
