"""What a result depends on: hashes of the checkout's files, versions of pinned libraries."""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from packaging.requirements import Requirement

__all__ = ["ROOT", "commit", "dependencies", "file_hash", "git", "pins"]

ROOT = Path(__file__).resolve().parents[3]
UNCOUNTED = (
    "docs/", "tests/", "dpaudit/render/", "dpaudit/cli/",
    "dpaudit/audit/frontier.csv", "dpaudit/accounting/hardness.csv",
)  # fmt: skip
"""What changes no number: pages, tests, how options are read and reports are shown, and tables
that studies write."""
COUNTED = ("tests/support/", "tests/data/")


def git(*words: str) -> str:
    """What git says in the checkout."""
    return subprocess.run(
        ("git", *words), cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit() -> str:
    """The last commit that changed more than documents."""
    return git("log", "-1", "--format=%h", "--abbrev=8", "--", ".", ":!docs")


@cache
def file_hash(path: Path) -> str:
    """A short hash: of a Python file's meaning, without docstrings, or of the bytes."""
    data = path.read_bytes()
    if path.suffix == ".py":
        data = "".join(_meaning(ast.parse(data))).encode()
    return hashlib.sha256(data).hexdigest()[:10]


def _meaning(node: object) -> Iterator[str]:
    """A tree as text, the same in every version of Python: empty fields are left out."""
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(value, list):
                value = value[_starts_with_docstring(value) :]
            if value is not None and value != []:
                yield f" {name}="
                yield from _meaning(value)
        yield ")"
    elif isinstance(node, list):
        for item in node:
            yield from _meaning(item)
    else:
        yield repr(node)


def _starts_with_docstring(body: list[ast.stmt]) -> bool:
    first = body[0] if body else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def dependencies(noted: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Hashes of the noted files that git tracks and that count, and versions of pinned packages."""
    noted, tracked = set(noted), set(git("ls-files").split("\n"))
    files = {
        path: file_hash(ROOT / path)
        for path in sorted(noted & tracked)
        if not path.startswith(UNCOUNTED) or path.startswith(COUNTED)
    }
    top = {note.removeprefix("package ") for note in noted if note.startswith("package ")}
    names = {_plain(name) for found, all_ in packages_distributions().items() if found in top
             for name in all_}  # fmt: skip
    return files, {name: _version(name) for name in sorted(names & pins().keys())}


def _version(name: str) -> str:
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return ""


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def pins() -> Mapping[str, str]:
    """The versions in constraints.txt for this Python, by name."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            if pin.marker is None or pin.marker.evaluate():
                found[_plain(pin.name)] = str(pin.specifier).removeprefix("==")
    return found
