from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from millwheel.control.savepoints.orders import (
    ANSWERS,
    ORDERS,
    OrderAnswer,
    Phase,
    SavepointOrder,
    encode,
)
from millwheel.control.savepoints.runtime import Taker
from millwheel.control.savepoints.take import check_folder, savepoint_folder
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import SetupError, UnavailableError

TABLE = RangeTable("n", (ShardEntry("n-0", tile(1)[0], "w", 1),), 0)  # type: ignore[arg-type]


class Coordination:
    """Notes who joins and leaves."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.answers: Any = None
        self.gone = False

    def watch_tables(self, changed: Any) -> None:
        changed(TABLE)

    def watch_members(self, role: str, changed: Any) -> None:
        assert role == ANSWERS
        self.answers = changed

    def join(self, role: str, name: str, data: bytes) -> None:
        assert role == ORDERS
        self.calls.append(("join", name))

    def leave(self, role: str, name: str) -> None:
        self.calls.append(("leave", name))
        if self.gone:
            raise UnavailableError("gone")


class Taking:
    """Gives the orders that it was told to give, and remembers what it saw."""

    def __init__(self, *orders: SavepointOrder | None) -> None:
        self.order: SavepointOrder | None = None
        self.done = False
        self.seen: list[Any] = []
        self._orders = list(orders)

    def step(self, now_us: int, tables: Any, answers: Any) -> SavepointOrder | None:
        self.seen.append((now_us, dict(tables), answers))
        order = self._orders.pop(0)
        self.order = order or self.order
        return order


FIRST, SECOND = SavepointOrder("s", 1, Phase.REST), SavepointOrder("s", 2, Phase.HOLD)


def test_an_order_is_taken_back_once_the_next_one_stands() -> None:
    """Between them, workers would go on."""
    coordination = Coordination()
    taker = Taker(cast("Any", Taking(FIRST, None, SECOND)), cast("Any", coordination))
    for now_us in (1, 2, 3):
        assert not taker.step(now_us)
    assert coordination.calls == [("join", "s-1"), ("join", "s-2"), ("leave", "s-1")]
    taker.release()
    assert coordination.calls[-1] == ("leave", "s-2")


def test_only_answers_to_the_order_that_stands_are_looked_at() -> None:
    coordination, taking = Coordination(), Taking(FIRST, None)
    taker = Taker(cast("Any", taking), cast("Any", coordination))
    taker.step(1)
    good, old = OrderAnswer("s", 1), OrderAnswer("s", 0)
    coordination.answers({"w1": encode(good), "w2": encode(old)})
    taker.step(2)
    assert taking.seen == [(1, {"n": TABLE}, []), (2, {"n": TABLE}, [good])]


def test_an_order_that_cannot_be_taken_back_goes_with_the_session() -> None:
    coordination = Coordination()
    coordination.gone = True
    taker = Taker(cast("Any", Taking(FIRST)), cast("Any", coordination))
    taker.release()
    taker.step(1)
    taker.release()
    assert coordination.calls == [("join", "s-1"), ("leave", "s-1")]


# take.py


def test_a_savepoint_is_a_folder_and_no_object_store(tmp_path: Path) -> None:
    assert savepoint_folder(str(tmp_path / "s")) == tmp_path / "s"
    with pytest.raises(SetupError, match="s3://bucket/x is not a folder"):
        savepoint_folder("s3://bucket/x")


def test_its_folder_is_new_or_empty_and_outlives_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    check_folder(tmp_path / "deep" / "new", root)
    check_folder(tmp_path / "deep" / "new", root)
    for folder in (root, root / "inside", tmp_path / "deep" / ".." / "root" / "x"):
        with pytest.raises(SetupError, match="a savepoint must outlive it"):
            check_folder(folder, root)
    (tmp_path / "deep" / "new" / "file").touch()
    with pytest.raises(SetupError, match="is not empty"):
        check_folder(tmp_path / "deep" / "new", root)
    with pytest.raises(SetupError, match="cannot be written to"):
        check_folder(tmp_path / "deep" / "new" / "file", root)
