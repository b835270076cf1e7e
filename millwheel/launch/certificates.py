"""A security folder for development: a CA of its own, one certificate per role, a token, and a user for ZooKeeper.

The private key of the CA is used once and not stored, so no further certificate can be signed with it.
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
from millwheel.errors import SetupError

DAYS = 365  # that a certificate is valid
ROLES = ("process", "worker", "master", "injector", "client")
"""A process whose own role has no certificate uses ``process``."""
_SKEW = timedelta(minutes=5)
_USAGES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


def make_set(folder: str, now: datetime | None = None) -> Path:
    """Write a new set into ``folder``, valid for a year; private files are readable by their owner alone.

    Raises SetupError when the folder holds anything already, or cannot be written.
    """
    path, today = Path(folder), now or datetime.now(timezone.utc)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise SetupError(f"{path} is not empty; name a new folder, so that no certificate in use is replaced")
        _write_all(path, today)
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _write_all(path: Path, now: datetime) -> None:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    issuer = _name("millwheel development CA")
    ca = _builder(issuer, issuer, ca_key.public_key(), now)
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    _write(path / CA_FILE, ca.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), 0o644)
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        made = _builder(_name(f"millwheel {role}"), issuer, key.public_key(), now)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False)
        pem = made.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        _write(path / f"{role}.pem", pem, 0o644)
        _write(path / f"{role}.key", _private_pem(key), 0o600)
    _write(path / AUTH_FILE, f"{NAME}:{secrets.token_urlsafe(24)}\n".encode(), 0o600)
    _write(path / TOKEN_FILE, secrets.token_urlsafe(32).encode() + b"\n", 0o600)


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
