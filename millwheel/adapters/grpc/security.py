"""Mutual TLS and one token per pipeline, for every server and channel of a run.

A *security folder* holds what a process needs: ``ca.pem``, ``ROLE.pem`` and ``ROLE.key`` (a certificate that the CA
signed, and its private key; ``process`` stands in for any role) and ``token``. Both sides must show a certificate of
that CA, whose name is always :data:`NAME`: addresses change with every restart, so the CA, which belongs to one
pipeline, is the identity.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from millwheel.adapters.rights import refuse_writable
from millwheel.errors import SetupError

log = logging.getLogger("millwheel.security")

NAME = "millwheel"
CA_FILE, TOKEN_FILE = "ca.pem", "token"
_MIN_TOKEN_CHARS = 16  # below that a token could be guessed
_MAX_FILE_BYTES = 1 << 20  # of a certificate, key or token: more is none, and is not read
_OTHERS = 0o077  # Fixed: the permission bits of everybody but the owner
_HEADER = "authorization"


@dataclass(frozen=True, slots=True)
class Security:
    """The contents of a security folder. The private parts do not show in ``repr``."""

    ca: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    token: str = field(repr=False)

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a server that asks every client for a certificate of our CA."""
        return grpc.ssl_server_credentials([(self.key, self.certificate)], self.ca, require_client_auth=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a channel that shows our certificate; its calls show the token by :class:`TokenShown`."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


def load_security(folder: str, role: str = "process") -> Security | None:
    """The files of a security folder for ``role``; None for "", which means neither TLS nor token.

    Raises SetupError when a file is missing, empty, or, being private, readable by others; and when others may write it
    or its folder.
    """
    if not folder:
        return None
    path = Path(folder)
    _check_rights(path)
    token = _private(path / TOKEN_FILE).decode("ascii", "replace").strip()
    if len(token) < _MIN_TOKEN_CHARS or not token.isprintable() or not token.isascii():
        raise SetupError(f"{path / TOKEN_FILE} must hold at least {_MIN_TOKEN_CHARS} printable ASCII characters")
    own = role if (path / f"{role}.pem").exists() else "process"
    names = (CA_FILE, f"{own}.pem", f"{own}.key")
    parts = (_read(path / names[0]), _read(path / names[1]), _private(path / names[2]))
    for name, content in zip(names, parts, strict=True):
        if not content.lstrip().startswith(b"-----BEGIN "):
            raise SetupError(f"{path / name} is not in PEM form; `millwheel certs FOLDER` makes a development set")
    return Security(*parts, token)


def check_listen(listen: str, security: Security | None) -> None:
    """Raises SetupError if ``listen`` (host:port) can be reached from other machines and there is no security
    folder."""
    if security is None and not is_loopback(listen.rpartition(":")[0]):
        raise SetupError(
            f"refusing to listen on {listen} without authentication: other machines could read and write the pipeline. "
            "Give --security FOLDER (`millwheel certs FOLDER` makes one for development), or listen on 127.0.0.1"
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

    Not by call credentials: for those, gRPC's core calls Python from threads of its own, also while a channel is being
    closed by a thread that holds Python's lock and waits for them; then the process stands still (grpc/grpc#42247).
    """

    def __init__(self, token: str) -> None:
        self._header = (_HEADER, f"Bearer {token}")

    def _shown(self, continuation: Callable[..., Any], given: grpc.ClientCallDetails, request: Any) -> Any:
        metadata = (*(given.metadata or ()), self._header)
        optional = (getattr(given, name, None) for name in ("credentials", "wait_for_ready", "compression"))
        return continuation(_Details(given.method, given.timeout, metadata, *optional), request)

    intercept_unary_unary = intercept_unary_stream = _shown
    intercept_stream_unary = intercept_stream_stream = _shown


class TokenCheck(grpc.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """Ends calls that do not show the token, before anything of them is read. ``refused`` counts them."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()
        self._lock = threading.Lock()
        self.refused = 0

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], _Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """Pass the call on, or answer it with a refusal."""
        shown = [value for name, value in handler_call_details.invocation_metadata or () if name == _HEADER]
        if len(shown) == 1 and hmac.compare_digest(_octets(shown[0]), self._expected):
            return continuation(handler_call_details)
        method = handler_call_details.method
        with self._lock:
            self.refused += 1
            number = self.refused
        what = "a wrong token" if shown else "no token"

        def refuse(requests: object, context: grpc.ServicerContext) -> Iterator[bytes]:
            log.warning("Refused a call of %s from %s: %s (refusal %d).", method, context.peer(), what, number)
            context.abort(
                grpc.StatusCode.UNAUTHENTICATED, f"{what}: this pipeline wants the one of its --security folder"
            )
            yield b""

        return grpc.stream_stream_rpc_method_handler(refuse)


def _octets(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def _check_rights(path: Path) -> None:
    try:
        refuse_writable(path)
    except OSError as error:
        raise SetupError(f"there is no security folder {path} ({error.strerror})") from error


def _private(path: Path) -> bytes:
    content = _read(path)
    if os.stat(path).st_mode & _OTHERS:
        raise SetupError(f"{path} can be read by others; make it yours alone: chmod 600 {path}")
    return content


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES)
        refuse_writable(path)
    except OSError as error:
        raise SetupError(
            f"the security folder has no readable {path} ({error.strerror}); `millwheel certs FOLDER` makes one"
        ) from error
    if not content.strip():
        raise SetupError(f"{path} is empty")
    return content
