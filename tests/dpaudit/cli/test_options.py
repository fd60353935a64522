"""Classes of options on the command line: types, defaults, what is required, and repetition."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import pytest
from typer.testing import CliRunner

from dpaudit.cli.help import App
from dpaudit.cli.options import with_shared_options
from dpaudit.errors import UsageError
from dpaudit.options import Option, command_of, count_of
from dpaudit_prove.command import Question

APP = App(add_completion=False)
GIVEN = []
count = partial(count_of, unit="values", example="1k")


@dataclass(frozen=True, kw_only=True)
class Sums:
    folder: Annotated[Path, Option("Where.")]
    parts: Annotated[list[Path] | None, Option("A part; repeatable.", "FILE")] = None
    law: Annotated[Literal["gaussian", "laplace"] | None, Option("Which.", default="any")] = None
    limit: Annotated[float, Option("Seconds.", flag="--seconds")] = 1.5
    hidden: int = 7

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise UsageError(f"seconds={self.limit}: must be at least 0")


@APP.command()
@with_shared_options
def add(
    sums: Sums,
    samples: Annotated[int, Option("How many.", "N", default="1k", read=count)] = 1000,
) -> None:
    """Add them up."""
    GIVEN.append((sums, samples))


def run(*words):
    GIVEN.clear()
    return CliRunner().invoke(APP, words)


def test_a_class_of_options_is_filled_and_the_rest_has_its_defaults():
    assert run("--folder", "x", "--parts", "a", "--parts", "b", "--samples", "2k").exit_code == 0
    assert [(Sums(folder=Path("x"), parts=[Path("a"), Path("b")]), 2000)] == GIVEN
    assert run("--folder", "x", "--seconds", "3", "--law", "laplace").exit_code == 0
    ((sums, samples),) = GIVEN
    assert (sums.limit, sums.law, sums.hidden, samples) == (3.0, "laplace", 7, 1000)
    assert not sums.parts


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--folder"),
        (("--folder", "x", "--law", "cauchy"), "--law"),
        (("--folder", "x", "--limit", "1"), "--limit"),
        (("--folder", "x", "--hidden", "1"), "--hidden"),
    ],
)
def test_what_does_not_fit_is_a_usage_error(words, says):
    done = run(*words)
    assert done.exit_code == 2
    assert says in done.output
    assert GIVEN == []


def test_the_rules_of_a_class_hold_on_the_command_line():
    done = run("--folder", "x", "--seconds", "-1")
    assert isinstance(done.exception, UsageError)


def test_help_says_what_is_required_and_what_is_the_default():
    text = " ".join(run("--help").output.split())
    for words in (
        "[required]",
        "[default: (any)]",
        "[default: 1.5]",
        "[default: 1k]",
        "--parts FILE",
    ):
        assert words in text
    assert "hidden" not in text


def test_a_question_is_repeated_as_it_was_written():
    question = Question(claim="bernoulli:p=1/2", coins="rng", residual="2^-20", disjoint=True)
    assert command_of("prove", "python:m:f", question) == (
        "dpaudit prove python:m:f --claim bernoulli:p=1/2 --coins rng --disjoint --residual '2^-20'"
    )
    assert command_of("prove", "python:m:f", Question()) == "dpaudit prove python:m:f"
