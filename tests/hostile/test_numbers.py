"""Odd numbers and names on the command line: references, claims, neighbours, ε, sizes."""

from __future__ import annotations

import contextlib
import random
from collections import Counter

import pytest
from command_line import here
from hostile.fuzzing import fuzzed, refuses_or_reads
from hypothesis import given
from hypothesis import strategies as st

from dpaudit import registry
from dpaudit.audit.epsilon.run import parse_neighbours
from dpaudit.claims import FAMILIES, Claim
from dpaudit.errors import UsageError
from dpaudit.noise.key import parse_gamma
from dpaudit.types import Reference

NUMBERS = (
    "0", "1", "-1", "1e-3", "1e-320", "1e308", "1e309", "1" + "0" * 400, "1" + "0" * 5000, "0x10",
    "1_000", "٣", "²", "nan", "inf", "-inf", "true", "", " ", "a", "1/2", "1,5", "\x1b[2J",
    "\u202e", "\0", "😀", "9" * 308, "=", ":", ";",
)  # fmt: skip
NAMES = (
    "gaussian", "laplace", "discrete-gaussian", "discrete-laplace", "pancake", "numpy", "",
    "x" * 9000, "\x1b]0;a\x07",
)  # fmt: skip
OPTIONS = ("sigma", "scale", "key", "bound", "epsilon", "sensitivity", "dim", "", "\x1b", "σ")


def text_of(rng):
    """A reference, mostly well formed."""
    options = ",".join(
        rng.choice(
            (
                f"{rng.choice(OPTIONS)}={rng.choice(NUMBERS)}",
                rng.choice(NUMBERS),
                rng.choice(OPTIONS),
            )
        )
        if rng.randrange(3) == 0
        else f"{rng.choice(OPTIONS[:6])}={rng.choice(NUMBERS)}"
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))
    )
    return f"{rng.choice(NAMES[:6] if rng.randrange(4) else NAMES)}:{options}"


def claim_of(rng):
    family = rng.choice(tuple(FAMILIES))
    return (
        f"{family}:{FAMILIES[family]}={rng.choice(NUMBERS)}" if rng.randrange(2) else text_of(rng)
    )


def neighbours_of(rng):
    # messages quote the user's own words; the terminal's door cleans them
    numbers = [n for n in NUMBERS if n.isprintable()]
    side = [
        ",".join(rng.choice(numbers) for _ in range(rng.choice((1, 1, 2, 3)))) for _ in range(2)
    ]
    return rng.choice((";", ",", ";", "")).join(side)


def attack_of(rng):
    option, value = rng.choice(("size", "lower", "upper", "kind", *OPTIONS)), rng.choice(NUMBERS)
    return f"sensitivity:{option}={value}" if rng.randrange(4) else "sensitivity"


DOORS = {
    "reference": (text_of, Reference.parse),
    "claim": (claim_of, Claim.parse),
    "source": (text_of, lambda text: registry.create("sources", text)),
    "attack": (attack_of, lambda text: registry.create("attacks", text)),
    "neighbours": (neighbours_of, parse_neighbours),
    "gamma": (
        lambda rng: rng.choice(NUMBERS) + rng.choice(("", "d", "sqrtd")),
        lambda text: parse_gamma(text, dim=64),
    ),
}


@pytest.mark.parametrize("name", DOORS)
def test_made_up_texts(name):
    make, door = DOORS[name]
    # imports, before memory is limited
    for text in ("gaussian:sigma=1", "sensitivity", "0,1", "2"):
        with contextlib.suppress(UsageError):
            door(text)
    read = Counter()

    @fuzzed
    @given(number=st.integers(0, 2**48))
    def try_one(number):
        text = make(random.Random(number))
        read[refuses_or_reads(lambda: door(text), size=len(text))] += 1

    try_one()
    print(name, "read", read[True], "refused", read[False])
    assert read[False]
    assert read[True] or fuzzed.max_examples < 100  # few made-up texts are right


def test_a_factory_that_cannot_take_its_options_is_a_usage_error():
    with pytest.raises(UsageError, match="source gaussian"):
        registry.create("sources", Reference("gaussian", {"sigma": "1", "sigmas": 2}))
    with pytest.raises(UsageError):
        registry.create("sources", Reference("gaussian", {"sigma": [1]}))


def test_whole_numbers_beyond_any_float_are_infinite():
    assert Reference.parse("x:a=" + "1" * 400).options == {"a": float("inf")}
    assert Reference.parse("x:a=" + "1" * 5000).options == {"a": float("inf")}
    assert Reference.parse("x:a=" + "1" * 300).options == {"a": int("1" * 300)}


@pytest.mark.parametrize("epsilon", ["1" + "0" * 500, "1" + "0" * 5000, "inf", "nan", "-1", "a"])
def test_claims_of_epsilon(epsilon):
    done = here(
        "mechanism", "numpy:laplace:scale=1", "--neighbours", "0,1", "--claim-epsilon", epsilon
    )
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize(
    "claim",
    [
        "laplace:scale=1e308",
        "gaussian:sigma=1e309",
        "gaussian:sigma=" + "1" * 5000,
        "\x1b[2J:sigma=1",
        "",
        "gaussian",
    ],
)
def test_claims_of_noise(claim):
    done = here("audit", "gaussian:sigma=1", "--claim", claim, "--dim", "2", "--samples", "2000")
    assert done.returncode == 2, done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--dim", "1" + "0" * 400),
        ("--samples", "1e400"),
        ("--samples", "nan"),
        ("--alpha", "nan"),
        ("--time-limit", "inf"),
    ],
)
def test_sizes(options):
    assert here("audit", "numpy:normal", "--claim", "gaussian:sigma=1", *options).returncode == 2


@pytest.mark.parametrize("scale", ["1" * 400, "nan", "abc", "-1"])
def test_options_of_a_library(scale):
    done = here("audit", f"numpy:normal:scale={scale}", "--samples", "2000", "--dim", "2")
    assert done.returncode == 2, done.stderr
