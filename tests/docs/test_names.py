"""The pages on statistics name code that there is."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "statistics"
NAMES = {
    name
    for page in PAGES.glob("*.md")
    for name in re.findall(r"`(dpaudit\w*(?:\.\w+)+)`", page.read_text(encoding="utf-8"))
}


def resolve(name):
    module, _, member = name.rpartition(".")
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return getattr(resolve(module), member)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_on_a_page_is_there(name):
    assert resolve(name) is not None
