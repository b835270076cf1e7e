"""Each consumer gets the records under its own keys, in rows and in columns."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.model.keys import key_hash
from millwheel.core.model.limits import DEFAULTS
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.graph import Graph, Node, NodeKind
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import WindowSpec
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.language.spec.key_extractors import load_extractor
from tests.computations import computation_spec
from tests.unit.engine.workers.delivery.test_routing import batch, router, table

RECORD = KeySpec(KeyKind.RECORD)


def fanout(
    load: Callable[[KeySpec], Any] | None = None, most_key: int = DEFAULTS.key, **keys: KeySpec
) -> Fanout:
    """Consumers by name with their keys; those whose name begins with ``late_`` want late
    records."""
    nodes = {
        name: Node(
            name,
            NodeKind.COMPUTATION,
            (InputSpec("s", key),),
            (),
            computation=computation_spec(
                name,
                (),
                window=WindowSpec("global"),
                late="side:x" if name.startswith("late_") else "drop",
            ),
        )
        for name, key in keys.items()
    }
    graph = Graph(nodes, {"s": tuple(nodes)}, {})
    return Fanout(graph, load or (lambda spec: load_extractor(spec, "/nowhere")), most_key=most_key)


def by(*fields: str) -> KeySpec:
    return KeySpec(KeyKind.FIELD if len(fields) == 1 else KeyKind.FIELDS, fields)


def test_each_consumer_gets_every_record_under_its_own_key() -> None:
    values = [{"a": "x", "b": 1}, {"a": "y", "b": 2}]
    parts, refused = fanout(one=by("a"), two=by("b"), both=by("a", "b"), given=RECORD).split(
        batch(["k", "k"], values), values
    )
    assert {node: mine.keys for node, mine in parts} == {
        "one": ["x", "y"],
        "two": [1, 2],
        "both": [("x", 1), ("y", 2)],
        "given": ["k", "k"],
    }
    assert refused == []
    assert all(mine.seqs == [1, 2] for _, mine in parts)


@pytest.mark.parametrize(
    "bad",
    [{}, {"a": None}, {"a": 1.5}, {"a": True}, {"a": 2**70}, {"a": {"x": 1}}, "text", 7, None],
)
def test_a_record_without_a_key_is_refused_for_that_consumer_alone(bad: Any) -> None:
    values = [{"a": "x"}, bad, {"a": "y"}]
    parts, [refused] = fanout(one=by("a"), given=RECORD).split(
        batch(["k", "k", "k"], values), values
    )
    found = dict(parts)
    assert found["one"].keys == ["x", "y"]
    assert found["one"].seqs == [1, 3]
    assert len(found["given"]) == 3
    assert (refused.index, refused.node) == (1, "one")
    assert refused.reason


def test_integers_as_wide_as_a_key_may_be_are_taken() -> None:
    values = [{"a": 2**64 - 1}, {"a": -(2**63)}]
    parts, refused = fanout(one=by("a")).split(batch(["k", "k"], values), values)
    assert parts[0][1].keys == [2**64 - 1, -(2**63)]
    assert not refused


def test_lists_in_a_field_become_tuples() -> None:
    values = [{"a": ["x", 1]}]
    [(_, mine)], _ = fanout(one=by("a")).split(batch(["k"], values), values)
    assert mine.keys == [("x", 1)]


def test_an_extractor_that_raises_concerns_one_record() -> None:
    def extract(value: Any) -> Any:
        return 10 // value

    made = fanout(lambda spec: extract, one=KeySpec(KeyKind.FUNCTION, ("m:f",)))
    parts, [refused] = made.split(batch(["k", "k"], [5, 0]), [5, 0])
    assert parts[0][1].keys == [2]
    assert refused.index == 1
    assert "key extractor failed: ZeroDivisionError" in refused.reason


@pytest.mark.parametrize("node", ["n", "late_n"])
def test_a_record_without_a_key_is_named_by_its_place_among_all_late_ones_too(node: str) -> None:
    frame = pl.DataFrame({"a": ["x", "y", None, "z", None], "b": [1, 2, 3, 4, 5]})
    order = np.arange(5)
    made = fanout(**{node: KeySpec(KeyKind.FIELDS, ("a", "b"))})
    late = np.array([True, False, False, True, False])
    _, refused = made.split_columns(ColumnBatch("s", order, order, frame["b"], frame), late)
    assert [bad.index for bad in refused] == [2, 4]


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_columns_keyed_by_several_fields_go_where_rows_go(values: list[tuple[str, int]]) -> None:
    records = [{"a": text, "b": number} for text, number in values]
    order = np.arange(1, len(values) + 1)
    frame = pl.DataFrame(records, schema={"a": pl.String, "b": pl.Int64})
    made = fanout(n=KeySpec(KeyKind.FIELDS, ("b", "a")))
    [(_, columns)], _ = made.split_columns(ColumnBatch("s", order, order, frame["a"], frame))
    [(_, rows)], _ = made.split(batch(["p"] * len(values), records), records)
    assert isinstance(columns, ColumnBatch)
    assert columns.rows().keys == rows.keys
    found = [
        (shard, part.rows().keys, part.rows().seqs)
        for shard, part in router(table(3)).route("n", columns)
    ]
    assert found == [
        (shard, part.keys, part.seqs) for shard, part in router(table(3)).route("n", rows)
    ]


def test_late_records_in_columns_go_to_those_who_want_them() -> None:
    made = fanout(late_n=KeySpec(KeyKind.FIELD, ("a",)), m=KeySpec(KeyKind.FIELD, ("a",)))
    order = np.arange(3)
    frame = pl.DataFrame({"a": order})
    parts, _ = made.split_columns(
        ColumnBatch("s", order, order, frame["a"], frame), np.array([False, True, False])
    )
    assert {str(name): part.rows().keys for name, part in parts} == {
        "late_n": [0, 1, 2],
        "m": [0, 2],
    }
    parts, _ = made.split_columns(
        ColumnBatch("s", order, order, frame["a"], frame), np.array([True, True, True])
    )
    assert [str(name) for name, _ in parts] == ["late_n"]


@pytest.mark.parametrize(
    ("texts", "dead"), [([None, "b"], 1), (["a", "x" * 90], 1), (["a", "b" * 80], 0)]
)
def test_fields_of_which_one_may_be_no_key_are_looked_at_as_rows(
    texts: list[Any], dead: int
) -> None:
    frame = pl.DataFrame({"a": texts, "b": [1, 2]}, schema={"a": pl.String, "b": pl.Int64})
    order = np.arange(1, 3)
    made = fanout(n=KeySpec(KeyKind.FIELDS, ("a", "b")), most_key=92)
    parts, refused = made.split_columns(ColumnBatch("s", order, order, frame["b"], frame))
    assert [type(part) for _, part in parts] == [Batch]
    assert len(refused) == dead


@given(
    st.lists(
        st.lists(st.one_of(st.integers(0, 5_000), st.integers(-(2**63), 2**64 - 1)), min_size=1),
        min_size=1,
    )
)
def test_rows_keyed_by_a_field_go_where_their_keys_lie(batches: list[list[int]]) -> None:
    made, known = router(table(3)), {entry.shard: entry.range for entry in table(3).shards}
    for keys in batches:
        values = [{"a": key} for key in keys]
        [(_, mine)], _ = fanout(n=by("a")).split(batch(["p"] * len(keys), values), values)
        routed = made.route("n", mine)
        for shard, part in routed:
            assert part.keys == [key for key in keys if key_hash(key) in known[shard]]
            assert part.values == [{"a": key} for key in part.keys]
        assert sorted(seq for _, part in routed for seq in part.seqs) == list(
            range(1, len(keys) + 1)
        )


def test_keys_of_derived_types_become_plain_and_bools_are_refused() -> None:
    values = [{"a": 1}, {"a": IntEnum("Kind", "SMALL").SMALL}, {"a": True}]
    [(_, mine)], _ = fanout(one=by("a")).split(batch(["k"] * 2, values[:2]), values[:2])
    assert [type(key) for key in mine.keys] == [int, int]
    [(_, mine)], [refused] = fanout(one=by("a")).split(batch(["k"] * 3, values), values)
    assert mine.keys == [1, 1]
    assert (refused.index, "bool" in refused.reason) == (2, True)


def test_a_consumer_that_gets_nothing_is_left_out() -> None:
    assert fanout(one=by("a")).split(batch(["k"], [{}]), [{}])[0] == []


def test_nobody_takes_an_unknown_stream() -> None:
    made = fanout(one=by("a"))
    assert made.consumed("s")
    assert not made.consumed("other")
    other = Batch("other", [1], [1], ["k"], [1])
    assert made.split(other, [1]) == ([], [])


def test_late_records_go_only_to_consumers_that_want_them() -> None:
    values = [{"a": "x"}, {"a": "late"}, {}, {"a": "y"}]
    made = fanout(one=by("a"), late_two=by("a"))
    assert made.drops_late("s")
    parts, refused = made.split(batch(["k"] * 4, values), values, late={1})
    found = dict(parts)
    assert found["one"].keys == ["x", "y"]
    assert found["one"].seqs == [1, 4]
    assert found["late_two"].keys == ["x", "late", "y"]
    assert {(bad.node, bad.index) for bad in refused} == {("one", 2), ("late_two", 2)}
    assert not fanout(late_two=by("a")).drops_late("s")
