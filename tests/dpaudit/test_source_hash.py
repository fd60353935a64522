"""Fingerprints of plug-ins' sources: every byte counts, the place does not, nothing is imported."""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
from pathlib import Path

from dpaudit import registry
from dpaudit.codec import to_dict
from dpaudit.provenance import collect
from dpaudit.registry import plugin, source_hash

FILES = {
    "__init__.py": "raise SystemExit('imported')\n",
    "a.py": "A = 1\n",
    "sub/b.py": "B = 2\n",
    "data.txt": "x",
}


def write(folder, files=FILES, name="hashed_plugin"):
    for path, text in files.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text)
    return folder


def hash_in(place, monkeypatch, target="hashed_plugin.a"):
    """As another process would see it that finds packages at ``place``."""
    registry._hash_of.cache_clear()
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(place))
        importlib.invalidate_caches()
        try:
            return source_hash(target)
        finally:
            registry._hash_of.cache_clear()


def test_every_byte_and_name_counts_and_the_place_does_not(tmp_path, monkeypatch):
    first = hash_in(write(tmp_path / "one"), monkeypatch)
    assert len(first) == 64
    uncounted = {"data.txt": "y", "__pycache__/a.pyc": "z"}
    for more in ({}, uncounted):
        assert hash_in(write(write(tmp_path / "two"), more), monkeypatch) == first
    moved = {"a.py": "", "__init__.py": FILES["__init__.py"] + "A = 1\n"}
    others = [
        hash_in(write(write(tmp_path / f"c{i}"), files), monkeypatch)
        for i, files in enumerate([{"sub/b.py": "B = 3\n"}, {"sub/c.py": ""}, moved])
    ]
    assert len({first, *others}) == 4
    assert "hashed_plugin" not in sys.modules


def test_links_are_followed_once_and_odd_names_count(tmp_path, monkeypatch):
    package = write(tmp_path / "one") / "hashed_plugin"
    first = hash_in(tmp_path / "one", monkeypatch)
    (package / "again").symlink_to(package)
    (package / "gone.py").symlink_to(tmp_path / "nowhere.py")
    assert hash_in(tmp_path / "one", monkeypatch) == first  # nothing new behind them
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "c.py").write_text("C = 1\n")
    (package / "linked").symlink_to(tmp_path / "beside")
    linked = hash_in(tmp_path / "one", monkeypatch)
    (tmp_path / "beside" / "c.py").write_text("C = 2\n")
    changed = hash_in(tmp_path / "one", monkeypatch)
    Path(os.fsdecode(bytes(package) + b"/\xff.py")).write_text("")
    assert len({first, linked, changed, hash_in(tmp_path / "one", monkeypatch), ""}) == 5


def test_a_zipped_package_has_the_hash_of_the_unzipped_one(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        for path, text in FILES.items():
            packed.writestr(f"hashed_plugin/{path}", text)
    unzipped = hash_in(write(tmp_path / "plain"), monkeypatch)
    assert hash_in(tmp_path / "packed.zip", monkeypatch) == unzipped


def test_modules_namespaces_and_what_is_not_there(tmp_path, monkeypatch):
    (tmp_path / "lonely_plugin.py").write_text("X = 1\n")
    write(tmp_path, name="a_namespace/first")
    write(tmp_path, {"__init__.py": ""}, name="a_namespace/second")
    targets = ("lonely_plugin", "a_namespace.first.a", "a_namespace.second.a")
    assert len({"", *(hash_in(tmp_path, monkeypatch, target) for target in targets)}) == 4
    assert [source_hash(name) for name in ("no_such_plugin.x", "math", "sys")] == [""] * 3


def test_provenance_tells_the_hash_of_what_was_used_and_of_dpaudit():
    used = [plugin("sources", "gaussian").origin, plugin("attacks", "timing").origin]
    told = to_dict(collect(seed="1", plugins=used))
    ours, attacks = (p["sha256"] for p in told["plugins"])
    assert told["source"] == ours == source_hash("dpaudit")
    assert attacks == source_hash("dpaudit_attacks") != ours
