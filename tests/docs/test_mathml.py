"""The site's mathematics: LaTeX becomes what the reader sees, or an error."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
FILE = Path(__file__).parents[2] / "docs" / "_ext" / "mathml.py"


@pytest.fixture(scope="module")
def mathml():
    spec = importlib.util.spec_from_file_location("mathml", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(math):
    return re.sub(r"\s+", "", math)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (r"\tfrac12 x", r"\tfrac{1}{2} x"),
        (r"\frac12^\varepsilon P_0", r"\frac{1}{2}^{\varepsilon} P_{0}"),
        (r"\frac1{2n}", r"\frac{1}{2n}"),
        (r"\frac{a}2b", r"\frac{a}{2}b"),
        (r"\frac pq r", r"\frac{p}{q}r"),
        (r"\frac\alpha2", r"\frac{\alpha}{2}"),
        (r"\binom nk", r"\binom{n}{k}"),
        (r"x^10 + y_ij", r"x^{1}0 + y_{i}j"),
        (r"\sqrt2\pi", r"\sqrt{2}\pi"),
        (r"2\sqrt{\tfrac12 n}", r"2\sqrt{\tfrac{1}{2} n}"),
        (r"1, \dots, n", r"1, \ldots, n"),
    ],
)
def test_one_character_is_an_argument(mathml, short, long):
    assert words(mathml.converted(short, block=False)) == words(mathml.converted(long, block=False))


def test_lines_are_aligned(mathml):
    bare = mathml.converted(r"a &= b \\ c &= d", block=True)
    assert bare.count("<mtr>") == 2
    assert mathml.converted(r"\begin{align*} a &= b \\ c &= d \end{align*}", block=True) == bare


@pytest.mark.parametrize(
    "tex", [r"\nosuchcommand x", r"\frac{1", r"\begin{nowhere} x \end{nowhere}", r"\left( x"]
)
def test_what_cannot_be_shown_is_an_error(mathml, tex):
    from docutils.utils.math import MathError

    with pytest.raises((MathError, SyntaxError)):
        mathml.converted(tex, block=True)
