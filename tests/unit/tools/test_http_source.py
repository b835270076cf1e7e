"""The socket and the certificates of the endpoint."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from millwheel.adapters.grpc.security import load_security
from millwheel.connect.connectors.http.options import HttpOptions
from millwheel.errors import SetupError
from millwheel.launch.certificates import make_set
from millwheel.tools.http_source import _bound, _tls


def test_an_endpoint_of_a_secured_pipeline_shows_and_wants_certificates(tmp_path: Path) -> None:
    folder = tmp_path / "security"
    make_set(str(folder))
    known = load_security(str(folder), "worker")
    wants = _tls(HttpOptions(8080), str(folder), known)
    assert wants["ssl_cert_reqs"] is ssl.CERT_REQUIRED
    assert wants["ssl_certfile"] == str(folder / "worker.pem")
    assert (
        _tls(HttpOptions(8080, client_certificates=False), str(folder), known)["ssl_cert_reqs"]
        is ssl.CERT_NONE
    )
    assert _tls(HttpOptions(8080), "", None) == {}


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            SetupError, match=f"cannot listen on 127.0.0.1:{port}: .*; choose another port"
        ):
            _bound(HttpOptions(port))
