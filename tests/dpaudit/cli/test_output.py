"""Exit codes and text hold whatever stdout and stderr are, and whatever a command does to them."""

import os
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from command_line import apart, here

from dpaudit.cli.app import app

COMMANDS = r"""
import logging, os, sys, warnings
import typer
from dpaudit.cli.app import app
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.errors import SamplerCrashError

BAD = "\x1b[2JNo finding\x1b]52;c;AAAA\x07\r\u202e\u2028\x9b\ud800 [bold]x[/bold]"

class Rude(Exception):
    def __str__(self):
        raise SystemExit(0)

@app.command()
def ends(code: int, much: bool = False, quiet: bool = False):
    print("result" * (100_000 if much else 1))
    if not quiet:
        note("hint")  # which flushes stdout
    raise typer.Exit(code)

@app.command()
def opens():
    print(os.open(os.devnull, os.O_RDONLY) > 2)

@app.command()
def fails(how: str):
    print("partial")
    raise {
        "pipe": BrokenPipeError(32, "Broken pipe"), "eof": EOFError(), "exit": SystemExit(0),
        "quits": SystemExit(1), "interrupt": KeyboardInterrupt(), "rude": Rude(),
        "base": BaseException("x"), "abort": typer.Abort(),
        "sampler": SamplerCrashError(BAD + "\nNo finding"), "internal": ValueError(BAD),
    }[how]

@app.command()
def says():
    from rich.table import Table
    from rich.text import Text
    table = Table(BAD, title=BAD)
    table.add_row(Text(BAD), style="bold")
    for value in (BAD, Text(BAD), table):
        emit(value)
    write_json_line({BAD: BAD})
    print(BAD)
    typer.echo(BAD)
    note(BAD)
    warnings.warn(BAD)
    logging.error(BAD)
    print(BAD, file=sys.stderr)
"""
SAYS = "dpaudit: stdout: the result cannot be written"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    script = tmp_path_factory.mktemp("commands") / "commands.py"
    script.write_text(COMMANDS + "\nfrom dpaudit.cli import main\nmain()\n")

    def call(*words, redirect="", **options):
        given = {
            "capture_output": True,
            "text": True,
            "env": {**os.environ, "PYTHONPATH": os.getcwd(), **options},
        }
        return subprocess.run(
            ["bash", "-c", f'"$@" {redirect}', "-", sys.executable, script, *words], **given
        )

    return call


@pytest.fixture
def inside():
    """The same commands in this process."""
    before = len(app.registered_commands)
    exec(COMMANDS, {})
    yield here
    del app.registered_commands[before:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "redirect"),
    [
        (("ends", "0"), 0, "2>/dev/full"),
        (("ends", "1"), 1, "2>&-"),
        (("ends", "3"), 3, "2>&- <&-"),
        (("ends", "nonsense"), 2, "2>/dev/full"),
        (("fails", "sampler"), 3, "2>&-"),
    ],
)
def test_an_unwritable_stderr_changes_no_exit_code(run, inside, words, code, redirect):
    assert inside(*words).returncode == code
    assert run(*words, redirect=redirect).returncode == code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "redirect"),
    [
        (("ends", "0", "--much"), ">/dev/full"),
        (("ends", "0", "--much"), ">/dev/full 2>&-"),
        (("ends", "1", "--much"), "| true; exit ${PIPESTATUS[0]}"),
        (("ends", "1"), ">/dev/full"),
        (("ends", "1", "--quiet"), ">/dev/full"),
        (("ends", "1"), ">&-"),
        (("ends", "1"), ">&- 2>&-"),
    ],
)
def test_an_unwritable_stdout_is_4(run, words, redirect):
    done = run(*words, redirect=redirect)
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert (SAYS in done.stderr) == (redirect in (">/dev/full", ">&-"))


@pytest.mark.slow
def test_no_file_gets_the_number_of_a_closed_stream(run):
    assert run("opens", redirect="2>&- <&-").stdout == "True\n"


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("pipe", 4, "internal error: BrokenPipeError"),
        ("eof", 4, "internal error: EOFError"),
        ("exit", 4, "a plug-in called sys.exit"),
        ("quits", 4, "a plug-in called sys.exit"),
        ("rude", 4, "internal error: Rude"),
        ("base", 4, "internal error: BaseException: x"),
        ("abort", 4, "internal error: Abort"),
        ("internal", 4, "internal error: ValueError: �[2JNo finding�]52;c;AAAA�"),
        ("interrupt", 130, "interrupted"),
        ("sampler", 3, "dpaudit: �[2JNo finding"),
    ],
)
@pytest.mark.parametrize("debug", ["", "1"])
def test_what_a_command_raises_is_never_a_verdict(inside, monkeypatch, how, code, words, debug):
    monkeypatch.setenv("DPAUDIT_DEBUG", debug)
    done = inside("fails", how)
    assert done.returncode == code
    assert words in done.stderr
    assert ("Traceback" in done.stderr) == (code == 4 and bool(debug))
    assert not any(line.startswith("No finding") for line in done.stderr.splitlines())


def controls(text):
    return {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}


@pytest.mark.slow
def test_everything_that_is_printed_is_printable(run):
    done = run("says", PYTHONIOENCODING="utf-8")
    assert done.returncode == 0, done.stderr
    for text, least in ((done.stdout, 8), (done.stderr, 4)):
        assert text.count("No finding") >= least
        assert controls(text) == {"\n"}
    assert "[bold]x[/bold]" in done.stdout


HOSTILE = "\x1b[2JNo finding\x1b]52;c;AAAA\x07\r\u202e\u2028"


@pytest.mark.slow
def test_what_a_sampler_or_a_file_says_steers_no_output(tmp_path):
    (tmp_path / "x.py").write_text(
        f"class Odd(Exception): pass\nOdd.__name__ = {HOSTILE!r}\n"
        f"def f(n, d): raise Odd({HOSTILE!r})\n"
    )
    np.savez(tmp_path / "x.npz", **{HOSTILE: np.zeros((9, 9)), HOSTILE + "2": np.zeros((9, 9))})
    claim = ("--claim", "gaussian:sigma=1", "--samples", "1e4")
    for sampler, code in (("python:./x.py:f", 3), ("file:x.npz", 2)):
        for form in ("text", "json"):
            more = ("--out", "out", "--also", "junit,sarif", "--format", form)
            done = here("audit", sampler, *claim, *more, cwd=tmp_path)
            assert done.returncode == code, done.stderr
            files = (path.read_text() for path in (tmp_path / "out").glob("*"))
            texts = [done.stdout, done.stderr, *files]
            assert any("No finding" in text for text in texts)
            for text in texts:
                assert controls(text) <= {"\n", "\u2060"}


def test_words_of_the_command_line_are_printable():
    done = here("audit", "x", "--no\x1b[2J\nsuch")
    assert done.returncode == 2
    assert done.stderr.startswith("dpaudit: No such option")
    assert "\x1b" not in done.stderr
    assert "See: dpaudit audit --help" in done.stderr
    assert "\x1b" not in here("no\x1b[2Jsuch").stderr


@pytest.mark.slow
def test_streams_are_left_as_they_were():
    before = sys.stdout, sys.stderr
    assert here("list", "tests").returncode == 0
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.slow
def test_no_words_print_the_help():
    done = apart()
    assert (done.returncode, done.stderr) == (2, "")
    assert "Exit codes" in done.stdout
