"""The pages on statistics, and the mutants, name code that there is; one version everywhere."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import mutants
import pytest

import dpaudit

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "statistics"
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


def test_the_code_of_each_mutant_is_there():
    for mutant in tomllib.loads(mutants.TABLE.read_text(encoding="utf-8"))["mutant"]:
        place = mutants.ROOT / mutants.file_of(mutant["function"])
        mutants.mutated(place.read_text(encoding="utf-8"), mutant)  # else SystemExit


def test_one_version_and_its_date_everywhere():
    """What `make wheels` installs says this version, too."""
    version, date = re.escape(dpaudit.__version__), r"(\d{4}-\d\d-\d\d)"
    dates = set()
    for name, lines in {
        "pyproject.toml": rf'^version = "{version}"$',
        "CITATION.cff": rf"^version: {version}\ndate-released: {date}$",
        "CHANGELOG.md": rf"^# Changelog\n\n## {version} \({date}\)$",
    }.items():
        found = re.search(lines, (ROOT / name).read_text(encoding="utf-8"), re.M)
        assert found, name
        dates.update(found.groups())
    assert len(dates) == 1
