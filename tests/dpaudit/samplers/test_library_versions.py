"""Installed and tested versions of libraries."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

from dpaudit.samplers import open_sampler
from dpaudit.samplers.adapters import numpy as numpy_adapter
from dpaudit.samplers.adapters import stdlib, torch
from dpaudit.samplers.adapters.base import advice, installed
from dpaudit.samplers.resolve import open_mechanism


def distribution(folder, name, version):
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_versions_are_read_from_metadata():
    assert installed("numpy") == np.__version__
    assert installed("no-such-library") is None
    assert installed("") == ".".join(map(str, sys.version_info[:3]))
    assert numpy_adapter.LIBRARY.version == metadata.version("numpy")
    assert stdlib.LIBRARY.version is not None


def test_nothing_is_imported_for_it():
    code = (
        "import sys\nfrom dpaudit.samplers.adapters.torch import LIBRARY\n"
        "print(LIBRARY.version, LIBRARY.advice, 'torch' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert said.endswith("False\n")
    assert said.split()[0] == str(torch.LIBRARY.version)


def test_another_version_than_the_tested_one_is_told(tmp_path, monkeypatch):
    distribution(tmp_path, "numpy", "99.5.0")
    monkeypatch.syspath_prepend(tmp_path)
    with open_mechanism("numpy:laplace", seed="1") as mechanism:
        assert mechanism.version == "99.5.0"
        assert mechanism.advice.startswith(
            f"numpy: adapter tested with numpy {numpy_adapter.LIBRARY.tested}, installed 99"
        )
        assert mechanism.release(np.zeros(1), 1, timeout=60).shape == (1, 1)
    sampler = open_sampler("numpy:laplace", seed="1")
    assert (sampler.version, sampler.advice) == ("99.5.0", mechanism.advice)


@pytest.mark.parametrize(
    ("version", "told"),
    [("2.4.6", False), ("2.4.6+cpu", False), ("2.4.60", True), ("2.5.0", True), (None, False)],
)
def test_advice(version, told):
    assert bool(advice("x", "y", tested="2.4.6", installed=version)) == told


def test_a_function_of_ones_own_has_no_version(module):
    module("def f(value, n): return np.zeros(n)")
    mechanism = open_mechanism("python:foreign:f", seed="1")
    assert (mechanism.version, mechanism.advice) == (None, "")
