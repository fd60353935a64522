"""``dpaudit list``: what a newcomer reads of each plug-in, and that nothing is imported for it."""

import json
import re

import pytest
from command_line import here as dpaudit

from dpaudit import registry
from dpaudit.cli import listing, output
from dpaudit.experiments import spec_names
from dpaudit.samplers.adapters import base
from dpaudit.source_reading import packages

KINDS = [*registry.KINDS, "mechanisms", "experiments"]


def rows(kind):
    return {row["name"]: row for row in json.loads(dpaudit("list", kind, "--format=json").stdout)}


def shown(monkeypatch, capsys, kind, *, width, **options):
    """What a terminal of that width shows."""
    console = output.SafeConsole(width=width)
    monkeypatch.setattr(listing, "emit", console.print)
    listing.show(kind, "text", **options)
    return capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [80, 100])
def test_every_list_fits_and_names_no_class(monkeypatch, capsys, kind, width):
    text = shown(monkeypatch, capsys, kind, width=width)
    if not rows(kind):  # commands are others' only
        return
    assert max(map(len, text.splitlines())) <= width
    assert "dpaudit.noise" not in text
    assert "``" not in text
    for name in rows(kind):
        assert (f":{name.partition(':')[2]}" if kind == "mechanisms" else name) in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sources", "mitigations"])
def test_the_command_to_try_works(kind):
    _, _, command = dpaudit("list", kind).stderr.rpartition("Try: dpaudit ")
    done = dpaudit(*command.split(), "--samples=1e4", "--tests=moments", "--seed=1")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_source_has_its_sentence_mark_options_and_extra():
    sources = rows("sources")
    assert sources["pancake"]["lab_specimen"]
    assert sources["pancake"]["description"].startswith("Noise with thin")
    assert sources["pancake"]["options"] == {"key": None, "sigma": "1.0"}
    assert not sources["gaussian"]["lab_specimen"]
    assert sources["gaussian"]["options"] == {"sigma": "1.0"}
    assert "words of `bits` bits" in sources["ziggurat"]["description"]
    # of a base class, and of a dataclass's base class
    assert sources["polar"]["options"] == {"sigma": "1.0"}
    assert rows("attacks")["laplace-support"]["options"]["sampler"] == "numpy"


@pytest.mark.slow
def test_options_are_those_that_a_plugin_takes():
    """What is read from the source is what ``create`` would take after importing it."""
    for kind in ("sources", "mitigations", "attacks", "hosts", "local"):
        for name, row in rows(kind).items():
            taken = registry._parameters(registry.load(kind, name)).values()
            named = [p for p in taken if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
            wanted = {p.name: p.default is p.empty for p in named if not p.name.startswith("_")}
            assert {o: default is None for o, default in row["options"].items()} == wanted


@pytest.mark.slow
def test_needed_extras_are_said_with_whether_they_are_there(monkeypatch, capsys):
    hosts = rows("hosts")
    assert hosts["dpsgd-gradient"]["extra"] == "torch"
    assert hosts["dpsgd-step"]["extra"] == "opacus"  # which brings torch
    assert rows("attacks")["reach"]["extra"] is None
    assert rows("samplers")["opendp"]["extra"] == "opendp"
    found = registry.importlib.util.find_spec
    json_spec = found("json")
    monkeypatch.setattr(
        registry.importlib.util,
        "find_spec",
        lambda name: json_spec if name == "torch" else found(name),
    )
    text = " ".join(shown(monkeypatch, capsys, "hosts", width=100).split())
    assert "needs the extra torch (installed)" in text
    monkeypatch.setattr(
        registry.importlib.util, "find_spec", lambda name: None if name == "torch" else found(name)
    )
    text = " ".join(shown(monkeypatch, capsys, "hosts", width=100).split())
    assert "not installed: pip install 'dpaudit[torch]'" in text


def test_what_an_import_needs_is_what_runs_at_once(tmp_path, monkeypatch):
    """Not what a function imports, what only types need, and what a module can do without."""
    folder = tmp_path / "needing"
    folder.mkdir()
    (folder / "__init__.py").write_text("import of_the_package\n")
    (folder / "inner.py").write_text("import json, of_the_inner.part\n")
    (folder / "outer.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from needing import inner\n"
        "if TYPE_CHECKING:\n    import for_types\n"
        "try:\n    import optional\nexcept ImportError:\n    pass\n"
        "def later():\n    import lazy\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert packages("needing.outer") == {"of_the_package", "of_the_inner"}
    assert packages("needing.missing") == {"of_the_package"}
    assert packages("no_such_package") == set()


@pytest.mark.slow
def test_verbose_shows_where_the_code_is(monkeypatch, capsys):
    text = shown(monkeypatch, capsys, "sources", width=100, verbose=True)
    assert "dpaudit.noise.gaussian:Gaussian" in text
    assert rows("sources")["gaussian"]["target"] == "dpaudit.noise.gaussian:Gaussian"


def test_experiments_have_a_title_and_minutes(monkeypatch, capsys):
    experiments = rows("experiments")
    assert set(experiments) == set(spec_names())
    assert all(row["title"] != row["name"] for row in experiments.values())
    assert all(row["minutes"] > 0 for row in experiments.values())
    text = shown(monkeypatch, capsys, "experiments", width=100)
    assert re.search(r"^zoo +60  The zoo", text, re.MULTILINE)
    assert re.search(r"^demo +<1  Seven samplers", text, re.MULTILINE)


def test_mechanisms_of_libraries_have_claim_and_options():
    mechanisms = rows("mechanisms")
    for library in ("numpy", "opendp", "scipy", "torch", "opacus", "tmlt-core"):
        assert any(name.startswith(f"{library}:") for name in mechanisms)
    assert mechanisms["numpy:laplace"]["claim"] == "laplace:scale=1"
    assert mechanisms["numpy:laplace"]["options"] == {"scale": "1.0"}
    assert mechanisms["diffprivlib:Laplace"]["claim"] == "laplace:scale=…"
    assert mechanisms["diffprivlib:Laplace"]["options"]["epsilon"] is None
    for name, row in mechanisms.items():
        library, _, target = name.partition(":")
        if None not in row["options"].values():
            entry, options = registry.load("samplers", library).find(target)
            assert row["claim"] == base.claimed(entry, options)
