"""Contexts beside records: found again by what identifies a record."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.model.records import Batch
from millwheel.core.tracing import TraceContext
from millwheel.engine.workers.tracing import table as module
from millwheel.engine.workers.tracing.table import Arrived, TraceTable

CONTEXT = TraceContext(f"00-{'a' * 32}-{'c' * 16}-01", "v=1")
HERE = Arrived(CONTEXT)


def rows(*seqs: int) -> Batch:
    return Batch("s", list(seqs), [1] * len(seqs), ["k"] * len(seqs), [1] * len(seqs))


def columns(*seqs: int) -> ColumnBatch:
    count = len(seqs)
    frame = pl.DataFrame({"n": list(range(count))})
    return ColumnBatch(
        "s", np.array(seqs), np.ones(count, np.int64), pl.Series(["k"] * count), frame
    )


@pytest.mark.parametrize("batch", [rows(2, 5, 9), columns(2, 5, 9)])
def test_a_record_is_found_by_its_number_in_rows_and_in_columns(batch: Batch | ColumnBatch) -> None:
    table = TraceTable()
    for number in (9, 3, 5, 11):
        table.put("c", number, HERE)
    assert table.found("c", batch) == [(1, HERE), (2, HERE)]
    assert table.found("other", batch) == []
    assert table.found("c", rows()) == []


def test_a_record_without_a_number_is_found_by_its_id() -> None:
    table = TraceTable()
    table.put("c", b"y", HERE)
    weak = Batch("s", [], [1, 1], ["k", "k"], [1, 1], [b"x", b"y"])
    assert table.found("c", weak) == [(1, HERE)]
    assert table.found("c", Batch("s", [], [1], ["k"], [1])) == [], (
        "without ids nothing can be found"
    )


def test_what_travels_beside_a_batch_is_found_at_the_other_end() -> None:
    here, there = TraceTable(), TraceTable()
    here.put("c", 5, HERE)
    there.incoming("c", here.outgoing("c", rows(4, 5), "worker-0", 70), 90)
    assert there.found("c", rows(4, 5)) == [(1, Arrived(CONTEXT, "worker-0", 70, 90))]
    assert here.outgoing("c", rows(6), "worker-0", 70) == b""
    assert here.outgoing("d", rows(5), "worker-0", 70) == b""


NO_PARENT, NO_IDENTITY = b"\x93\xa1a\x01\x91\x93\x01\xa1x\xa0", b"\x93\xa1a\x01\x91\x93\x90\xa0\xa0"


@pytest.mark.parametrize("data", [b"\xff", b"junk", NO_PARENT, NO_IDENTITY])
def test_what_is_no_context_is_ignored(data: bytes) -> None:
    table = TraceTable()
    table.incoming("c", data, 1)
    assert table.found("c", rows(1, 2, 3)) == []


def test_the_table_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EACH", 2)
    monkeypatch.setattr(module, "_CHANNELS", 2)
    table = TraceTable()
    for number in (7, 3, 5):
        table.put("c", number, HERE)
    assert [index for index, _ in table.found("c", rows(3, 5, 7))] == [0, 1]
    table.put("d", 1, HERE)
    table.put("e", 1, HERE)
    assert table.found("c", rows(3, 5, 7)) == []
    table.put("d", 1, HERE)  # again: a source that reads once more
    assert table.found("d", rows(1)) == [(0, HERE)]
