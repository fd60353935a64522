"""Plug-ins by name: listed without import, loaded by name, refused with an explanation."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import Distribution, EntryPoint, EntryPoints
from types import SimpleNamespace

import pytest

from dpaudit import registry
from dpaudit.errors import DuplicatePluginError, MissingExtraError, UnknownNameError, UsageError
from dpaudit.registry import create, declared_attribute, load, plugin, plugins
from dpaudit.types import Reference

HERE = "dpaudit_registry_specimen"  # a module that the fixture below puts into sys.modules


class FakeDistribution(Distribution):
    def __init__(self, name: str, version: str = "1.0") -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename):
        return self._text if filename == "METADATA" else None

    def locate_file(self, path):
        raise NotImplementedError


def entry(name, value, group="dpaudit.attacks", dist="one"):
    return EntryPoint(name, value, group)._for(FakeDistribution(dist))


@pytest.fixture
def install(monkeypatch):
    """Replace what is installed by the entry points given."""
    return lambda *points: monkeypatch.setattr(
        registry, "entry_points", lambda **chosen: EntryPoints(points).select(**chosen)
    )


@pytest.fixture
def specimen(monkeypatch):
    """A factory with options of each kind, and one that takes any, importable as HERE."""

    def factory(claim, *, required, optional=2):
        if required == 0:
            raise UsageError("required=0: its own error")
        return claim, required, optional

    module = SimpleNamespace(factory=factory, greedy=lambda **options: options)
    monkeypatch.setitem(sys.modules, HERE, module)


# ---------------------------------------------------------------- listing


@pytest.mark.slow
def test_listing_imports_no_plug_in():
    code = """
import sys
from dpaudit.registry import KINDS, plugins
found = [p for kind in KINDS for p in plugins(kind).values()]
targets = {p.target.partition(":")[0] for p in found}
targets |= {"torch", "dpaudit_attacks", "dpaudit_mitigations"}
loaded = sorted(targets & set(sys.modules))
print(len(found), *loaded)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    count, *loaded = done.stdout.split()
    assert int(count) >= 15  # something was listed, or the rest proves nothing
    assert loaded == []


def test_ours_are_listed_in_order_with_their_origin():
    sources = plugins("sources")
    assert {"gaussian", "pancake"} <= set(sources)
    assert list(sources) == sorted(sources)
    origin = sources["gaussian"].origin
    assert (origin.kind, origin.name, origin.distribution) == ("sources", "gaussian", "dpaudit")
    assert origin.version[0].isdigit()
    assert plugin("sources", "gaussian").target == "dpaudit.noise.gaussian:Gaussian"


def test_only_the_kinds_own_group_is_listed(install):
    others = entry("b", "m:B", group="dpaudit.tests"), entry("a", "m:C", group="dpaudit.tests")
    install(entry("z", "m:Z"), entry("a", "m:A"), *others)
    assert {name: p.target for name, p in plugins("attacks").items()} == {"a": "m:A", "z": "m:Z"}
    assert list(plugins("tests")) == ["a", "b"]
    assert plugins("hosts") == {}


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("call", "names", "says"),
    [
        (plugins, ("source",), "kind=source"),
        (plugin, ("sources", "gausian"), "source=gausian.*'gaussian'"),
        (load, ("sources", "PANCAKE"), "source=PANCAKE.*'pancake'"),
        (plugin, ("attacks", "zzzzzz"), "attack=zzzzzz"),
    ],
)
def test_an_unknown_name_offers_the_nearest(call, names, says):
    with pytest.raises(UnknownNameError, match=says):
        call(*names)


# ---------------------------------------------------------------- duplicates


@pytest.mark.parametrize("second", [("m:B", "two"), ("m:A", "two"), ("m:B", "one")])
@pytest.mark.parametrize("order", [1, -1])
def test_duplicates_are_refused_whichever_comes_first(install, second, order):
    pair = [("m:A", "one"), second][::order]
    install(*(entry("same", target, dist=dist) for target, dist in pair))
    for call, names in ((plugins, ()), (plugin, ("same",)), (load, ("same",))):
        with pytest.raises(DuplicatePluginError, match="attacks=same: ") as caught:
            call("attacks", *names)
        assert all(f"{dist} ({target})" in str(caught.value) for target, dist in pair)


def test_one_distribution_seen_twice_is_no_duplicate(install):
    """An editable install can leave its metadata on the path twice."""
    install(entry("same", "m:A"), entry("same", "m:A"))
    assert list(plugins("attacks")) == ["same"]


