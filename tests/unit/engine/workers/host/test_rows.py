from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.model.records import Batch
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.host import rows as module
from millwheel.engine.workers.host.rows import rows_of
from tests.unit.engine.workers.loop.stand import live


def arrival(*values: Any, keys: Any = None) -> Arrival:
    count = len(values)
    batch = Batch(
        "events", [], list(range(count)), keys or [f"k{n}" for n in range(count)], list(values)
    )
    return Arrival("c", 0, 0, batch, None, 0)  # type: ignore[arg-type]


def test_rows_are_kept_once_somebody_has_asked() -> None:
    _, served = live()
    served.done.count([arrival({"n": 1})])
    assert rows_of([served]) == []
    served.done.count([arrival({"n": 1}, {"n": 2}, {"n": 3, "password": "x"})])
    found = rows_of([served])
    assert [(row.key, row.value, row.timestamp_us) for row in found] == [
        ("'k1'", {"n": 2}, 1), ("'k2'", {"n": 3, "password": "***"}, 2),
    ]  # fmt: skip
    assert {(row.stream, row.node, row.shard) for row in found} == {("events", "work", "work-0")}
    assert rows_of([served]) == []


def test_encoded_values_and_columns_are_shown_as_rows() -> None:
    import numpy as np
    import polars as pl

    _, served = live()
    rows_of([served])
    encoded = msgspec.Raw(msgspec.msgpack.encode({"n": 7}))
    columns = ColumnBatch(
        "cols",
        np.arange(3),
        np.arange(3),
        pl.Series(["a", "b", "c"]),
        pl.DataFrame({"x": [1, 2, 3]}),
    )
    served.done.count([arrival(encoded), Arrival("c", 0, 0, columns, None, 0)])  # type: ignore[arg-type]
    assert [row.value for row in rows_of([served])] == [{"n": 7}, {"x": 2}, {"x": 3}]


def test_nothing_is_kept_once_nobody_asks_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now_s[0])
    _, served = live()
    rows_of([served])
    now_s[0] += module.PATIENCE_S + 1
    served.done.count([arrival({"n": 1})])
    assert served.done.watcher is None
    assert rows_of([served]) == []


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_value_that_cannot_be_shown_does_no_harm() -> None:
    _, served = live()
    rows_of([served])
    served.done.count([arrival({"n": 1}, keys=[Hostile()])])
    assert [row.value for row in rows_of([served])] == ["cannot be shown: RuntimeError"]
