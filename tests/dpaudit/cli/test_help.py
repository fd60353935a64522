"""``--help`` of every command: two examples that parse, 80 columns, nothing of typer's insides."""

import re
import shlex

import pytest
import typer
from command_line import here as dpaudit

from dpaudit.audit.options import count_of
from dpaudit.cli.app import app
from dpaudit.cli.help import examples
from dpaudit.errors import UsageError

FORBIDDEN = ("<bool>", "pydantic", "Input should be", "see below", "<str>", "{sampler}", "[bold]")


def commands(command, words=()):
    """Every command and group, by the words that name it."""
    yield words, command
    context = typer.Context(command) if hasattr(typer, "Context") else None
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(context, name), (*words, name))


ALL = dict(commands(typer.main.get_command(app)))
NAMED = pytest.mark.parametrize("words", ALL, ids=" ".join)


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")


def test_every_command_is_here():
    for words in (
        ("audit",),
        ("key", "new"),
        ("serve", "noise"),
        ("verify", "transcript"),
        ("runs", "show"),
        ("deployment", "apple"),
        ("report",),
        ("list",),
        ("explain",),
    ):
        assert words in ALL


@pytest.mark.slow
@NAMED
def test_help_fits_and_shows_two_examples(narrow, words):
    shown = dpaudit(*words, "--help")
    assert shown.returncode == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert not [text for text in FORBIDDEN if text in shown.stdout]
    # as printed, unwrapped: a wrapped one could not be copied
    printed = [line.strip() for line in shown.stdout.splitlines()]
    starts = [line for line in printed if line.startswith("$ dpaudit")]
    assert len(starts) >= 2
    for example in examples(ALL[words].help):
        assert " ".join(["dpaudit", *words]) in example or not words or "serve init" in example
    for line in re.findall(r"^ *\$ dpaudit.*|^ {8,}--.*", ALL[words].help, re.M):
        assert line.strip() in printed


@NAMED
def test_the_examples_parse(words):
    root = typer.main.get_command(app)
    found = examples(ALL[words].help)
    assert len(found) >= 2
    for example in found:
        parse(root, shlex.split(example)[1:])


def parse(group, words):
    """Parse a command line to the end, without running anything."""
    context = group.make_context("dpaudit", [], resilient_parsing=True)
    command = group.get_command(context, words[0])
    assert command is not None, words
    if hasattr(command, "list_commands"):
        return parse(command, words[1:])
    if "--help" in words:
        return None
    return command.make_context(words[0], list(words[1:]))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("audit",), ["'SAMPLER'", "e.g. dpaudit audit"]),
        (("mechanism",), ["'MECHANISM'", "e.g. dpaudit mechanism"]),
        (("list",), ["'KIND'", "e.g. dpaudit list"]),
        (("audit", "x", "--alpha", "abc"), ["alpha=abc: must be a number"]),
        (("audit", "x", "--format", "xml"), ["format=xml: choose from: text, json"]),
        (("list", "nope"), ["kind=nope: choose from: sources"]),
        (("list", "souces"), ["kind=souces: ", "; did you mean 'sources'?"]),
        (("train", "cnn", "--epochs", "1.5"), ["epochs=1.5: must be a whole number"]),
        (("deployment", "apple", "--config", "x", "--days", "0"), ["days=0: must be at least 1"]),
        (("adit",), ["Did you mean 'audit'?"]),
        (("./vendor.so",), ["No such command", "\nTo audit it: dpaudit audit ./vendor.so"]),
    ],
)
def test_a_wrong_command_line_is_told_in_our_words(args, says):
    done = dpaudit(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert all(word in done.stderr for word in says), done.stderr
    assert not any(text in done.stderr for text in (*FORBIDDEN, "Value error", "Input should"))


def test_only_the_first_word_may_be_something_to_audit():
    done = dpaudit("key", "new.json")
    assert done.returncode == 2
    assert "To audit it" not in done.stderr


@pytest.mark.slow
def test_counts_with_a_unit_are_taken(tmp_path):
    few = ("audit", "numpy:normal", "--tests=moments", "--alpha=1e-9", "--dim=10")
    done = dpaudit(*few, "--samples", "2k", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "in 2,020 values" in done.stdout  # in whole rounds of calls


@pytest.mark.parametrize(
    ("given", "count"),
    [("1M", 10**6), ("1e6", 10**6), ("1_000_000", 10**6), ("200k", 200_000), ("1.5m", 1_500_000),
     (" 7 ", 7), (1e7, 10**7), (12, 12), ("1e15", 10**15)],
)  # fmt: skip
def test_a_count_as_people_write_it(given, count):
    assert count_of(given, unit="values", example="1e7") == count


@pytest.mark.parametrize(
    "given", ["1e999999999", "1.5", "nan", "inf", "1/2", "1e15k", "k", 0, 1e16, 0.5]
)
def test_what_is_no_count(given):
    with pytest.raises(UsageError, match="must be a whole number of values, written like 1e7"):
        count_of(given, unit="values", example="1e7")
