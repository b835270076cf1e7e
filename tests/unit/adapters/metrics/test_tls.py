from __future__ import annotations

import ssl
from pathlib import Path

from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.metrics.tls import client_context, server_context
from millwheel.launch.certificates import make_set


def test_a_client_believes_our_ca_alone_and_no_key_stays_on_disk(tmp_path: Path) -> None:
    security = load_security(str(make_set(str(tmp_path / "set"))))
    assert security is not None
    assert security.tls is not None
    before = set(Path("/tmp").glob("millwheel-*.pem"))
    server, client = server_context(security.tls), client_context(security.tls)
    assert set(Path("/tmp").glob("millwheel-*.pem")) <= before
    assert client.verify_mode == ssl.CERT_REQUIRED
    assert server.protocol == ssl.PROTOCOL_TLS_SERVER
