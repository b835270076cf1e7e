"""TLS contexts for servers whose clients have no certificates, from those of a security folder."""

from __future__ import annotations

import os
import ssl
import tempfile

from millwheel.adapters.grpc.security import Certificates


def server_context(tls: Certificates) -> ssl.SSLContext:
    """Shows our certificate. Clients show the token: a Prometheus has no certificate of this pipeline's CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, tls)
    return context


def client_context(tls: Certificates) -> ssl.SSLContext:
    """Believes our CA. Names are not looked at, because addresses change with every restart: the CA is the identity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=tls.ca.decode())
    return context


def _load(context: ssl.SSLContext, tls: Certificates) -> None:
    """The library reads certificates from files only: a file of ours alone, for as long as it reads."""
    with tempfile.NamedTemporaryFile(prefix="millwheel-", suffix=".pem") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(tls.key + b"\n" + tls.certificate)
        file.flush()
        context.load_cert_chain(file.name)
