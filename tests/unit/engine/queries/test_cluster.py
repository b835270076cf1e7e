"""The words of Redis Cluster for who has which slots."""

from __future__ import annotations

from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.queries.cluster import ClusterMap, node_id
from tests.unit.engine.queries.test_commands import parsed, session, told


def test_slots_are_told_by_worker() -> None:
    low = [0, 8191, ["10.0.0.1", 6380, node_id("w0")]]
    high = [8192, 16383, ["10.0.0.2", 7000, node_id("w1")]]
    assert sorted(told(session(), "CLUSTER SLOTS")) == [low, high]
    shards = told(session(), "CLUSTER SHARDS")
    assert [shard[1] for shard in shards] == [[8192, 16383], [0, 8191]]
    assert " myself,master - 0 0 1 connected 8192-16383\n" in told(session(), "CLUSTER NODES")
    assert "cluster_state:ok" in told(session(), "CLUSTER INFO")
    assert told(session(), "CLUSTER MYID") == node_id("w1")


def test_neighbouring_ranges_of_a_worker_are_one_and_unowned_ones_have_a_next_owner() -> None:
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


def test_standbys_are_replicas_and_have_the_slots_of_the_dead() -> None:
    pieces = tile(4)
    shards = (
        ShardEntry("c-0", pieces[0], "w1", 1, standby="w0"),
        ShardEntry("c-1", pieces[1], "w1", 1, standby="gone"),
        ShardEntry("c-2", pieces[2], "dead", 1, standby="w2"),
        ShardEntry("c-3", pieces[3], "w0", 1, standby="w1"),
    )
    cluster = ClusterMap(
        "w0", "c", {"w0": "a:1", "w1": "b:2", "w2": "c:3"}, RangeTable("c", shards, 1)
    )
    rows = [
        [row[0], row[1], *(node[0] for node in row[2:])] for row in parsed(cluster.slots_reply())
    ]
    assert sorted(rows) == [
        [0, 4095, "b", "a"],
        [4096, 8191, "b"],
        [8192, 12287, "c"],
        [12288, 16383, "a", "b"],
    ]
    found = [
        (shard[1], [(node[5], node[9]) for node in shard[3]])
        for shard in parsed(cluster.shards_reply(2))
    ]
    assert found == [
        ([12288, 16383], [("a", "master"), ("b", "replica")]),
        ([0, 4095], [("b", "master"), ("a", "replica")]),
        ([4096, 8191], [("b", "master")]),
        ([8192, 12287], [("c", "master")]),
    ]
