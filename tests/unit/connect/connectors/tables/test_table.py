"""What is noted of a shard that has not written yet."""

from __future__ import annotations

from millwheel.connect.connectors.external.target import NOTHING_YET
from millwheel.connect.connectors.tables.table import TableMark


def test_a_shard_that_is_not_known_has_no_number_and_the_lowest_token() -> None:
    assert TableMark() == TableMark(NOTHING_YET, 0)
