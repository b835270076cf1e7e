"""Connections to workers under the run's security settings."""

from __future__ import annotations

import ssl

from millwheel.adapters.grpc.security import Security, is_loopback
from millwheel.queries.peers.link import Links


def secured_links(security: Security | None) -> Links:
    """Connections that show the token, by TLS except to workers on the loopback."""
    if security is None:
        return Links()
    if security.tls is None:
        return Links(security.proof)
    from millwheel.adapters.metrics.tls import client_context

    context = client_context(security.tls)

    def tls(address: str) -> ssl.SSLContext | None:
        return None if is_loopback(address.rpartition(":")[0]) else context

    return Links(lambda address: security.token if tls(address) else security.proof(address), tls)
