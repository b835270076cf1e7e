"""Where processes listen."""

from __future__ import annotations

import pytest

from millwheel.adapters.processes.address import listen_on
from millwheel.errors import SetupError


def test_auto_is_the_address_that_faces_zookeeper() -> None:
    assert listen_on("10.1.2.3", "x:1") == "10.1.2.3:0"
    assert listen_on("auto", "127.0.0.1:2181,other:2181/chroot") == "127.0.0.1:0"
    with pytest.raises(SetupError, match="no way to ZooKeeper"):
        listen_on("auto", "no-such-host.invalid:2181")
