"""One token per run, and mutual TLS where it has certificates, for every server and channel.

A *security folder* holds what a process needs: ``token``, and ``ca.pem``, ``ROLE.pem`` and
``ROLE.key`` (a certificate that the CA signed, and its private key; ``process`` stands in for any
role). Both sides must show a certificate of that CA, whose name is always :data:`NAME`: addresses
change with every restart, so the CA, which belongs to one pipeline, is the identity.

A run without a folder of its user's has one in its root, with a token and without certificates. It
serves the loopback only. There a stranger may take the port of a process that has ended, so without
TLS the token itself is never shown, but a proof of it that is valid for that one port
(:meth:`Security.shown_at`).
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from millwheel.adapters.grpc.certificates import CertificateFiles, Certificates, warning_of
from millwheel.adapters.rights import group_of, refuse_writable, write_private
from millwheel.errors import SetupError

log = logging.getLogger("millwheel.security")

NAME = "millwheel"
CA_FILE, TOKEN_FILE, AUTH_FILE = "ca.pem", "token", "zookeeper.auth"
_MIN_TOKEN_CHARS = 16  # below that a token could be guessed
_MAX_FILE_BYTES = 1 << 20  # of a certificate, key or token: a larger one is refused unread
# Fixed: the permissions of all but the owner, and of all but owner and group
_OTHERS, _ALL_OTHERS = 0o077, 0o007
_HEADER = "authorization"
_BEARER = b"Bearer "


@dataclass(frozen=True, slots=True)
class Security:
    """The identity of a run, as one process has it. Without ``tls`` it serves the loopback only, in
    plain text. The token does not show in ``repr``."""

    token: str = field(repr=False)
    tls: Certificates | None = None

    def proof(self, address: str) -> str:
        """A text that proves to the server at ``address`` (host:port) that we have the token, and
        is of no use at another port."""
        port = address.rpartition(":")[2]
        return hmac.new(self.token.encode(), f"port {port}".encode(), sha256).hexdigest()

    def shown_at(self, address: str) -> str:
        """The credential to show at ``address`` in a connection of services: the token over TLS,
        else the proof."""
        return self.proof(address) if self.tls is None else self.token

    def admits(self, credential: bytes, address: str) -> bool:
        """Whether a client of ours, that serves at ``address``, has shown the token or the proof.
        In constant time."""
        whole = hmac.compare_digest(credential, self.token.encode())
        return hmac.compare_digest(credential, self.proof(address).encode()) or whole


def load_security(folder: str, role: str = "process") -> Security | None:
    """The files of a security folder for ``role``; None for "", which means neither TLS nor token.
    A folder without any certificate gives a token only.

    Raises SetupError when a file is missing, empty, or, being private, readable by others; when
    others may write it or its folder; and when the certificates are over.
    """
    if not folder:
        return None
    path = Path(folder)
    _check_rights(path)
    token = _private(path / TOKEN_FILE).decode("ascii", "replace").strip()
    if len(token) < _MIN_TOKEN_CHARS or not token.isprintable() or not token.isascii():
        raise SetupError(
            f"{path / TOKEN_FILE} must hold at least {_MIN_TOKEN_CHARS} printable ASCII characters"
        )
    if not any(path.glob("*.pem")):
        return Security(token)
    own = role if (path / f"{role}.pem").exists() else "process"
    paths = (path / CA_FILE, path / f"{own}.pem", path / f"{own}.key")
    files = CertificateFiles(paths, lambda: _certificates(*paths))
    certificates = replace(_certificates(*paths), files=files)
    try:
        warning_of(certificates.ends())
    except ValueError as error:
        raise SetupError(f"{paths[1]} or {CA_FILE} is not a certificate: {error}") from error
    return Security(token, certificates)


def _certificates(ca: Path, certificate: Path, key: Path) -> Certificates:
    parts = (_read(ca), _read(certificate), _private(key))
    for path, content in zip((ca, certificate, key), parts, strict=True):
        if not content.lstrip().startswith(b"-----BEGIN "):
            raise SetupError(
                f"{path} is not in PEM form; `millwheel certs FOLDER` makes a development set"
            )
    return Certificates(*parts)


def make_token(folder: Path) -> None:
    """Create a security folder with a token and a user for ZooKeeper, unless it exists: the user
    must stay the same, because it owns its nodes in ZooKeeper. Users who may enter the folder above
    may read it."""
    shared = group_of(folder.parent) is not None
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in (
        (TOKEN_FILE, secrets.token_urlsafe(32)),
        (AUTH_FILE, f"{NAME}:{secrets.token_urlsafe(24)}"),
    ):
        path = folder / name
        if not path.exists():
            write_private(path, f"{content}\n".encode())
        os.chmod(path, 0o640 if shared else 0o600)
    os.chmod(folder, 0o2750 if shared else 0o700)


def check_listen(listen: str, security: Security | None) -> None:
    """Raises SetupError if ``listen`` (host:port) can be reached from other machines and there are
    no certificates."""
    if (security is None or security.tls is None) and not is_loopback(listen.rpartition(":")[0]):
        raise SetupError(
            f"refusing to listen on {listen} without authentication: other machines could read and"
            " write the pipeline. Give --security FOLDER (`millwheel certs FOLDER` makes one for"
            " development), or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``, an address or a name."""
    bare = host.strip("[]")
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost"


