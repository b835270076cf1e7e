"""TLS contexts for servers whose clients have no certificates, from those of a security folder."""

from __future__ import annotations

import ssl

from millwheel.adapters.grpc.certificates import Certificates


def server_context(tls: Certificates) -> ssl.SSLContext:
    """Shows our certificate. Clients show the token: a Prometheus has no certificate of this pipeline's CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.current().load_into(context)
    return context


def client_context(tls: Certificates) -> ssl.SSLContext:
    """Believes our CA. Names are not looked at, because addresses change with every restart: the CA is the identity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=tls.current().ca.decode())
    return context
