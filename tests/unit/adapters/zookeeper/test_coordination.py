from __future__ import annotations

import pytest

from millwheel.adapters.zookeeper.coordination import _check_hosts, _checked
from millwheel.errors import InvariantError, SetupError


@pytest.mark.parametrize("hosts", ["a:1", "a:1,b:2", "a:1/x", "a:1,b:2/x/y-z.1", "a:1/"])
def test_addresses_with_and_without_a_chroot(hosts: str) -> None:
    servers, slash, chroot = hosts.partition("/")
    _check_hosts(hosts, servers, slash + chroot)


@pytest.mark.parametrize(
    "hosts", ["", "a", "a:x", "a:1,", "a:1 b:2", "a:1//x", "a:1/x y", "a:1/../x y"]
)
def test_what_is_no_address_is_told_with_its_form(hosts: str) -> None:
    servers, slash, chroot = hosts.partition("/")
    with pytest.raises(SetupError, match="is not of the form host:port,host:port/chroot"):
        _check_hosts(hosts, servers, slash + chroot)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 129, "ä"])
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    with pytest.raises(InvariantError, match="cannot be a name in ZooKeeper"):
        _checked(name)
    assert _checked("w0-1.a_b") == "w0-1.a_b"
