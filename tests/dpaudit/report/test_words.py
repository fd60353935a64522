"""Formatting, sentences and the terminal."""

from __future__ import annotations

import doctest
import importlib
import io
import math

import pytest
from rich.console import Console
from support import documents

from dpaudit.report import (
    audit_table,
    bounds,
    document_of,
    epsilon,
    experiment_table,
    number,
    p_value,
    percent,
    proportion,
    quantity,
)
from dpaudit.results.text import printable


@pytest.mark.parametrize("module", ["format", "figures.svg"])
def test_doctests(module):
    assert doctest.testmod(importlib.import_module(f"dpaudit.report.{module}")).failed == 0


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.25, 0.25, "0.25"),
        (49000.0, "inf", "≥ 4.9e+04"),
        (49000.0, math.inf, "≥ 4.9e+04"),
        (0, 0.2551, "≤ 0.256"),
        (0.0, "inf", "unknown"),
        ("nan", math.nan, "unknown"),
        (0.12341, 0.99991, "0.123 … 1"),
        ("inf", math.inf, "∞"),
        (0.0, 0.0, "0"),
    ],
)
def test_bounds(low, high, text):
    assert bounds(low, high) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.25"), ("inf", "∞"), (math.inf, "∞"), (None, "–"), (math.nan, "–")]
)
def test_epsilon(value, text):
    assert epsilon(value) == text


def test_bounds_are_rounded_outwards():
    for x in (0.12341, 1.2399, 123456.0, 3.0001e-7):
        assert float(bounds(x).split()[1]) <= x
        assert float(bounds(0, x).split()[1]) >= x
    assert proportion(0.5, 0.47999, 0.52001) == "50.0 % [47.9, 52.1]"
    assert proportion(0.5, 0.48, 0.52) == "50.0 % [48.0, 52.0]"


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.0, "< 1e-300"),
        (5e-324, "< 1e-300"),
        (1e-43, "1.0e-43"),
        (0.00099, "9.9e-04"),
        (0.001, "0.001"),
        (0.9999, "0.999"),
        (1.0, "1"),
        ("nan", "–"),
        (None, "–"),
    ],
)
def test_p_values(p, text):
    assert p_value(p) == text


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0, "0"),
        (-1432.1, "-1,432"),
        (9999.96, "10,000"),
        (0.0005, "0.0005"),
        (1e7, "1e+07"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "–"),
        (True, "–"),
        ("12", "–"),
        (10**400, "∞"),
    ],
)
def test_quantities(x, text):
    assert quantity(x) == text


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.0, "0.0 %"),
        (1.0, "100.0 %"),
        (0.9996, "99.96 %"),
        (1e-9, "< 0.01 %"),
        (None, "–"),
        ("inf", "–"),
    ],
)
def test_percents(x, text):
    assert percent(x) == text


def test_strangers_text_is_cut_and_cleaned():
    assert printable("a\x1b\u202eb\nc") == "a��b\nc"
    assert len(printable("x" * 10_000)) == 2000
    assert number(False) is None


def drawn(renderable, *, width=120) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(renderable)
    return out.getvalue()


def test_terminal_shows_markup_and_escapes_as_text():
    arms, audit = (
        document_of(documents.made_hostile(d))
        for d in (documents.experiment(), documents.audit("finding"))
    )
    for part in (experiment_table(arms), audit_table(audit.result)):
        text = drawn(part, width=400)
        assert "[red]" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
