"""Formatting, sentences and the terminal."""

from __future__ import annotations

import doctest
import importlib
import io
import math
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table
from support import documents

from dpaudit.report import (
    audit_table,
    bounds,
    document_of,
    epsilon,
    experiment_sentence,
    experiment_table,
    number,
    p_value,
    percent,
    proportion,
    quantity,
    summary_table,
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


def rows_of(rows):
    return document_of(documents.experiment() | {"rows": rows}).rows


def result_of(document):
    return document_of(document).result


def test_sentences_of_experiments():
    rows = rows_of(documents.experiment()["rows"])
    assert experiment_sentence(rows[:1]).startswith("No attack beats chance: the highest is 50.1 %")
    seen = [replace(row, audit=replace(row.audit, verdict="finding")) for row in rows]
    assert "the black-box audit reports a finding" in experiment_sentence(seen)
    unknown = [replace(row, audit=None) for row in rows]
    assert "no black-box audit was run" in experiment_sentence(unknown)
    found = documents.attack(0.7, low=0.68, high=0.72) | {"epsilon_lower_bound": 0.6}
    leaky = documents.row("pancake", "rotation", [found], label="worse")
    assert "with smoothing no attack" in experiment_sentence([*rows, *rows_of([leaky])])


def test_summary_has_one_cell_a_row_and_drops_empty_columns():
    rows = rows_of(documents.experiment()["rows"])
    columns = {c.header: c.cells for c in summary_table(rows)}
    assert all(len(cells) == len(rows) for cells in columns.values())
    assert columns["ε to key holder"] == ["0.25", "≥ 4.9e+04", "≤ 0.256", "≥ 4.9e+04"]
    assert columns["L2 error"][1] == "1,432\n(expected 1,431)"
    assert "L2 error" not in {
        c.header for c in summary_table([replace(row, l2_error=None) for row in rows])
    }


def drawn(renderable, *, width=120) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(renderable)
    return out.getvalue()


def test_terminal_says_what_the_page_says():
    document = document_of(documents.experiment())
    for width in (80, 120):
        table = experiment_table(document, width=width)
        assert isinstance(table, Table)
        text = drawn(table, width=width)
        assert "99.9 %" in text
        assert "[99.6, 100.0]" in text
        assert " ".join(text.split()).endswith(
            "with rotation or smoothing no attack here beats chance."
        )
    passed, found = (
        drawn(audit_table(result_of(documents.audit(v)))) for v in ("no-finding", "finding")
    )
    assert "What a pass cannot exclude" in passed
    assert "no sample size helps" in passed
    assert "What a pass cannot exclude" not in found
    assert "< 1e-300" in found
    assert "signal 9" in drawn(audit_table(result_of(documents.audit("inconclusive"))))


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
