"""Numbers as people read them: bounds rounded outwards, no number that reads as certainty."""

from __future__ import annotations

import doctest
import importlib
import math

import pytest

from dpaudit.experiments.measurements import measured
from dpaudit.wording import bounds, epsilon, number, p_value, percent, proportion, quantity, ranged


@pytest.mark.parametrize("module", ["wording", "harms", "experiments.measurements"])
def test_doctests(module):
    assert doctest.testmod(importlib.import_module(f"dpaudit.{module}")).failed == 0


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


def test_intervals_are_rounded_outwards():
    assert ranged("0.5", 0.48001, 0.52001) == "0.5 [0.48, 0.5201]"
    assert ranged("–", 0.1, 0.2) == "–"
    assert number(False) is None


@pytest.mark.parametrize(
    ("cell", "form", "text"),
    [
        ({"value": 0.9, "low": 0.88888, "high": 0.91}, "proportion", "90.0 % [88.8, 91.0]"),
        ({"value": 1.5, "low": 1.23456, "high": "inf"}, "number", "1.5 [1.234, ∞]"),
        ({"value": 2, "low": None, "high": 3}, "ratio", "2×"),
        ({"low": 0.25, "high": "inf"}, "epsilon", "≥ 0.25"),
        ({"value": 0.2, "low": 0.1, "high": 0.3}, "epsilon", "0.2 [0.1, 0.3]"),
        ({"value": 75, "low": 60, "high": 90}, "seconds", "1 min 15 s [1 min 0 s, 1 min 30 s]"),
        ("not run", "number", "not run"),
        ("nan", "ratio", "–"),
        ("inf", "setting", "∞"),
        (None, "flag", "–"),
        (True, "flag", "yes"),
        (False, "flag", "no"),
        (1e-5, "setting", "1e-05"),
        (65536, "setting", "65536"),
    ],
)
def test_cells_as_text(cell, form, text):
    assert measured(cell, form) == text
