from __future__ import annotations

from millwheel.core.grouping.tables import Network
from millwheel.core.model.lease import Lease
from millwheel.core.model.names import ShardName, Token, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.workers.loop.table_entries import TableEntries


def table(version: int, *rows: tuple[str, str, int]) -> RangeTable:
    pieces = tile(len(rows))
    return RangeTable(
        "n",
        tuple(ShardEntry(s, p, o, t) for (s, o, t), p in zip(rows, pieces, strict=True)),
        version,
    )


def test_news_are_what_the_last_table_did_not_say() -> None:
    known = TableEntries()
    first = known.take(table(0, ("n-0", "w1", 1), ("n-1", "w1", 1)))
    assert first is not None
    assert (first.changed, first.gone, first.fresh) == ({"n-0", "n-1"}, frozenset(), {"n-0", "n-1"})
    news = known.take(table(1, ("n-0", "w1", 1), ("n-2", "w1", 2), ("n-3", "w2", 2)))
    assert news is not None
    assert (news.changed, news.gone, news.fresh) == ({"n-2", "n-3"}, {"n-1"}, {"n-2", "n-3"})
    assert [(entry.shard, entry.owner, entry.token) for entry in news.removed] == [("n-1", "", 1)]
    assert known.get("n-1") is None
    assert (known.lease("n-1"), known.lease("n-3")) == (None, Lease(2))
    moved = known.take(table(2, ("n-0", "w2", 2), ("n-2", "w1", 2), ("n-3", "w2", 2)))
    assert moved is not None
    assert (moved.changed, moved.gone) == ({"n-0"}, frozenset())


def test_shards_with_a_standby_are_known_until_a_table_says_otherwise() -> None:
    known, (low, high) = TableEntries(), tile(2)
    followed = ShardEntry("n-0", low, WorkerName("w1"), Token(1), standby=WorkerName("w2"))
    known.take(RangeTable("n", (followed, ShardEntry("n-1", high, WorkerName("w2"), Token(1))), 0))
    assert known.followed == {"n-0"}
    known.take(table(1, ("n-2", "w1", 2)))
    assert known.followed == frozenset()


def test_a_table_that_is_not_newer_says_nothing() -> None:
    known = TableEntries()
    known.take(table(3, ("n-0", "w1", 1)))
    assert known.take(table(3, ("n-0", "w2", 2))) is None
    assert known.lease("n-0") == Lease(1)


def test_the_shards_of_an_address_are_those_of_the_worker_there() -> None:
    known = TableEntries()
    known.take(table(0, ("n-0", "w1", 1), ("n-1", "w2", 1)))
    known.addresses = {"w1": "here", "w2": "there"}
    assert known.owned_at("there") == {"n-1"}


def test_the_distance_of_a_shard_is_that_of_its_owner() -> None:
    known = TableEntries()
    known.take(table(0, *((f"n-{at}", f"w{at}", 1) for at in range(5))))
    known.locations = {
        "w0": ("here", "r1"),
        "w1": ("here", "r1"),
        "w2": ("there", "r1"),
        "w3": ("there", "r2"),
        "w4": ("there", ""),
    }
    found = [known.distance(ShardName(f"n-{at}"), "w0") for at in range(6)]
    assert found == [
        Network.PROCESS,
        Network.HOST,
        Network.RACK,
        Network.ELSEWHERE,
        Network.ELSEWHERE,
        Network.PROCESS,
    ]
    known.locations = {}
    assert known.distance(ShardName("n-3"), "w0") is Network.HOST
