"""``dpaudit list``: what a newcomer reads of each plug-in, also of one that cannot be imported."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from command_line import here as dpaudit

from dpaudit import registry
from dpaudit.cli import progress
from dpaudit.cli.commands import listing
from dpaudit.cli.commands.listing import list_
from dpaudit.experiments import spec_names
from dpaudit.targets.adapters import base

KINDS = [*registry.KINDS, "mechanisms", "experiments"]


def rows(kind):
    return {row["name"]: row for row in json.loads(dpaudit("list", kind, "--format=json").stdout)}


def shown(monkeypatch, capsys, kind, *, width, **options):
    """What a terminal of that width shows."""
    console = progress.SafeConsole(width=width)
    monkeypatch.setattr(listing, "emit", console.print)
    list_(kind, **options)
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
def test_a_missing_package_is_said_with_what_brings_it(monkeypatch, capsys):
    assert rows("samplers")["opendp"]["extra"] == "opendp"
    assert rows("attacks")["reach"]["extra"] is None
    found, known = registry.importlib.util.find_spec, registry.plugins("hosts")
    monkeypatch.setattr(
        registry.importlib.util, "find_spec", lambda name: None if name == "opendp" else found(name)
    )
    text = " ".join(shown(monkeypatch, capsys, "samplers", width=100).split())
    assert "needs opendp (not installed: pip install 'dpaudit[opendp]')" in text

    def load():
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    lacking = replace(known["dpsgd-step"], entry_point=SimpleNamespace(load=load))
    monkeypatch.setattr(registry, "plugins", lambda kind: {"dpsgd-step": lacking})
    text = " ".join(shown(monkeypatch, capsys, "hosts", width=100).split())
    assert text == "dpsgd-step needs torch (not installed: pip install 'dpaudit[torch]')"


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
    for library in ("numpy", "opendp", "scipy", "torch", "opacus"):
        assert any(name.startswith(f"{library}:") for name in mechanisms)
    assert mechanisms["numpy:laplace"]["claim"] == "laplace:scale=1"
    assert mechanisms["numpy:laplace"]["options"] == {"scale": "1.0"}
    assert mechanisms["diffprivlib:Laplace"]["claim"] == "laplace:scale=…"
    assert mechanisms["diffprivlib:Laplace"]["options"]["epsilon"] is None
    for name, row in mechanisms.items():
        library, _, target = name.partition(":")
        if None not in row["options"].values():
            entry, options = registry.load("samplers", library).find(target)
            assert row["claim"] == base.stated_claim(entry, options)
