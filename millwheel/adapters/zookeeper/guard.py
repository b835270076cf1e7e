"""Access to our part of ZooKeeper: an ACL of one user, and TLS to a server that offers it.

Both are switched on by files of the security folder: ``zookeeper.auth`` holds ``user:password``;
``zookeeper-ca.pem`` names the CA of the server, ``zookeeper.pem`` and ``zookeeper.key`` are what we
show to it, if it asks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kazoo.security import make_digest_acl

from millwheel.adapters.grpc.security import AUTH_FILE
from millwheel.adapters.rights import group_of, refuse_writable
from millwheel.errors import SetupError

CA_FILE, CERTIFICATE_FILE, KEY_FILE = "zookeeper-ca.pem", "zookeeper.pem", "zookeeper.key"
# Fixed: the permissions of all but the owner, and of all but owner and group
_OTHERS, _ALL_OTHERS = 0o077, 0o007


@dataclass(frozen=True, slots=True)
class ZooKeeperGuard:
    """``user`` "" leaves nodes open to everybody who reaches the server; ``ca`` "" is a connection
    without TLS. Files by their paths."""

    user: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def client_options(self) -> Mapping[str, Any]:
        """The arguments of kazoo's client."""
        options: dict[str, Any] = {}
        if self.user:
            options["auth_data"] = [("digest", f"{self.user}:{self.password}")]
            options["default_acl"] = [make_digest_acl(self.user, self.password, all=True)]
        if self.ca:
            options |= {"use_ssl": True, "ca": self.ca, "verify_certs": True}
        if self.certificate:
            options |= {"certfile": self.certificate, "keyfile": self.key}
        return options


OPEN = ZooKeeperGuard()


def load_guard(folder: str) -> ZooKeeperGuard:
    """The guard of a security folder; :data:`OPEN` for "".

    Raises SetupError when a private file is readable by others, others may write a file in use, or
    the user is not written as ``user:password``.
    """
    if not folder:
        return OPEN
    path = Path(folder)
    refuse_writable(path)
    user, password = _user(path / AUTH_FILE)
    ca, certificate, key = (_present(path / name) for name in (CA_FILE, CERTIFICATE_FILE, KEY_FILE))
    if bool(certificate) != bool(key) or (certificate and not ca):
        raise SetupError(
            f"{path}: {CERTIFICATE_FILE} and {KEY_FILE} go together, and need {CA_FILE}"
        )
    return ZooKeeperGuard(user, password, ca, certificate, key)


def _user(path: Path) -> tuple[str, str]:
    if not _present(path):
        return "", ""
    user, colon, password = (
        path.read_text(encoding="utf-8", errors="replace").strip().partition(":")
    )
    if not (user and colon and password):
        raise SetupError(f"{path} must hold one line user:password")
    return user, password


def _present(path: Path) -> str:
    """The path as text, "" when there is no such file."""
    if not path.is_file():
        return ""
    if path.name in (AUTH_FILE, KEY_FILE) and os.stat(path).st_mode & (
        _OTHERS if group_of(path.parent) is None else _ALL_OTHERS
    ):
        raise SetupError(f"{path} can be read by others; make it yours alone: chmod 600 {path}")
    refuse_writable(path)
    return str(path)
