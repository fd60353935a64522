"""Plug-ins by name: listed without import, loaded by name, refused with an explanation."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import Distribution, EntryPoint, EntryPoints
from types import SimpleNamespace

import pytest

from dpaudit import registry
from dpaudit.errors import DuplicatePluginError, MissingExtraError, UnknownNameError, UsageError
from dpaudit.registry import KINDS, create, declared, load, nearest, plugin, plugins
from dpaudit.types import Reference

HERE = "dpaudit_registry_specimen"  # a module that the fixture below puts into sys.modules


class FakeDistribution(Distribution):
    def __init__(self, name: str, version: str = "1.0") -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename):
        return self._text if filename == "METADATA" else None

    def locate_file(self, path):
        raise NotImplementedError


def entry(
    name: str, value: str, group: str = "dpaudit.attacks", dist: str | None = "one"
) -> EntryPoint:
    ep = EntryPoint(name, value, group)
    return ep._for(FakeDistribution(dist)) if dist else ep


@pytest.fixture
def install(monkeypatch):
    """Replace what is installed by the entry points given."""

    def put(*points: EntryPoint) -> None:
        monkeypatch.setattr(
            registry, "entry_points", lambda **chosen: EntryPoints(points).select(**chosen)
        )

    return put


@pytest.fixture
def specimen(monkeypatch):
    """Factories of every shape, importable as HERE."""

    def factory(claim, *, required, optional=2):
        return claim, required, optional

    def bare(*args):
        return args

    def greedy(**options):
        return options

    class Made:
        def __init__(self, *, size=1) -> None:
            self.size = size

    module = SimpleNamespace(factory=factory, bare=bare, greedy=greedy, Made=Made)
    monkeypatch.setitem(sys.modules, HERE, module)
    return module


# ---------------------------------------------------------------- listing


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


def test_every_kind_can_be_listed():
    for kind in KINDS:
        assert all(p.origin.kind == kind for p in plugins(kind).values())


def test_only_the_kinds_own_group_is_listed(install):
    others = entry("b", "m:B", group="dpaudit.tests"), entry("c", "m:C", group="pytest11")
    install(entry("z", "m:Z"), entry("a", "m:A"), *others)
    assert list(plugins("attacks")) == ["a", "z"]
    assert list(plugins("tests")) == ["b"]
    assert plugins("hosts") == {}


def test_a_plug_in_without_a_distribution_is_listed_as_unknown(install):
    install(entry("a", "m:A", dist=None))
    assert plugins("attacks")["a"].origin.distribution == "unknown"


# ---------------------------------------------------------------- names


def test_unknown_kind():
    with pytest.raises(UnknownNameError, match="kind=source"):
        plugins("source")


def test_unknown_name_offers_the_nearest():
    match = r"source=gausian: not known; did you mean 'gaussian'\?"
    with pytest.raises(UnknownNameError, match=match):
        plugin("sources", "gausian")
    with pytest.raises(UnknownNameError, match=r"did you mean 'pancake'\?"):
        load("sources", "PANCAKE")


def test_unknown_name_with_nothing_near_lists_what_there_is(install):
    install(entry("a", "m:A"), entry("b", "m:B"))
    with pytest.raises(UnknownNameError, match="attack=zzzzzz"):
        plugin("attacks", "zzzzzz")
    install()
    with pytest.raises(UnknownNameError, match="attack=a"):
        plugin("attacks", "a")


def test_nearest():
    assert nearest("gausian", ["laplace", "gaussian"]) == "; did you mean 'gaussian'?"
    assert nearest("qq", ["b", "a"]) == "; there are: a, b"
    assert nearest("qq", []) == "; none is installed"


# ---------------------------------------------------------------- duplicates


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("m:A", "one"), ("m:B", "two")),
        (("m:A", "one"), ("m:A", "two")),
        (("m:A", "one"), ("m:B", "one")),
    ],
    ids=["two distributions", "same target", "one distribution, two targets"],
)
@pytest.mark.parametrize("swap", [False, True])
def test_duplicates_are_refused_whichever_comes_first(install, first, second, swap):
    pair = [second, first] if swap else [first, second]
    install(*(entry("same", target, dist=dist) for target, dist in pair))
    for call, names in ((plugins, ()), (plugin, ("same",)), (load, ("same",))):
        with pytest.raises(DuplicatePluginError) as caught:
            call("attacks", *names)
        message = str(caught.value)
        assert message.startswith("attacks=same: ")
        assert all(f"{dist} ({target})" in message for target, dist in (first, second))
        assert "uninstall one" in message


def test_one_distribution_seen_twice_is_no_duplicate(install):
    """An editable install can leave its metadata on the path twice."""
    install(entry("same", "m:A"), entry("same", "m:A"))
    assert list(plugins("attacks")) == ["same"]


def test_one_name_in_two_kinds_is_no_duplicate(install):
    install(entry("same", "m:A"), entry("same", "m:B", group="dpaudit.tests", dist="two"))
    assert plugins("attacks")["same"].target == "m:A"
    assert plugins("tests")["same"].target == "m:B"


# ---------------------------------------------------------------- loading


def test_load_imports_the_target(install, specimen):
    install(entry("x", f"{HERE}:factory"))
    assert load("attacks", "x") is specimen.factory


@pytest.mark.parametrize("module", ["torch", "torch.nn"])
def test_a_missing_extra_is_named_with_its_remedy(install, monkeypatch, tmp_path, module):
    (tmp_path / "needs_an_extra.py").write_text(f"import {module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "needs_an_extra", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Nothing("torch"), *sys.meta_path])
    for name in [m for m in sys.modules if m.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    install(entry("x", "needs_an_extra:Factory"))
    with pytest.raises(MissingExtraError) as caught:
        load("attacks", "x")
    assert "attack=x: needs torch" in str(caught.value)
    assert "pip install 'dpaudit[torch]'" in str(caught.value)


class Nothing:
    """A finder for which one package is not installed."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_another_missing_module_is_not_dressed_up_as_an_extra(install, monkeypatch, tmp_path):
    (tmp_path / "needs_a_third_party.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    install(entry("x", "needs_a_third_party:Factory"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        load("attacks", "x")


# ---------------------------------------------------------------- creating


def test_create_passes_arguments_and_options(install, specimen):
    install(entry("f", f"{HERE}:factory"), entry("made", f"{HERE}:Made"))
    assert create("attacks", "f:required=1", "claim") == ("claim", 1, 2)
    reference = Reference("f", {"required": "r", "optional": 0})
    assert create("attacks", reference, "claim") == ("claim", "r", 0)
    assert create("attacks", "made:size=7").size == 7
    assert create("attacks", "made").size == 1


def test_create_refuses_an_unknown_option(install, specimen):
    install(entry("f", f"{HERE}:factory"))
    match = r"requird=1: attack f has no such option; did you mean 'required'\?"
    with pytest.raises(UnknownNameError, match=match):
        create("attacks", "f:requird=1", "claim")
    with pytest.raises(UnknownNameError, match="claim=2"):
        create("attacks", "f:required=1,claim=2", "claim")  # a positional argument is not an option


def test_create_says_when_there_are_no_options(install, specimen):
    install(entry("bare", f"{HERE}:bare"))
    match = "size=1: attack bare has no such option; it takes none"
    with pytest.raises(UnknownNameError, match=match):
        create("attacks", "bare:size=1")


def test_create_asks_for_a_missing_option(install, specimen):
    install(entry("f", f"{HERE}:factory"))
    with pytest.raises(UsageError, match="required: attack f needs it; write f:required=VALUE"):
        create("attacks", "f:optional=3", "claim")


def test_create_leaves_open_ended_factories_alone(install, specimen):
    install(entry("greedy", f"{HERE}:greedy"))
    assert create("attacks", "greedy:anything=1,goes=true") == {"anything": 1, "goes": True}


def test_create_does_not_swallow_a_factorys_own_error(install, monkeypatch):
    def factory(*, size):
        raise UsageError(f"size={size}: must be above 0")

    monkeypatch.setitem(sys.modules, HERE, SimpleNamespace(factory=factory))
    install(entry("f", f"{HERE}:factory"))
    with pytest.raises(UsageError, match="size=0: must be above 0"):
        create("attacks", "f:size=0")


# ------------------------------------------------------- what a class says of itself, unimported


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        (
            "class A:\n    games = ('x',)\n    n = len('ab')\n    holds = 'a key'\n",
            "{}:A",
            {"games": ("x",), "holds": "a key"},
        ),
        ("class A:\n    games = ('x',)\n", "{}:B", {}),
        ("class A:\n    games = (\n", "{}:A", {}),
        ("def A():\n    games = ('x',)\n", "{}:A", {}),
        ("", "{}.deeper:A", {}),
        ("", "no_such_package_anywhere.x:A", {}),
    ],
)
def test_a_class_is_read_and_its_module_not_run(tmp_path, monkeypatch, source, target, found):
    module = "read_not_run"
    (tmp_path / f"{module}.py").write_text(f"raise SystemExit('was run')\n{source}")
    monkeypatch.syspath_prepend(tmp_path)
    assert declared(SimpleNamespace(target=target.format(module))) == found


def test_a_class_deep_in_a_package_is_read_without_its_parents(tmp_path, monkeypatch):
    folder = tmp_path / "read_deep" / "inner"
    folder.mkdir(parents=True)
    for place in (folder.parent, folder):
        (place / "__init__.py").write_text(
            "raise SystemExit('was run')\nclass A:\n    here = 'package'\n"
        )
    (folder / "module.py").write_text("class A:\n    here = 'module'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert declared(SimpleNamespace(target="read_deep.inner.module:A")) == {"here": "module"}
    assert declared(SimpleNamespace(target="read_deep.inner:A")) == {"here": "package"}
