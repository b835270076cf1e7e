"""Names by which an HTTP server is called.

One on the loopback answers to its own names only: a page elsewhere could give its own name our address, and a browser
would then take the two for one site (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Collection

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def host_of(header: str) -> str:
    """The host of a ``Host`` header, in lower case, without its port."""
    host = header[: header.find("]") + 1] if header.startswith("[") else header.partition(":")[0]
    return host.lower()


def is_called(header: str, names: Collection[str]) -> bool:
    """Whether a ``Host`` header names one of ``names``; () are all."""
    return not names or host_of(header) in names
