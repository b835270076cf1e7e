from millwheel.control.master.tables.open_nodes import LOOK_US, OpenNodes
from millwheel.core.model.names import NodeName, ShardName, WorkerName

A, B = NodeName("a"), NodeName("b")
W0, W1 = WorkerName("w0"), WorkerName("w1")


def closed() -> OpenNodes:
    nodes = OpenNodes([A, B])
    nodes.tick(0)
    assert set(nodes.under(frozenset([W0]), {})) == {A, B}
    nodes.close(A)
    nodes.close(B)
    assert not nodes.under(frozenset([W0]), {})
    return nodes


def test_a_node_opens_with_what_is_its_own() -> None:
    nodes = closed()
    nodes.open(A, NodeName("of another graph"))
    assert set(nodes.under(frozenset([W0]), {})) == {A}
    nodes = closed()
    nodes.open_of(ShardName("b-7"))
    assert set(nodes.under(frozenset([W0]), {})) == {B}


def test_a_shard_of_no_known_node_opens_all() -> None:
    nodes = closed()
    nodes.open_of(ShardName("strange"))
    assert set(nodes.under(frozenset([W0]), {})) == {A, B}


def test_all_open_when_other_workers_may_take_shards_or_are_dead_or_sealed() -> None:
    assert set(closed().under(frozenset([W0, W1]), {})) == {A, B}
    nodes = closed()
    assert set(nodes.under(frozenset([W0]), {W1: None})) == {A, B}
    nodes.close(A)
    assert set(nodes.under(frozenset([W0]), {W1: None})) == {B}
    assert set(nodes.under(frozenset([W0]), {W1: 100})) == {A, B}


def test_all_open_once_in_a_while() -> None:
    nodes = closed()
    nodes.tick(LOOK_US - 1)
    assert not nodes.under(frozenset([W0]), {})
    nodes.tick(LOOK_US)
    assert set(nodes.under(frozenset([W0]), {})) == {A, B}
