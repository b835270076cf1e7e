"""Connections as the pipeline's security says."""

from __future__ import annotations

from pathlib import Path

from millwheel.adapters.grpc.security import Security, load_security
from millwheel.launch.certificates import make_set
from millwheel.queries.peers.secured import secured_links


def test_without_security_nothing_is_shown_and_with_it_tls_is_spoken_off_the_loopback(tmp_path: Path) -> None:
    assert secured_links(None)._shown("10.0.0.1:1") == ""
    security = load_security(make_set(str(tmp_path / "set")), "client")
    assert security is not None
    links, near, far = secured_links(security), "127.0.0.1:7", "10.0.0.1:7"
    assert links._tls(near) is None
    assert links._tls(far) is not None
    assert (links._shown(near), links._shown(far)) == (security.proof(near), security.token)
    assert secured_links(Security(security.token))._shown(near) == security.proof(near)
