"""``dpaudit serve init`` as a person types it."""

from __future__ import annotations

import os
import subprocess
import sys

from dpaudit_mitigations.transport.certificates import load_identity


def dpaudit(*arguments, **options):
    environment = os.environ | {"COLUMNS": "140", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "dpaudit", "serve", "init", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, **options)


def test_it_makes_the_two_servers_certificates_and_never_again(tmp_path):
    first = dpaudit("--out", "certificates", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [
        f"certificates/{name}: cert.pem, key.pem, ca.pem for {name}, 365 days" for name in ("answer", "noise")
    ]
    assert {load_identity(tmp_path / "certificates" / name).name for name in ("answer", "noise")} == {"answer", "noise"}
    key = (tmp_path / "certificates/noise/key.pem").read_bytes()
    again = dpaudit("--out", "certificates", cwd=tmp_path)
    assert again.returncode == 2
    assert "nothing is overwritten" in again.stderr
    assert (tmp_path / "certificates/noise/key.pem").read_bytes() == key


def test_named_parties_and_a_slip(tmp_path):
    named = dpaudit(
        "--out", "c", "--party", "aggregate", "--party", "bob", "--host", "10.1.2.3", "--days", "2", cwd=tmp_path
    )
    assert named.returncode == 0, named.stderr
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == ["aggregate", "bob", "ca.pem"]
    slip = dpaudit("--out", "d", "--party", "Bob", cwd=tmp_path)
    assert (slip.returncode, slip.stdout) == (2, "")
    assert slip.stderr.startswith("dpaudit: party=Bob: ")
    assert not (tmp_path / "d").exists()


def test_help_teaches():
    text = dpaudit("--help").stdout
    assert "dpaudit serve init --out certificates --party aggregator" in text
    assert "The authority's key is not kept" in text


def test_the_command_starts_without_grpc_or_numpy():
    code = "import dpaudit_mitigations.transport.commands, sys; print({'grpc', 'numpy', 'cryptography'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()"