_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


_AnyCall = (
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
)


@dataclass(frozen=True, slots=True)
class _Details(grpc.ClientCallDetails):  # type: ignore[misc,unused-ignore]
    method: str
    timeout: float | None
    metadata: tuple[tuple[str, str | bytes], ...]
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class TokenShown(*_AnyCall):  # type: ignore[misc,unused-ignore]
    """Shows the token with each call of a channel.

    Not by call credentials: for those, gRPC's core calls Python from threads of its own, also while
    a channel is being closed by a thread that holds Python's lock and waits for them; then the
    process stands still (grpc/grpc#42247).
    """

    def __init__(self, token: str) -> None:
        self._header = (_HEADER, f"Bearer {token}")

    def _shown(
        self, continuation: Callable[..., Any], call: grpc.ClientCallDetails, request: Any
    ) -> Any:
        metadata = (*(call.metadata or ()), self._header)
        optional = (
            getattr(call, name, None) for name in ("credentials", "wait_for_ready", "compression")
        )
        return continuation(_Details(call.method, call.timeout, metadata, *optional), request)

    intercept_unary_unary = intercept_unary_stream = _shown
    intercept_stream_unary = intercept_stream_stream = _shown


class TokenCheck(grpc.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """Ends calls that do not show the token, before anything of them is read. ``refused`` counts
    them. ``address`` is set once the server's address is fixed. ``admit`` gets the peer of each
    call that shows it, in gRPC's words."""

    def __init__(
        self, security: Security, admit: Callable[[str], None] = lambda peer: None
    ) -> None:
        self._security = security
        self._admit = admit
        self._admitting: dict[str, tuple[_Handler, _Handler]] = {}
        self.address = ""
        self._lock = threading.Lock()
        self.refused = 0

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], _Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """Pass the call on, or answer it with a refusal."""
        tokens = [
            value
            for name, value in handler_call_details.invocation_metadata or ()
            if name == _HEADER
        ]
        if len(tokens) == 1 and self._security.admits(
            _octets(tokens[0]).removeprefix(_BEARER), self.address
        ):
            return self._admitting_handler(
                handler_call_details.method, continuation(handler_call_details)
            )
        method = handler_call_details.method
        with self._lock:
            self.refused += 1
            number = self.refused
        what = "a wrong token" if tokens else "no token"

        def refuse(requests: object, context: grpc.ServicerContext) -> Iterator[bytes]:
            log.warning(
                "Refused a call of %s from %s: %s (refusal %d).",
                method,
                context.peer(),
                what,
                number,
            )
            context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                f"{what}: this run requires its own (`millwheel token ROOT`)",
            )
            yield b""

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _admitting_handler(self, method: str, handler: _Handler | None) -> _Handler | None:
        """The handler of a method, which first passes the peer to ``admit``."""
        if handler is None:
            return None
        entry = self._admitting.get(method)
        if entry is None or entry[0] is not handler:
            self._admitting[method] = entry = (handler, _admits_first(self._admit, handler))
        return entry[1]


_BEHAVIOURS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def _admits_first(admit: Callable[[str], None], handler: Any) -> Any:
    def wrapped(behaviour: Callable[..., Any]) -> Callable[..., Any]:
        def call(request: Any, context: grpc.ServicerContext) -> Any:
            admit(context.peer())
            return behaviour(request, context)

        return call

    behaviours = {name: getattr(handler, name) for name in _BEHAVIOURS}
    return handler._replace(
        **{name: wrapped(each) for name, each in behaviours.items() if each is not None}
    )


def _octets(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def _check_rights(path: Path) -> None:
    try:
        refuse_writable(path)
    except OSError as error:
        raise SetupError(f"there is no security folder {path} ({error.strerror})") from error


def _private(path: Path) -> bytes:
    content = _read(path)
    if os.stat(path).st_mode & (_OTHERS if group_of(path.parent) is None else _ALL_OTHERS):
        raise SetupError(f"{path} can be read by others; make it yours alone: chmod 600 {path}")
    return content


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES)
        refuse_writable(path)
    except OSError as error:
        raise SetupError(
            f"the security folder has no readable {path} ({error.strerror}); `millwheel certs"
            " FOLDER` makes one"
        ) from error
    if not content.strip():
        raise SetupError(f"{path} is empty")
    return content
