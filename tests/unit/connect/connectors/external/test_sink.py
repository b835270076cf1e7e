from __future__ import annotations

import pytest

from millwheel.errors import SetupError
from tests.fakes.memory_target import MemorySink, Table


def test_each_shard_has_a_lane_and_a_name_of_its_own() -> None:
    sink = MemorySink(Table())
    assert sink.open("s-0", 1).lane == "root/s-0"
    assert sink.open("s-1", 1).lane == "root/s-1"


def test_a_sink_without_identity_is_not_opened() -> None:
    with pytest.raises(SetupError, match="does not know its root"):
        MemorySink(Table(), identity="").open("s", 1)
