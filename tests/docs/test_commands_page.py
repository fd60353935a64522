"""The page of commands keeps what a reader copies as code: examples, columns, options."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
FILE = Path(__file__).parents[2] / "docs" / "_ext" / "commands.py"
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("commands_page", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.described()


def test_examples_and_columns_keep_their_lines(page):
    blocks = FENCED.findall(page)
    assert ("console", "$ dpaudit demo\n$ dpaudit demo --out first --also markdown\n") in blocks
    columns = [text for language, text in blocks if language == "text"]
    assert any("library:./libnoise.so:SYMBOL  void f(" in text for text in columns)
    prose = FENCED.sub("", page)
    assert "$ dpaudit" not in prose
    assert not re.search(r"^[^-\n].*\S {2,}\S", prose, re.M)


def test_options_are_code_with_both_hyphens(page):
    prose = re.sub(r"`[^`\n]*`", "", FENCED.sub("", page))
    assert re.findall(r"--[a-z]\S*", prose) == []
    assert "needs `--out`." in page
