"""Certificates: what is in them, what is kept, and which identities are refused."""

from __future__ import annotations

import datetime
import itertools
import os
import shutil
import stat
import subprocess
from types import SimpleNamespace

import pytest
from command_line import here
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

from dpaudit.errors import KeyFileError, UsageError
from dpaudit_mitigations.transport import certificates as module
from dpaudit_mitigations.transport.certificates import (
    dns_name,
    load_identity,
    make_authority,
    party_of,
)


def test_what_is_made_and_with_which_modes(tmp_path):
    make_authority(tmp_path / "c", ["answer", "noise"], hosts=["noise.example.org", "10.0.0.7"])
    made = {
        str(p.relative_to(tmp_path / "c")): stat.S_IMODE(p.stat().st_mode)
        for p in (tmp_path / "c").rglob("*.pem")
    }
    assert made == {"ca.pem": 0o644} | {
        f"{who}/{what}": mode
        for who in ("answer", "noise")
        for what, mode in (("cert.pem", 0o644), ("key.pem", 0o600), ("ca.pem", 0o644))
    }
    assert stat.S_IMODE((tmp_path / "c/answer").stat().st_mode) == 0o700
    assert [p.name for p in tmp_path.iterdir()] == ["c"]  # no temporary folder is left
    certificate = x509.load_pem_x509_certificate((tmp_path / "c/noise/cert.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = [dns_name("noise"), "localhost", "noise.example.org"]
    assert names.get_values_for_type(x509.DNSName) == hosts
    addresses = [str(a) for a in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "::1", "10.0.0.7"]
    assert party_of(certificate) == "noise"


def test_the_authority_key_is_nowhere(tmp_path, monkeypatch):
    keys, generate = [], ec.generate_private_key
    monkeypatch.setattr(
        module.ec, "generate_private_key", lambda curve: keys.append(generate(curve)) or keys[-1]
    )
    make_authority(tmp_path / "c", ["answer"])
    text = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert len(keys) == 2
    assert text.count(b"PRIVATE KEY-----\n") == 2  # the begin and the end of one key
    kept = module.load_pem_private_key((tmp_path / "c/answer/key.pem").read_bytes(), None)
    assert kept != keys[0]
    authority = x509.load_pem_x509_certificate((tmp_path / "c/ca.pem").read_bytes())
    assert keys[0].public_key() == authority.public_key()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_agrees(certificates):
    ca, cert = certificates / "ours/ca.pem", certificates / "ours/noise/cert.pem"
    for purpose in ("sslclient", "sslserver"):
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", ca, cert]
        assert subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    other = ["openssl", "verify", "-CAfile", certificates / "theirs/ca.pem", cert]
    assert subprocess.run(other, capture_output=True, timeout=30).returncode != 0


@pytest.mark.parametrize("fill", ["file", "folder", "empty folder"])
def test_nothing_is_overwritten(tmp_path, fill):
    target = tmp_path / "c"
    mine = target if fill == "file" else target / "mine"
    mine.parent.mkdir(exist_ok=True)
    if fill == "empty folder":
        make_authority(target, ["answer"])
        assert load_identity(target / "answer").name == "answer"
        return
    mine.write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        make_authority(target, ["answer"])
    assert mine.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(
    ("parties", "options", "says"),
    [
        ([], {}, "party"),
        (["a", "a"], {}, "twice"),
        (["Answer"], {}, "lower-case"),
        (["../x"], {}, "lower-case"),
        (["a" * 33], {}, "32"),
        (["a"], {"days": 0}, "days=0"),
        (["a"], {"hosts": ["no host"]}, "host=no host"),
        (["a"], {"hosts": ["noise.dpaudit.internal"]}, "host="),
    ],
)
def test_usage_errors(tmp_path, parties, options, says):
    with pytest.raises(UsageError, match=says):
        make_authority(tmp_path / "c", parties, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_command_makes_certificates_and_never_again(tmp_path):
    def init(*words):
        return here("serve", "init", *words, cwd=tmp_path)

    assert init("--out", "c").returncode == 0
    assert {load_identity(tmp_path / "c" / n).name for n in ("answer", "noise")} == {
        "answer",
        "noise",
    }
    key = (tmp_path / "c/noise/key.pem").read_bytes()
    again = init("--out", "c")
    assert (again.returncode, "not empty" in again.stderr) == (2, True)
    assert (tmp_path / "c/noise/key.pem").read_bytes() == key
    options = "--out d --party aggregate --party bob --host 10.1.2.3 --days 2"
    assert init(*options.split()).returncode == 0
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == ["aggregate", "bob", "ca.pem"]
    wrong = init("--out", "e", "--party", "Bob")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("dpaudit: party=Bob: ")
    assert not (tmp_path / "e").exists()


def test_secrets_are_not_in_the_repr(party):
    shown = repr(party("answer"))
    assert "answer" in shown
    assert "PRIVATE" not in shown
    assert "BEGIN" not in shown


def copy(certificates, tmp_path):
    return shutil.copytree(certificates / "ours/answer", tmp_path / "answer")


def test_a_key_that_others_may_read(certificates, tmp_path):
    folder = copy(certificates, tmp_path)
    os.chmod(folder / "key.pem", 0o640)
    with pytest.raises(KeyFileError, match="chmod 600"):
        load_identity(folder)


BROKEN = [
    *itertools.product(["cert.pem", "key.pem", "ca.pem"], [None, b"", b"junk", b"x" * 70_000]),
    ("key.pem", "ours/noise/key.pem"),
    ("ca.pem", "theirs/ca.pem"),
    ("cert.pem", "ours/noise/cert.pem"),
]


@pytest.mark.parametrize(("file", "content"), BROKEN)
def test_broken_or_foreign_files(certificates, tmp_path, file, content):
    folder = copy(certificates, tmp_path)
    if content is None:
        (folder / file).unlink()
    else:
        bad = (certificates / content).read_bytes() if isinstance(content, str) else content
        (folder / file).write_bytes(bad)
    with pytest.raises(KeyFileError, match=file):
        load_identity(folder)


def test_an_expired_certificate(tmp_path, monkeypatch):
    class Then(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.now(tz) - datetime.timedelta(days=3)

    with monkeypatch.context() as patch:
        fake = SimpleNamespace(datetime=Then, timedelta=datetime.timedelta, UTC=datetime.UTC)
        patch.setattr(module, "datetime", fake)
        make_authority(tmp_path / "c", ["answer"], days=1)
    with pytest.raises(KeyFileError, match="not now"):
        load_identity(tmp_path / "c/answer")


@pytest.mark.parametrize(
    ("common", "names"),
    [
        ("answer", []),
        ("answer", ["noise.dpaudit.internal"]),
        ("answer", ["answer.dpaudit.internal", "noise.dpaudit.internal"]),
        ("answer", ["localhost"]),
        ("", ["answer.dpaudit.internal"]),
        ("*", ["*.dpaudit.internal"]),
        ("a.b", ["a.b.dpaudit.internal"]),
    ],
)
def test_a_certificate_that_does_not_say_one_name(common, names):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName(list(map(x509.DNSName, names))), critical=False
        )
    assert party_of(builder.sign(key, SHA256())) is None
