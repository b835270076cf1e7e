from __future__ import annotations

import pytest

from millwheel.adapters.hosts import LOOPBACK_NAMES, host_of, is_called


@pytest.mark.parametrize(
    ("header", "host"),
    [("localhost:80", "localhost"), ("LOCALHOST", "localhost"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("", "")],
)
def test_the_host_of_a_header_has_no_port(header: str, host: str) -> None:
    assert host_of(header) == host


def test_other_names_are_not_ours_unless_all_are() -> None:
    assert is_called("127.0.0.1:9", LOOPBACK_NAMES)
    assert not is_called("localhost.evil.example", LOOPBACK_NAMES)
    assert not is_called("", LOOPBACK_NAMES)
    assert is_called("evil.example", ())
