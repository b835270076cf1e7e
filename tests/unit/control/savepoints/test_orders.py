"""Orders of a savepoint and their answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from millwheel.control.savepoints.record import RECORD_FILE
from millwheel.control.savepoints.savepoint_list import NOTES_FILE, note, noted_savepoints
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


# savepoint_list.py


def record(name: str) -> Any:
    return SimpleNamespace(
        name=name, taken="2026-11-23T10:00:00+00:00", shards=[1, 2], held_ms=7, last=False
    )


def test_savepoints_are_listed_newest_first_with_whether_they_are_there(tmp_path: Path) -> None:
    assert noted_savepoints(tmp_path) == []
    for name in ("s1", "s2"):
        note(tmp_path, tmp_path / name, record(name))
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / RECORD_FILE).write_text("")
    found = noted_savepoints(tmp_path)
    assert [(each.name, each.shards, there) for each, there in found] == [
        ("s2", 2, False),
        ("s1", 2, True),
    ]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    note(tmp_path, tmp_path / "s1", record("s1"))
    with open(tmp_path / NOTES_FILE, "ab") as file:
        file.write(b'{"folder": "/x", "na')
    assert [each.name for each, _ in noted_savepoints(tmp_path)] == ["s1"]
