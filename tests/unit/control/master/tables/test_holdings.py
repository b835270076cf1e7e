from __future__ import annotations

from millwheel.control.master.tables.holdings import facts_of
from millwheel.core.model.names import NO_WORKER, NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import Ancestor, RangeTable, ShardEntry
from millwheel.core.model.ranges import tile

W0, W1, W2 = WorkerName("w0"), WorkerName("w1"), WorkerName("w2")
FIRST, SECOND, THIRD = tile(3)


def entry(number: int, owner: WorkerName, **more: object) -> ShardEntry:
    return ShardEntry(
        ShardName(f"n-{number}"), (FIRST, SECOND, THIRD)[number], owner, Token(1), **more
    )  # type: ignore[arg-type]


def test_owners_ancestors_and_burdens() -> None:
    old = (Ancestor(W2, Token(1), 10, -1),)
    shards = (
        entry(0, W0),
        entry(1, NO_WORKER, lineage=old),
        entry(2, W0, next_owner=W1, standby=W1),
    )
    facts = facts_of(RangeTable(NodeName("n"), shards))
    assert facts.owners == {W0, NO_WORKER}
    assert facts.mentioned == {W0, W2}
    assert facts.burdens == {W0: 1, W1: 1, NO_WORKER: 1}
    assert (facts.moving, facts.changing) == (1, True)
    assert facts.followed == (shards[2],)


def test_a_split_is_a_change_and_no_move() -> None:
    shards = (entry(0, W0, split_at=FIRST.hi // 2), entry(1, W0), entry(2, W0))
    facts = facts_of(RangeTable(NodeName("n"), shards))
    assert (facts.moving, facts.changing) == (0, True)
    quiet = facts_of(RangeTable(NodeName("n"), (entry(0, W0), entry(1, W0), entry(2, W0))))
    assert (quiet.moving, quiet.changing) == (0, False)
