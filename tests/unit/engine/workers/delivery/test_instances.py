"""Instances of productions: chosen once, and repeated from what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from millwheel.core.columns.batch import ColumnBatch, key_column
from millwheel.core.grouping.epochs import Rule
from millwheel.core.grouping.tables import Measured
from millwheel.core.model.records import Batch
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.delivery.instances import (
    AnyInstances,
    InstanceCounts,
    ProductionInstances,
    StoredInstances,
)


def _rules(stream: str) -> Mapping[str, Rule]:
    return {"one": Rule("shuffle", 4), "other": Rule("shuffle", 2)} if stream == "s" else {}


def test_what_was_chosen_is_repeated_for_each_node_also_where_a_record_has_no_key() -> None:
    chosen = ProductionInstances(_rules).choosing("s", 5, 11, 0)
    assert chosen is not None
    first = chosen.of("one", 4, ["a", "b", "c"], [11, 13, 15])  # two have no key for it
    second = chosen.of("other", 2, list("abcde"), np.arange(11, 16))
    assert (list(first), list(second)) == ([0, 1, 2], [0, 1, 0, 1, 0])
    stored = StoredInstances([11, 12, 13, 14, 15], chosen.noted)
    assert stored.of("one", 4, ["a", "b", "c"], [11, 13, 15]) == list(first)
    assert stored.of("other", 2, list("abcde"), np.arange(11, 16)) == list(second)


def test_productions_without_numbers_are_told_apart_by_their_order() -> None:
    chosen = ProductionInstances(_rules).choosing("s", 3, 7, 0)
    assert chosen is not None
    first = chosen.of("one", 4, list("abc"), [])
    assert StoredInstances([], chosen.noted).of("one", 4, list("abc"), []) == list(first)


def test_a_node_that_nothing_was_chosen_for_gets_an_instance_by_the_key() -> None:
    found = StoredInstances([1, 2], {}).of("new", 4, ["a", "b"], [1, 2])
    assert list(found) == list(AnyInstances().of("new", 4, ["a", "b"], []))
    assert set(AnyInstances().of("new", 3, list(range(100)), [])) == {0, 1, 2}


def test_streams_whose_consumers_divide_nothing_by_tables_cost_one_question() -> None:
    asked: list[str] = []

    def rules(stream: str) -> Mapping[str, Rule]:
        asked.append(stream)
        return _rules(stream)

    instances = ProductionInstances(rules)
    assert [instances.choosing("plain", 1, 1, 0) for _ in range(3)] == [None, None, None]
    assert asked == ["plain"]
    assert instances.tables() == []


def test_tables_of_a_stream_last_and_go_by_what_is_measured() -> None:
    asked: list[int] = []

    def measures(rules: Mapping[str, Rule]) -> object:
        def measured() -> Mapping[str, Measured]:
            asked.append(1)
            return {"c": Measured((10.0, 90.0))}

        return measured

    instances = ProductionInstances(lambda stream: {"c": Rule("tag", 2)}, measures)  # type: ignore[arg-type]
    for number in range(3):
        chosen = instances.choosing("s", 12, 1 + 12 * number, 0)
        assert chosen is not None
        chosen.of("c", 2, list("abcdefghijkl"), [])
    assert asked == [1]
    assert len(instances.tables()) == 1


def arrival(batch: Any) -> Arrival:
    return Arrival("c", 1, 0, batch, None, 0)


def test_rows_and_columns_are_counted_alike_by_the_last_part_of_their_keys() -> None:
    counts = InstanceCounts()
    rows = Batch(
        "s", [1, 2, 3], [0, 0, 0], [("a", "x", 2), ("b", "x", 0), ("a", "x", 2)], [1, 2, 3]
    )
    keys = key_column([pl.Series("k", ["a", "b"]), pl.Series("__instance__", [2, 3])])
    columns = ColumnBatch(
        "s", np.array([4, 5]), np.array([0, 0]), keys, pl.DataFrame({"n": [1, 2]})
    )
    counts.take([arrival(rows), arrival(columns)])
    assert counts.found() == {0: 1, 2: 3, 3: 1}
    counts.take([arrival(rows)])
    assert counts.found() == {0: 2, 2: 5, 3: 1}
