"""Parties with certificates of two authorities, made once, and servers in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpaudit_mitigations.transport.certificates import load_identity, make_authority


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder / "ours", ["answer", "noise", "eve"])
    make_authority(folder / "theirs", ["answer", "noise"])
    return folder


@pytest.fixture(scope="session")
def party(certificates):
    def load(name, authority="ours"):
        return load_identity(certificates / authority / name)

    return load


@pytest.fixture
def log_lines(capfd):
    """The log lines so far, without gRPC's own."""

    def read():
        return [
            json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")
        ]

    return read
