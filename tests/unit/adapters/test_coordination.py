from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.coordination import open_coordination
from millwheel.adapters.coordinator import LOCAL, LocalCoordination
from millwheel.control.coordinator.server import CoordinatorServer
from millwheel.errors import SetupError


def test_the_address_says_which_service_it_is(tmp_path: Path) -> None:
    server = CoordinatorServer(tmp_path / "coordinator.db")
    server.start()
    session = open_coordination(server.address, "p")
    assert isinstance(session, LocalCoordination)
    session.close()
    server.stop()


@pytest.mark.parametrize("address", ["nothing", "host", "host:x", "a:1/b c", ""])
def test_what_is_no_address_is_told_before_anything_is_tried(address: str) -> None:
    with pytest.raises(SetupError, match="is not of the form host:port"):
        open_coordination(address, "p")


def test_a_coordinator_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="It lives in the process of `millwheel run`"):
        open_coordination(f"{LOCAL}{tmp_path}/none", "p")
