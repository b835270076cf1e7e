"""Range tables as stored, and as they will be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millwheel.control.master.events import (
    TableSeen,
)
from millwheel.errors import InvariantError
from tests.unit.control.master.test_state import served


def test_old_versions_of_a_table_are_old_news_and_tokens_never_go_back() -> None:
    state, table = served("w1", "w2")
    newer = replace(table, shards=tuple(e.assigned("w2") for e in table.shards), version=4)
    state.handle(TableSeen(table=newer))
    state.handle(TableSeen(table=table))
    assert state.tables == (newer,)
    with pytest.raises(InvariantError, match="token of traffic-0 went back"):
        state.handle(TableSeen(table=replace(table, version=5)))
