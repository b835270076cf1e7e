"""Shared by every gRPC server and channel of this project: limits, keep-alive, and error
messages."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

from millwheel.adapters.front.limits import connections
from millwheel.adapters.grpc.security import NAME, Security, TokenCheck, TokenShown, check_listen
from millwheel.adapters.grpc.strangers import Strangers, watch
from millwheel.errors import SetupError

MAX_MESSAGE_BYTES = 64 * 2**20
"""No message is larger; senders cut their batches well below it."""
CALL_TIMEOUT_S = 10.0
"""The deadline of a plain call that has no better one."""

_CONNECTIONS = 4_000  # of one server: workers, commands and injecting clients

_Options = tuple[tuple[str, int], ...]

_LIMITS: _Options = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
_HANDSHAKE_MS = 10_000  # for TLS and the first frames of HTTP/2: gRPC's own default is two minutes
_STREAMS = 128  # calls of one connection at a time; the others wait at the client
_METADATA_BYTES = 16 << 10  # of one call: the longest token has 4 KiB
SERVER_OPTIONS: _Options = (
    *_LIMITS,
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
    ("grpc.http2.settings_timeout", _HANDSHAKE_MS),
    ("grpc.max_concurrent_streams", _STREAMS),
    ("grpc.max_metadata_size", _METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
    ("grpc.so_reuseport", 0),  # a port in use must be an error, not a coin toss between two servers
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)
CHANNEL_OPTIONS: _Options = (
    *_LIMITS,
    # a new channel starts without the back-off of an older one
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_http_proxy", 0),
)


def new_server(
    max_workers: int, listen: str, security: Security | None = None
) -> tuple[grpc.Server, str]:
    """A server that is bound but not started, and the address it is reached by.

    ``listen`` is ``host:port``; port 0 takes a free one. A stream occupies one of the
    ``max_workers`` threads while it lives; threads are created when needed. With ``security``, a
    caller that does not show its token, or has no certificate although the run has some, is
    refused; one that does not show the token in time is hung up on, and the oldest when there are
    many (:mod:`.strangers`). Raises SetupError when the port is not available, or would be open to
    everybody.
    """
    check_listen(listen, security)
    strangers = Strangers()
    checks = [TokenCheck(security, strangers.admit)] if security else []
    threads = ThreadPoolExecutor(max_workers, thread_name_prefix="grpc")
    most = ("grpc.max_allowed_incoming_connections", connections(_CONNECTIONS))
    server = grpc.server(threads, interceptors=[*checks], options=(*SERVER_OPTIONS, most))
    host = listen.rpartition(":")[0]
    try:
        if security is None or security.tls is None:
            port = server.add_insecure_port(listen)
        else:
            port = server.add_secure_port(listen, security.tls.server_credentials())
    except RuntimeError as ex:
        raise SetupError(
            f"cannot listen on {listen}: the port is in use or the address is not one of this"
            " machine; choose another, or port 0 for any free one"
        ) from ex
    address = f"{host}:{port}"
    for check in checks:
        check.address = address
        _watch_until_stopped(server, port, strangers)
    return server, address


def _watch_until_stopped(server: grpc.Server, port: int, strangers: Strangers) -> None:
    ended, stop = threading.Event(), server.stop

    def stop_both(grace: float | None) -> threading.Event:
        ended.set()
        return stop(grace)

    server.stop = stop_both  # type: ignore[method-assign]  # nothing else shows its end
    watch(port, strangers, ended)


def new_channel(address: str, security: Security | None = None) -> grpc.Channel:
    """A channel to ``host:port``; it connects with the first call. The caller closes it."""
    if security is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    if security.tls is None:
        channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    else:
        options = (*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", NAME))
        channel = grpc.secure_channel(address, security.tls.channel_credentials(), options=options)
    return grpc.intercept_channel(channel, TokenShown(security.shown_at(address)))
