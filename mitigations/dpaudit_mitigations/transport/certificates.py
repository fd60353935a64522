"""Certificates of a protocol's parties, all signed by one throw-away authority.

A party's name is in its certificate twice: as the subject's common name and as the DNS name
``NAME.dpaudit.internal`` (no such domain is public), which the other side of a connection must find
there. Access is by a list of names; a certificate from the authority alone is never enough.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpaudit.errors import KeyFileError, UsageError
from dpaudit.results.files import sync_folder, write_file

__all__ = [
    "BROKEN",
    "Identity",
    "check_party",
    "dns_name",
    "load_identity",
    "make_authority",
    "party_of",
]

BROKEN = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)
"""What ``cryptography`` raises for a broken or unsupported certificate or key."""
_DOMAIN = ".dpaudit.internal"
_PARTY = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_LARGEST_FILE = 1 << 16
_MOST_PARTIES = 1024
_LONGEST_DAYS = 3650
_BACKDATED = datetime.timedelta(minutes=5)  # for clocks that differ


@dataclass(frozen=True, slots=True)
class Identity:
    """A party's name, certificate and key, and the authority that it trusts (all PEM)."""

    name: str
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    authority: bytes = field(repr=False)


def check_party(name: str) -> str:
    """Return ``name`` if it is valid: at most 32 lower-case letters, digits and inner hyphens.

    Raises:
        UsageError: it is not.
    """
    if not _PARTY.fullmatch(name):
        raise UsageError(f"party={name}: takes 1 to 32 lower-case letters, digits, inner hyphens")
    return name


def dns_name(party: str) -> str:
    """The DNS name that only ``party``'s certificate carries."""
    return check_party(party) + _DOMAIN


def make_authority(
    folder: Path, parties: Sequence[str], *, hosts: Sequence[str] = (), days: int = 365
) -> None:
    """Make ``folder`` with ``ca.pem`` and, per party, ``NAME/{cert.pem,key.pem,ca.pem}``; or none.

    ECDSA on P-256 (BoringSSL, which gRPC uses, does not take Ed25519 certificates). Certificates
    carry localhost, 127.0.0.1, ::1 and ``hosts`` besides the party's name. The authority's key is
    never written and is gone when this returns: nobody can sign another party, and a new party
    needs a new authority.

    Raises:
        UsageError: ``folder`` is not empty, cannot be written, or a name, a host or ``days`` is not
            valid.
    """
    if not 1 <= days <= _LONGEST_DAYS:
        raise UsageError(f"days={days}: certificates are valid for 1 to {_LONGEST_DAYS} days")
    if not 1 <= len(parties) <= _MOST_PARTIES:
        raise UsageError(f"party: {len(parties)} names; give 1 to {_MOST_PARTIES}")
    if len(set(map(check_party, parties))) != len(parties):
        raise UsageError("party: a name is given twice; every party needs its own")
    names = _host_names(hosts)
    start = datetime.datetime.now(datetime.UTC) - _BACKDATED
    end = start + _BACKDATED + datetime.timedelta(days=days)
    signing = ec.generate_private_key(ec.SECP256R1())
    common = x509.NameAttribute(NameOID.COMMON_NAME, f"dpaudit authority {os.urandom(8).hex()}")
    authority = _Authority(signing, x509.Name([common]), start, end)
    target = folder.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise UsageError(f"out={folder}: cannot be written ({error.strerror})") from error
    try:
        pem = authority.own().public_bytes(Encoding.PEM)
        write_file(draft / "ca.pem", pem, mode=0o644)
        for party in parties:
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = authority.party(party, names, key.public_key())
            home = draft / party
            home.mkdir(mode=0o700)
            secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            write_file(home / "key.pem", secret, mode=0o600)
            write_file(home / "cert.pem", certificate.public_bytes(Encoding.PEM), mode=0o644)
            write_file(home / "ca.pem", pem, mode=0o644)
        sync_folder(draft)
        os.rename(draft, target)  # refuses anything but an empty folder
        sync_folder(target.parent)
    except OSError as error:
        if target.exists():
            raise UsageError(f"out={folder}: not empty; choose a new folder") from error
        raise UsageError(f"out={folder}: cannot be written ({error.strerror})") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(draft)


