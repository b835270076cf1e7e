from __future__ import annotations

import pytest

from millwheel.adapters.spaces.durable import make_dirs
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.replay_orders import ReplayOrders
from millwheel.core.pipeline.replays import ReplayOrder, Request
from millwheel.errors import CorruptionError
from millwheel.tools.testing.memory.disk import MemoryDisk


@pytest.fixture
def space() -> FolderSpace:
    disk = MemoryDisk()
    make_dirs(disk, "/root")
    return FolderSpace("/root", disk)


def test_a_replay_is_asked_for_bound_and_done(space: FolderSpace) -> None:
    orders = ReplayOrders(space)
    assert not orders.pending()
    assert orders.request(1, Request("a", []))
    assert list(orders.unbound()) == [1]
    assert orders.pending()
    orders.bind(1, ReplayOrder("a", []))
    assert orders.unbound() == {}
    assert orders.undone() == {1: ReplayOrder("a", [])}
    assert orders.undone(frozenset({1})) == {}
    orders.finish(1)
    orders.finish(1)
    assert (orders.undone(), orders.done(), orders.pending()) == ({}, {1}, False)


def test_of_two_that_ask_under_one_number_one_is_told_to_take_another(space: FolderSpace) -> None:
    assert ReplayOrders(space).request(1, Request("a", []))
    assert not ReplayOrders(space).request(1, Request("b", []))
    assert ReplayOrders(space).requests() == {1: Request("a", [])}


def test_the_first_order_of_a_request_stands(space: FolderSpace) -> None:
    orders = ReplayOrders(space)
    orders.bind(1, ReplayOrder("first", []))
    orders.bind(1, ReplayOrder("second", []))
    assert orders.undone()[1].id == "first"


def test_a_damaged_order_is_told(space: FolderSpace) -> None:
    orders = ReplayOrders(space)
    orders.bind(1, ReplayOrder("first", []))
    space.delete("/root/replay/00000001.order")
    space.create("/root/replay/00000001.order", b"torn")
    with pytest.raises(CorruptionError):
        orders.undone()
