from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.model.keys import NULL
from millwheel.core.pipeline.keys import EVERYTHING, INSTANCE, KeyKind, KeySpec
from millwheel.core.pipeline.query_changes import QueryChanges, QueryRow
from millwheel.core.pipeline.spec import (
    Delivery,
    PipelineSpec,
    Productions,
    QuerySpec,
    SinkSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import WindowSpec
from millwheel.errors import CorruptionError
from tests.computations import computation_spec


def test_records_have_ids_only_where_they_are_sent_early_and_must_count_once() -> None:
    found = {
        (delivery, productions): computation_spec(
            "c", (), (), delivery=delivery, productions=productions
        ).identified
        for delivery in Delivery
        for productions in Productions
    }
    assert [dial for dial, identified in found.items() if identified] == [
        (Delivery.EXACTLY_ONCE, Productions.WEAK)
    ]


@pytest.mark.parametrize(
    ("late", "lateness", "side", "takes"),
    [
        ("drop", 0, "", False),
        ("drop", 5, "", True),
        ("refire", 0, "", True),
        ("side:aside", 0, "aside", True),
    ],
)
def test_late_records_go_aside_are_taken_or_dropped(
    late: str, lateness: int, side: str, takes: bool
) -> None:
    spec = computation_spec(
        "c", (), (), window=WindowSpec("global"), late=late, allowed_lateness_us=lateness
    )
    assert (spec.late_side, spec.takes_late) == (side, takes)


def test_a_stream_without_a_declaration_has_the_defaults() -> None:
    declared = StreamSpec("a", max_delay_us=5)
    pipeline = PipelineSpec("p", (declared,), (), (), "/")
    assert pipeline.stream("a") is declared
    assert pipeline.stream("b") == StreamSpec("b")


def test_files_and_standard_output_refuse_no_record() -> None:
    assert [SinkSpec("s", kind).may_refuse for kind in ("files", "stdout", "kafka")] == [
        False,
        False,
        True,
    ]


# keys.py: How records get their keys.


@pytest.mark.parametrize(
    ("key", "value", "row"),
    [
        (KeySpec(KeyKind.FIELD, ("k",)), 7, {"k": 7}),
        (KeySpec(KeyKind.FIELDS, ("k", "n")), ("a", 7), {"k": "a", "n": 7}),
        (KeySpec(KeyKind.FIELD, ("k",), 4), ("a", 3), {"k": "a", INSTANCE: 3}),
        (KeySpec(KeyKind.FIELD, ("k",)), ("a", 3), {"k": ("a", 3)}),
        (KeySpec(KeyKind.RECORD), 7, {"key": 7}),
        (KeySpec(KeyKind.FUNCTION, ("m:f",), 4), (7, 3), {"key": 7, INSTANCE: 3}),
        (KeySpec(KeyKind.EXPRESSIONS, ("day",), texts=("n // 2",)), 7, {"day": 7}),
        (KeySpec(KeyKind.ALL), EVERYTHING, {}),
        (KeySpec(KeyKind.ALL, instances=4), (EVERYTHING, 3), {"key": "all", INSTANCE: 3}),
        (KeySpec(KeyKind.FIELD, ("k",), nulls=True), NULL, {"k": None}),
        (KeySpec(KeyKind.FIELDS, ("k", "n"), nulls=True), (NULL, 0), {"k": None, "n": 0}),
        (KeySpec(KeyKind.FIELD, ("k",)), NULL, {"k": ()}),
    ],
)
def test_results_hold_a_key_under_the_names_of_its_parts(
    key: KeySpec, value: Any, row: dict[str, Any]
) -> None:
    assert key.naming()(value) == row


# query_changes.py: The table of named queries that changed while a pipeline ran.

SHARE = QuerySpec("share", "site / views.n", 60_000_000, ("site", "ad"), {"views": ("ad",)})


def test_a_query_is_the_same_after_it_was_stored() -> None:
    changes = QueryChanges().changed([QueryRow.of(SHARE)], "a")
    read = QueryChanges.decode(changes.encode())
    assert read == changes
    assert [row.spec for row in read.rows] == [SHARE]


def test_of_each_name_the_last_change_counts() -> None:
    changes = (
        QueryChanges()
        .changed([QueryRow("a", "x.n"), QueryRow("b", "y.n")], "1")
        .changed([QueryRow("a")], "2")
    )
    assert changes.number == 2
    assert {row.name: row.formula for row in changes.rows} == {"a": "", "b": "y.n"}


@pytest.mark.parametrize("data", [b"", b"torn", b"[]", b'{"number": "x"}'])
def test_damage_is_told(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="not a table of named queries"):
        QueryChanges.decode(data)