# ---------------------------------------------------------------- loading


@pytest.mark.parametrize("module", ["torch", "torch.nn"])
def test_a_missing_extra_is_named_with_its_remedy(install, monkeypatch, tmp_path, module):
    (tmp_path / "needs_an_extra.py").write_text(f"import {module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "needs_an_extra", raising=False)
    without(monkeypatch, "torch")
    install(entry("x", "needs_an_extra:Factory"))
    with pytest.raises(MissingExtraError, match=r"attack=x: .*'dpaudit\[torch\]'"):
        load("attacks", "x")


class Nothing:
    """A finder for which one package is not installed."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def without(monkeypatch, package: str) -> None:
    """Make ``package`` one that is not installed, also where another test imported it before."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Nothing(package), *sys.meta_path])


def test_another_missing_module_is_not_dressed_up_as_an_extra(install, monkeypatch, tmp_path):
    (tmp_path / "needs_a_third_party.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    install(entry("x", "needs_a_third_party:Factory"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        load("attacks", "x")


# ---------------------------------------------------------------- creating


def test_create_passes_arguments_and_options(install, specimen):
    install(entry("f", f"{HERE}:factory"), entry("greedy", f"{HERE}:greedy"))
    assert create("attacks", "f:required=1", "claim") == ("claim", 1, 2)
    reference = Reference("f", {"required": "r", "optional": 0})
    assert create("attacks", reference, "claim") == ("claim", "r", 0)
    assert create("attacks", "greedy:anything=1,goes=true") == {"anything": 1, "goes": True}


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ("requird=1", UnknownNameError, "requird=1: .*'required'"),
        ("required=1,claim=2", UnknownNameError, "claim=2"),  # a positional argument is no option
        ("optional=3", UsageError, "f:required=VALUE"),
        ("required=0", UsageError, "its own error"),
    ],
)
def test_create_refuses_options_that_do_not_fit(install, specimen, options, error, says):
    install(entry("f", f"{HERE}:factory"))
    with pytest.raises(error, match=says):
        create("attacks", f"f:{options}", "claim")


# ------------------------------------------------------------- what a plug-in says of itself


SAYS = """
class A:
    \'\'\'LAB SPECIMEN. Adds `n` numbers. More of it.\'\'\'
    games = ("x",)
    def __init__(self, key, *, sigma=1.0, _own=None): ...
"""


def read(install, monkeypatch, tmp_path, source):
    """The plug-in ``x`` of a module with this source."""
    (tmp_path / "read_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "read_plugin", raising=False)
    install(entry("x", "read_plugin:A"))
    return plugins("attacks")["x"]


def test_a_plug_in_is_described_by_its_class(install, monkeypatch, tmp_path):
    known = read(install, monkeypatch, tmp_path, SAYS)
    about = registry.describe(known)
    assert (about.says, about.specimen) == ("Adds `n` numbers.", True)
    assert about.options == {"key": None, "sigma": "1.0"}
    assert (about.extra, about.missing) == (None, "")
    assert declared_attribute(known, "games", ()) == ("x",)
    assert declared_attribute(known, "holds", "nothing") == "nothing"


@pytest.mark.parametrize(
    ("source", "says", "extra", "missing"),
    [
        ("import no_such_module.at_all", "", None, "no_such_module"),
        ("import mpyc_gone", "", None, "mpyc_gone"),
        ("import pydp", "", "python-dp", "pydp"),
        ("class A:\n    games = (", "SyntaxError", None, ""),
        ("1 / 0", "ZeroDivisionError", None, ""),
        ("raise SystemExit('ends')", "SystemExit", None, ""),
        ("B = 1", "AttributeError", None, ""),
    ],
)
def test_one_that_cannot_be_imported_says_why(
    install, monkeypatch, tmp_path, source, says, extra, missing
):
    without(monkeypatch, "pydp")
    known = read(install, monkeypatch, tmp_path, source)
    about = registry.describe(known)
    assert about.says.startswith(f"cannot be imported: {says}" if says else "")
    assert bool(about.says) == bool(says)
    assert (about.extra, about.missing, about.options) == (extra, missing, {})
    assert declared_attribute(known, "games", ()) == ()


def test_one_that_cannot_be_loaded_is_named_with_its_distribution(install, specimen):
    install(entry("broken", f"{HERE}:nowhere", dist="theirs"))
    with pytest.raises(UsageError, match=r"attack=broken: .*:nowhere of theirs cannot be loaded"):
        registry.load("attacks", "broken")
