"""``dpaudit serve init`` as a person types it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dpaudit.cli import main
from dpaudit_mitigations.transport.certificates import load_identity


@pytest.fixture
def dpaudit(tmp_path, monkeypatch, capsys):
    """The command in this process: exit code, stdout, stderr."""
    for name, value in {"COLUMNS": "140", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["dpaudit", "serve", "init", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return call


def test_it_makes_the_two_servers_certificates_and_never_again(tmp_path, dpaudit):
    code, said, errors = dpaudit("--out", "certificates")
    assert code == 0, errors
    assert said.splitlines() == [
        f"certificates/{name}: cert.pem, key.pem, ca.pem for {name}, 365 days"
        for name in ("answer", "noise")
    ]
    assert {
        load_identity(tmp_path / "certificates" / name).name for name in ("answer", "noise")
    } == {"answer", "noise"}
    key = (tmp_path / "certificates/noise/key.pem").read_bytes()
    code, _, errors = dpaudit("--out", "certificates")
    assert code == 2
    assert "not empty" in errors
    assert (tmp_path / "certificates/noise/key.pem").read_bytes() == key


def test_named_parties_and_a_usage_error(tmp_path, dpaudit):
    code, _, errors = dpaudit(
        "--out", "c", "--party", "aggregate", "--party", "bob", "--host", "10.1.2.3", "--days", "2"
    )
    assert code == 0, errors
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == ["aggregate", "bob", "ca.pem"]
    code, said, errors = dpaudit("--out", "d", "--party", "Bob")
    assert (code, said) == (2, "")
    assert errors.startswith("dpaudit: party=Bob: ")
    assert not (tmp_path / "d").exists()


def test_help_teaches(dpaudit):
    _, text, _ = dpaudit("--help")
    assert "dpaudit serve init --out certificates --party aggregator" in text
    assert "The authority's key is not kept" in text


def test_the_command_starts_without_grpc_or_numpy():
    code = (
        "import dpaudit_mitigations.transport.commands, sys; "
        "print({'grpc', 'numpy', 'cryptography'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()"
