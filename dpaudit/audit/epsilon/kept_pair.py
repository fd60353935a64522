"""The two data sets of a result as files, and the command that names them."""

from __future__ import annotations

import dataclasses
import json
import shlex
from functools import partial
from pathlib import Path

import numpy as np

from dpaudit.audit.result import MechanismResult
from dpaudit.results.files import write_file

__all__ = ["ARRAYS", "FILES", "UNWRITTEN", "with_pair_in"]

FILES = "first.json", "second.json"
ARRAYS = "first.npy", "second.npy"
UNWRITTEN = "To repeat the command, first write the data sets to the two files that it names."
"""Advice with a command for a pair that Python gave and that no file holds."""


def with_pair_in(result: MechanismResult, folder: str | Path) -> MechanismResult:
    """``result`` with its two data sets as files in ``folder``, which its commands name.

    Arrays are ``.npy`` files, and all others ``.json``; no ``.npy`` file is empty, so that of an
    empty array both are ``.json`` and the commands stay as they are. A result without data sets, or
    with some too large to keep, is returned as it is.

    Raises:
        OSError: they cannot be written.
    """
    texts = result.details.get("pair")
    if texts is None:
        return result
    paths = [Path(folder) / name for name in FILES]
    shapes = result.details.get("shapes")
    empty = shapes is not None and any(0 in shape for shape in shapes)
    if shapes is None or empty:
        for path, text in zip(paths, texts, strict=True):
            write_file(path, text)
    else:
        paths = [path.with_suffix(".npy") for path in paths]
        for path, text, shape in zip(paths, texts, shapes, strict=True):
            array = np.array(json.loads(text), dtype=np.float64).reshape(shape)
            write_file(path, partial(np.save, arr=array))
    if empty:
        return result
    files = ";".join(map(str, paths))
    tests = tuple(
        dataclasses.replace(test, reproduce=_at(test.reproduce, files)) if test.finding else test
        for test in result.tests
    )
    advice = tuple(text for text in result.advice if text != UNWRITTEN)
    return dataclasses.replace(result, tests=tests, advice=advice)


def _at(command: str, files: str) -> str:
    """``command`` for the pair in two files, instead of a search or of the pair itself."""
    words = shlex.split(command)
    if "--neighbours" not in words:
        return command
    for option in ("--dataset", "--adjacency", "--bounds", "--out"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    words[words.index("--neighbours") + 1] = files
    return shlex.join(words)