def load_identity(folder: Path) -> Identity:
    """The party whose ``cert.pem``, ``key.pem`` and ``ca.pem`` are in ``folder``.

    Raises:
        KeyFileError: a file is missing, broken or too large; others may read the key; the
            certificate is not valid now, is not the authority's, names no party, or is not this
            key's.
    """
    certificate_pem, authority_pem = _read(folder / "cert.pem"), _read(folder / "ca.pem")
    key_pem = _read(folder / "key.pem", secret=True)
    certificate = _parse(folder / "cert.pem", certificate_pem)
    authority = _parse(folder / "ca.pem", authority_pem)
    spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        own = load_pem_private_key(key_pem, password=None).public_key().public_bytes(*spki)
    except BROKEN as error:
        raise KeyFileError(f"key={folder / 'key.pem'}: no unencrypted PEM key") from error
    try:
        certified = certificate.public_key().public_bytes(*spki)
        party = party_of(certificate)
    except BROKEN as error:
        raise KeyFileError(f"certificate={folder / 'cert.pem'}: broken; make a new one") from error
    if own != certified:
        raise KeyFileError(f"key={folder / 'key.pem'}: does not fit cert.pem")
    try:
        certificate.verify_directly_issued_by(authority)
    except (*BROKEN, InvalidSignature) as error:
        raise KeyFileError(f"certificate={folder / 'cert.pem'}: not signed by ca.pem") from error
    now = datetime.datetime.now(datetime.UTC)
    for name, one in (("cert.pem", certificate), ("ca.pem", authority)):
        if not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
            raise KeyFileError(
                f"certificate={folder / name}: valid from {one.not_valid_before_utc:%F %R} to "
                f"{one.not_valid_after_utc:%F %R} UTC, not now; make new ones with "
                "dpaudit serve init"
            )
    if party is None:
        raise KeyFileError(f"certificate={folder / 'cert.pem'}: names no party; make a new one")
    return Identity(party, certificate_pem, key_pem, authority_pem)


def party_of(certificate: x509.Certificate) -> str | None:
    """The party that a certificate names, or None if common name and DNS name differ."""
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return None
    parties = [
        n.removesuffix(_DOMAIN)
        for n in names.get_values_for_type(x509.DNSName)
        if n.endswith(_DOMAIN)
    ]
    if len(common) != 1 or parties != [common[0].value] or not _PARTY.fullmatch(parties[0]):
        return None
    return parties[0]


def _host_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(["localhost", "127.0.0.1", "::1", *hosts]):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
            continue
        except ValueError:
            pass
        if not re.fullmatch(
            r"(?!-)[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}", host
        ) or host.lower().endswith(_DOMAIN):
            raise UsageError(f"host={host}: not an IP address or host name, e.g. noise.example.org")
        names.append(x509.DNSName(host))
    return names


@dataclass(frozen=True)
class _Authority:
    """Signs certificates for a time; its key is in this object and nowhere else."""

    key: ec.EllipticCurvePrivateKey
    name: x509.Name
    start: datetime.datetime
    end: datetime.datetime

    def own(self) -> x509.Certificate:
        """The authority's own certificate: it signs parties, and no other authority."""
        return (
            self._builder(self.name, self.key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage("key_cert_sign"), critical=True)
            .sign(self.key, SHA256())
        )

    def party(
        self, name: str, hosts: Sequence[x509.GeneralName], public: ec.EllipticCurvePublicKey
    ) -> x509.Certificate:
        """The certificate of the party ``name``, as server and as client."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        names = x509.SubjectAlternativeName([x509.DNSName(dns_name(name)), *hosts])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            self._builder(subject, public)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(names, critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, SHA256())
        )

    def _builder(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.start)
            .not_valid_after(self.end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )


def _usage(only: str) -> x509.KeyUsage:
    uses = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{use: use == only for use in uses})


def _read(path: Path, *, secret: bool = False) -> bytes:
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if secret and facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise KeyFileError(
                    f"key={path}: {stat.S_IMODE(facts.st_mode):o}, readable by others; chmod 600"
                )
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise KeyFileError(
            f"identity={path}: cannot be read ({error.strerror}); make it with dpaudit serve init "
            "--out DIR, give DIR/PARTY"
        ) from error
    if len(data) > _LARGEST_FILE:
        raise KeyFileError(f"identity={path}: larger than {_LARGEST_FILE:,} bytes; use another")
    return data


def _parse(path: Path, pem: bytes) -> x509.Certificate:
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        _ = [one.not_valid_after_utc - one.not_valid_before_utc for one in certificates]
    except BROKEN as error:
        raise KeyFileError(f"certificate={path}: not a PEM certificate") from error
    if len(certificates) != 1:
        raise KeyFileError(f"certificate={path}: holds {len(certificates)} certificates, not one")
    return certificates[0]
