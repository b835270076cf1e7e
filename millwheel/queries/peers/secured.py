"""Connections to workers under the pipeline's security settings."""

from __future__ import annotations

from millwheel.adapters.grpc.security import Security, is_loopback
from millwheel.adapters.metrics.tls import client_context
from millwheel.queries.peers.link import Links


def secured_links(security: Security | None) -> Links:
    """Connections with TLS and the token, except to workers on the loopback, which require neither."""
    if security is None:
        return Links()
    return Links(security.token, client_context(security), is_loopback)
