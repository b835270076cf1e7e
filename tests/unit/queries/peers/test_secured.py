"""Connections as the pipeline's security says."""

from __future__ import annotations

from pathlib import Path

from millwheel.adapters.grpc.security import load_security
from millwheel.launch.certificates import make_set
from millwheel.queries.peers.secured import secured_links


def test_without_security_nothing_is_shown_and_with_it_only_off_the_loopback(tmp_path: Path) -> None:
    assert secured_links(None)._tls is None
    links = secured_links(load_security(make_set(str(tmp_path / "set")), "client"))
    assert links._tls is not None
    assert links._plain("127.0.0.1")
    assert not links._plain("10.0.0.1")
