"""A worker's line to the watermark service."""

from __future__ import annotations

import socket
import threading

import pytest

from millwheel.adapters.grpc.watermark_client import fetch_status
from millwheel.errors import UnavailableError
from tests.unit.control.injector.test_server import Worker, serving, table


def test_asking_where_nobody_listens_is_unavailable_not_a_trace() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UnavailableError, match="did not answer"):
        fetch_status(f"127.0.0.1:{port}")


def test_closing_ends_the_clients_threads() -> None:
    with serving(table(1)) as server:
        one = Worker(server.address)
        one.report("n-0", 1, 30)
        one.until(30)
        one.client.close()
        assert "injector-client" not in [thread.name for thread in threading.enumerate()]
