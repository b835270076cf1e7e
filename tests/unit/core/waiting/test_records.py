"""Which records may wait in columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

from millwheel.core.aggregates.columns import Unfit
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.ranked.kept_records import AT, ROW
from millwheel.core.waiting.records import (
    AnyWaitingColumns,
    KeyTypes,
    WaitingColumns,
    numbers_of,
)
from millwheel.core.waiting.segments import CHANNEL, NUMBER

KEYS = KeyTypes(("k",), pl.Int64)
FIELDS = {"k": "int", "f": "float"}
OF_FIELDS = WaitingColumns(KEYS, FIELDS, 1_000, ROW)
OF_ANY = AnyWaitingColumns(KeyTypes((), None), {}, 1_000, ROW)


def batch(columns: Mapping[str, Any], times: list[int]) -> ColumnBatch:
    frame = pl.DataFrame(columns)
    return ColumnBatch("s", np.arange(len(times)), np.array(times), frame["k"], frame)


@pytest.mark.parametrize("columns", [OF_FIELDS, OF_ANY])
def test_floats_that_are_no_numbers_and_long_texts_do_not_wait(columns: WaitingColumns) -> None:
    given = batch({"k": [1, 2, 3], "f": [1.0, float("nan"), None]}, [1, 2, 3])
    assert columns.fitting(given, None).tolist() == [True, False, True]
    given = batch({"k": [1, 2], "f": [1.0, 2.0], "s": ["x", "x" * 900]}, [1, 2])
    assert columns.fitting(given, None).tolist() == [True, False]


def test_records_of_another_form_do_not_wait() -> None:
    nested = batch({"k": [1], "f": [{"a": 1.0}]}, [1])
    for columns in (OF_FIELDS, OF_ANY):
        with pytest.raises(Unfit):
            columns.fitting(nested, None)
        with pytest.raises(Unfit):
            columns.fitting(batch({"k": [1], "f": [1.0]}, [1]), pl.Struct({"k": pl.Int64}))
    with pytest.raises(Unfit):
        OF_FIELDS.fitting(batch({"k": [1]}, [1]), None)
    with pytest.raises(Unfit):
        OF_ANY.in_columns("s", [1], [{"k": 1}], [1])


def test_records_that_wait_are_sorted_and_know_their_place() -> None:
    given = batch({"k": [1, 2, 3], "f": [1.0, 2.0, 3.0]}, [5, 2, 3])
    frame = OF_FIELDS.waiting(given, "c", numbers_of([7, 8, 9]))
    assert frame.select(KEY, AT, NUMBER, CHANNEL).rows() == [
        (2, 2, 8, "c"), (3, 3, 9, "c"), (1, 5, 7, "c"),
    ]  # fmt: skip
    assert frame[ROW].to_list()[2] == {"k": 1, "f": 1.0}


def test_a_key_of_several_parts_tells_the_type_of_each() -> None:
    kind = pl.Struct({"a": pl.Int64, "b": pl.String})
    assert KeyTypes(("a", "b"), kind).key_types == {"a": pl.Int64, "b": pl.String}
    assert KEYS.key_types == {"k": pl.Int64}
