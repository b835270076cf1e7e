"""The words of Redis Cluster for who has which slots."""

from __future__ import annotations

from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.queries.cluster import ClusterMap, node_id
from tests.unit.queries.test_commands import parsed, session, told


def test_slots_are_told_by_worker() -> None:
    low = [0, 8191, ["10.0.0.1", 6380, node_id("w0")]]
    high = [8192, 16383, ["10.0.0.2", 7000, node_id("w1")]]
    assert sorted(told(session(), "CLUSTER SLOTS")) == [low, high]
    shards = told(session(), "CLUSTER SHARDS")
    assert [shard[1] for shard in shards] == [[8192, 16383], [0, 8191]]
    assert " myself,master - 0 0 1 connected 8192-16383\n" in told(session(), "CLUSTER NODES")
    assert "cluster_state:ok" in told(session(), "CLUSTER INFO")
    assert told(session(), "CLUSTER MYID") == node_id("w1")


def test_neighbouring_ranges_of_a_worker_are_one_and_nobodys_are_somebodys_until_they_are_opened() -> None:
    owners = ("w1", "w1", "", "dead")
    shards = tuple(ShardEntry(f"c-{n}", piece, owners[n], 1) for n, piece in enumerate(tile(4)))
    cluster = ClusterMap("w0", "c", {"w0": "[::1]:1", "w1": "h:2"})
    cluster.follow(RangeTable("other", shards, 1))
    assert cluster.table is None
    cluster.follow(RangeTable("c", shards, 1))
    assert [(node.host, node.slots) for node in cluster.nodes()] == [
        ("::1", ((8192, 16383),)),
        ("h", ((0, 8191),)),
    ]
    assert "cluster_state:fail" in parsed(ClusterMap("w0", "c").info_reply())
