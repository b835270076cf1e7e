from __future__ import annotations

import sys

import pytest

from millwheel.connect.connectors.redis.client import check_url, library, where
from millwheel.errors import SetupError


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:6380/1", "unix:///run/redis.sock"])
def test_addresses_of_servers(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize("url", ["", "h:6379", "http://h", "redis://", "unix:"])
def test_what_is_no_address_is_told_with_one_that_is(url: str) -> None:
    with pytest.raises(ValueError, match="option 'url' must begin with redis://"):
        check_url(url)


def test_a_server_is_named_without_its_password() -> None:
    assert where("rediss://user:s3cret@h:6380/1") == "Redis at h:6380"
    assert where("redis://:s3cret@h") == "Redis at h:6379"
    assert where("unix:///run/redis.sock?password=s3cret") == "Redis at /run/redis.sock"


def test_without_the_package_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[redis\]'"):
        library()
