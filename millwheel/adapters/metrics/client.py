"""Asks the processes of a run for their metrics, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING

from millwheel.adapters.grpc.security import Security, is_loopback
from millwheel.adapters.metrics.endpoint import METRICS

if TYPE_CHECKING:
    from http.client import HTTPConnection

_TIMEOUT_S = 2.0
"""The time for one process to answer: less than a scrape of the whole run may take (Prometheus
waits 10 s)."""
_AT_ONCE = 16  # processes that are asked at the same time
STANDING, ROWS = "/standing", "/rows"
__all__ = ["METRICS", "ROWS", "STANDING", "fetched"]


def fetched(addresses: Mapping[str, str], path: str, security: Security | None) -> dict[str, str]:
    """The page ``path`` of each process by its name. One that does not answer is left out."""
    if not addresses:
        return {}
    with ThreadPoolExecutor(min(_AT_ONCE, len(addresses))) as pool:
        texts = pool.map(lambda address: _fetch(address, path, security), addresses.values())
        return {name: text for name, text in zip(addresses, texts, strict=True) if text is not None}


def _fetch(address: str, path: str, security: Security | None) -> str | None:
    from http.client import HTTPException  # not urllib: it would ask a proxy of the environment

    connection: HTTPConnection | None = None
    try:
        connection, headers = _connection(address, security)
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        text = reply.read().decode()
    # the process is gone, or its port now belongs to another one
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        if connection is not None:
            connection.close()
    return text if reply.status == HTTPStatus.OK else None


def _connection(address: str, security: Security | None) -> tuple[HTTPConnection, dict[str, str]]:
    """A connection, and the headers that show the token."""
    from http.client import HTTPConnection, HTTPSConnection

    name, _, digits = address.rpartition(":")
    host, port = name.strip("[]"), int(digits)
    if security is None:
        return HTTPConnection(host, port, timeout=_TIMEOUT_S), {}
    if security.tls is None or is_loopback(name):
        return HTTPConnection(host, port, timeout=_TIMEOUT_S), {
            "Authorization": f"Bearer {security.proof(address)}"
        }
    from millwheel.adapters.grpc.certificates import client_context

    secured = HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=client_context(security.tls))
    return secured, {"Authorization": f"Bearer {security.token}"}
