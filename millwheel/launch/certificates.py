"""A security folder for development: a CA of its own, one certificate per role, a token, and a user
for ZooKeeper.

The private key of the CA is used once and not stored, so no further certificate can be signed with
it.
"""

from __future__ import annotations

import os
import secrets
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from millwheel.adapters.grpc.security import AUTH_FILE, CA_FILE, NAME, TOKEN_FILE
from millwheel.control.roots.root import write_atomically
from millwheel.errors import SetupError

DAYS = 365  # that a certificate is valid
ROLES = ("process", "worker", "master", "injector", "client")
"""A process whose own role has no certificate uses ``process``."""
_CA_NAME = "millwheel development CA"
_SKEW = timedelta(minutes=5)
_USAGES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


def make_set(folder: str, now: datetime | None = None) -> Path:
    """Write a new set into ``folder``, valid for a year; private files are readable by their owner
    alone.

    Raises SetupError when the folder holds anything already, or cannot be written.
    """
    path, today = Path(folder), now or datetime.now(timezone.utc)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise SetupError(
                f"{path} is not empty; name a new folder, so that no certificate in use is replaced"
            )
        _write_all(path, today)
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}") from error
    return path


def renew_set(folder: str, now: datetime | None = None) -> Path:
    """Replace the certificates of a set that :func:`make_set` has made by new ones, valid for a
    year, and keep its token and its user. A running pipeline takes them; the previous CA is trusted
    until it ends.

    Raises SetupError when the folder has no such set, or cannot be written.
    """
    path, today = Path(folder), now or datetime.now(timezone.utc)
    try:
        former = (path / CA_FILE).read_bytes()
        names = [each.subject.rfc4514_string() for each in x509.load_pem_x509_certificates(former)]
        if not all(_CA_NAME in name for name in names):
            raise SetupError(
                f"{path / CA_FILE} is a CA of yours ({names[0]}): put new certificates of it into"
                f" {path}"
            )
        files = _signed(today)
        # The CAs first: then every peer trusts the new CA before it meets a new certificate.
        lasting = [
            each
            for each in x509.load_pem_x509_certificates(former)
            if each.not_valid_after_utc > today
        ]
        former_cas = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in lasting)
        write_atomically(path / CA_FILE, files.pop(CA_FILE) + former_cas)
        for name, content in files.items():
            staged = path / f".{name}.new"
            staged.unlink(missing_ok=True)
            _write(staged, content, _mode_of(name))
            staged.replace(path / name)
    except (OSError, ValueError) as error:
        raise SetupError(
            f"{path} has no set of certificates that can be renewed: {error}"
        ) from error
    return path


def _write_all(path: Path, now: datetime) -> None:
    for name, content in _signed(now).items():
        _write(path / name, content, _mode_of(name))
    _write(path / AUTH_FILE, f"{NAME}:{secrets.token_urlsafe(24)}\n".encode(), 0o600)
    _write(path / TOKEN_FILE, secrets.token_urlsafe(32).encode() + b"\n", 0o600)


def _mode_of(name: str) -> int:
    return 0o600 if name.endswith(".key") else 0o644


def _signed(now: datetime) -> dict[str, bytes]:
    """A new CA, and for each role a certificate and its key, by the names of their files."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    issuer = _name(f"{_CA_NAME} {secrets.token_hex(4)}")  # by its name a CA is found among several
    ca = _builder(issuer, issuer, ca_key.public_key(), now)
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    files = {CA_FILE: ca.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)}
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _builder(_name(f"millwheel {role}"), issuer, key.public_key(), now)
        certificate = certificate.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        certificate = certificate.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False
        )
        certificate = certificate.add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False)
        files[f"{role}.pem"] = certificate.sign(ca_key, hashes.SHA256()).public_bytes(
            serialization.Encoding.PEM
        )
        files[f"{role}.key"] = _private_pem(key)
    return files


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=DAYS))
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    none = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none)


def _write(path: Path, content: bytes, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
