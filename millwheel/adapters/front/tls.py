"""TLS of a visitor that a thread serves."""

from __future__ import annotations

import ssl
from contextlib import suppress
from functools import partial
from socket import socket

from millwheel.adapters.front.listening import hang_up
from millwheel.adapters.front.visitors import Visitor


class GuardedSSLSocket(ssl.SSLSocket):
    """Closes itself when it is garbage-collected, even if it was half made because the caller hung
    up meanwhile."""

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()


def shaken(context: ssl.SSLContext, connection: socket, visitor: Visitor) -> ssl.SSLSocket:
    """The connection after its TLS handshake; ``connection`` is used up. Raises OSError if it
    fails, or if the front hangs up on the visitor meanwhile."""
    context.sslsocket_class = GuardedSSLSocket
    # fails if the caller has hung up: a TLS wrapper would then be lost half made
    connection.getpeername()
    wrapped = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
    visitor.hang_up = partial(hang_up, wrapped)
    if visitor.left:  # hung up on between the two sockets
        wrapped.close()
        raise ConnectionError("it took too long")
    try:
        wrapped.do_handshake()
    except BaseException:
        wrapped.close()
        raise
    return wrapped
