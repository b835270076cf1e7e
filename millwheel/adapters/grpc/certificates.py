"""The certificates of a process: the ones it shows in handshakes, their ends, and their renewal
without a restart.

New files in a security folder are taken with the next handshake. The set before them stays in use
until the new one is complete: a certificate and its key are two files, which may be half copied.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc

from millwheel.errors import SetupError

log = logging.getLogger("millwheel.security")

WARNING_DAYS = 30
"""A certificate that ends sooner is warned of."""
_LOOK_S = 5.0  # between looks at the files of contexts that a library keeps
Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Certificates:
    """Ours, its key, and the CA that we believe, as PEM. They do not show in ``repr``. ``files``
    are where newer ones appear (None: nowhere)."""

    ca: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    files: CertificateFiles | None = field(default=None, repr=False, compare=False)

    def current(self) -> Certificates:
        """The certificates that the files hold now."""
        return self if self.files is None else self.files.current(self)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials of a server that asks every client for a certificate of our CA. Each
        handshake is made with the current certificates."""
        if self.files is None:
            return grpc.ssl_server_credentials(
                [(self.key, self.certificate)], self.ca, require_client_auth=True
            )
        first = self.current()
        last = [first]

        def newer() -> Any:  # None, which the stubs lack: as before
            now = self.current()
            if now is last[0]:
                return None
            last[0] = now
            return now._configuration()

        return grpc.dynamic_ssl_server_credentials(
            first._configuration(), newer, require_client_authentication=True
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a channel that shows our certificate as of now."""
        now = self.current()
        return grpc.ssl_channel_credentials(now.ca, now.key, now.certificate)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Let a context show ours from now on. OpenSSL reads it from a file, which only we can read
        and which is deleted at once."""
        with tempfile.NamedTemporaryFile(prefix="millwheel-", suffix=".pem") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(self.key + b"\n" + self.certificate)
            file.flush()
            context.load_cert_chain(file.name)

    def ends(self) -> datetime:
        """When the first of our certificate and its CA ends; of several CAs, the one that ends last
        counts."""
        from cryptography import x509

        own = x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc
        return min(
            own, max(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(self.ca))
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.ca)


class CertificateFiles:
    """The files of one role. ``read`` reads and checks them; it raises SetupError."""

    def __init__(self, paths: tuple[Path, ...], read: Callable[[], Certificates]) -> None:
        self._paths = paths
        self._read = read
        self._lock = threading.Lock()
        self._stamp = self._stamped()
        self._last: Certificates | None = None

    def current(self, first: Certificates) -> Certificates:
        """The newest complete set; ``first`` is the one that was read before any other."""
        with self._lock:
            stamp = self._stamped()
            if stamp != self._stamp:
                with suppress(SetupError, ssl.SSLError, OSError):  # half of a new set
                    certificates = self._read()
                    # refuses a key of another certificate
                    certificates.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
                    self._last, self._stamp = certificates, stamp
                    log.info(
                        "New certificates are in use; they end on %s.",
                        in_words(certificates.ends()),
                    )
            return self._last or first

    def _stamped(self) -> Stamp:
        with suppress(OSError):
            return tuple(
                (status.st_ino, status.st_size, status.st_mtime_ns)
                for status in map(os.stat, self._paths)
            )
        return ()


class RenewedContext:
    """A TLS context that is made anew when there are new certificates."""

    def __init__(self, tls: Certificates, make: Callable[[Certificates], ssl.SSLContext]) -> None:
        self._tls, self._make = tls, make
        self._lock = threading.Lock()
        self._of = tls.current()
        self._context = make(self._of)

    def now(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        with self._lock:
            if (current := self._tls.current()) is not self._of:
                self._of, self._context = current, self._make(current)
            return self._context


def keep_renewed(context: ssl.SSLContext, tls: Certificates) -> None:
    """Keep the certificates of a context that a library holds: new ones within seconds."""
    if tls.files is None:
        return
    reference = weakref.ref(context)
    last = [tls.current()]

    def look() -> None:
        pause = threading.Event()
        while not pause.wait(_LOOK_S):
            referent, now = reference(), tls.current()
            if referent is None:
                return
            if now is not last[0]:
                if referent.verify_mode is not ssl.CERT_NONE:
                    referent.load_verify_locations(cadata=now.ca.decode())
                now.load_into(referent)
                last[0] = now

    threading.Thread(target=look, name="certificates", daemon=True).start()


def renewing(tls: Certificates | None) -> Callable[[ssl.SSLContext], None] | None:
    """:func:`keep_renewed` for a server that makes its context later."""
    return None if tls is None else lambda context: keep_renewed(context, tls)


def warning_of(ends: datetime, now: datetime | None = None) -> str:
    """A warning about certificates that end soon; "" if there is time. Raises SetupError when they
    are over."""
    remaining = ends - (now or datetime.now(timezone.utc))
    fix = (
        "`millwheel certs FOLDER --renew` makes new ones, which a running pipeline takes without a"
        " stop"
    )
    if remaining <= timedelta(0):
        raise SetupError(
            f"The certificates of the security folder have ended on {in_words(ends)}. {fix}"
        )
    if remaining > timedelta(days=WARNING_DAYS):
        return ""
    days = remaining.days
    when = f"in {days} days" if days > 1 else f"in {remaining.total_seconds() / 3600:.0f} hours"
    return f"The certificates of the security folder end {when}, on {in_words(ends)}. {fix}"


def in_words(moment: datetime) -> str:
    """A moment for people."""
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def server_context(tls: Certificates) -> ssl.SSLContext:
    """Shows our certificate. Clients show the token: a Prometheus has no certificate of this
    pipeline's CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.current().load_into(context)
    return context


def client_context(tls: Certificates) -> ssl.SSLContext:
    """Believes our CA. Names are not looked at, because addresses change with every restart: the CA
    is the identity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=tls.current().ca.decode())
    return context
