"""Orders of a savepoint and their answers."""

from __future__ import annotations

import pytest

from millwheel.control.savepoints.orders import (
    OrderAnswer,
    Phase,
    SavepointOrder,
    Standing,
    answers_to,
    encode,
    standing_order,
)
from millwheel.errors import CorruptionError


def test_the_last_order_of_the_first_savepoint_counts_and_none_before_the_order_to_finish() -> None:
    orders = [
        SavepointOrder("s2", 1, Phase.REST),
        SavepointOrder("s1", 1, Phase.REST),
        SavepointOrder("s1", 2, Phase.HOLD),
    ]
    members = {order.name: encode(order) for order in orders}
    assert standing_order(members) == orders[2]
    assert standing_order({}) is None
    finish = SavepointOrder("z", 1, Phase.FINISH)
    assert standing_order({**members, finish.name: encode(finish)}) == finish
    with pytest.raises(CorruptionError):
        standing_order({"x": b"?"})


def test_only_answers_to_the_order_itself_are_answers() -> None:
    order = SavepointOrder("s1", 2, Phase.HOLD)
    mine = OrderAnswer("s1", 2, {"a-0": Standing(1, 4)})
    members = {
        "1": encode(mine),
        "2": encode(OrderAnswer("s1", 1)),
        "3": encode(OrderAnswer("s2", 2)),
    }
    assert answers_to(order, members) == [mine]


def test_an_order_to_settle_waits_for_savepoints() -> None:
    settle = SavepointOrder("c1", 5, Phase.SETTLE)
    save = SavepointOrder("s1", 1, Phase.REST)
    assert standing_order({"a": encode(settle), "b": encode(save)}) == save
    assert standing_order({"a": encode(settle)}) == settle
