"""What result files hold, and which rows they cannot hold."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import polars as pl
import pytest

from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.connect.sinks.files.content import Content, Shape
from millwheel.connect.sinks.files.layout import Piece, Pieces, pack, unpack
from millwheel.connect.sinks.files.sink import build_files
from millwheel.connect.sinks.result_rows import records_of
from millwheel.core.columns.batch import ColumnBatch, key_column
from millwheel.core.columns.changes import retractions_of
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.errors import CorruptionError

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
AVRO = {"avro": {"schema": SCHEMA}}
RECORDS = [
    SinkRecord("k", {"n": 1}, 5),
    SinkRecord("k", {"n": "x"}, 6),
    SinkRecord("k", {"n": 2}, 7),
]


@pytest.mark.parametrize("layout", [{}, {"roll": {"size": "1MB"}}])
def test_rows_that_do_not_fit_are_refused_and_the_others_are_a_file(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    sink = build_files({"path": "out", "format": AVRO, **layout}, str(tmp_path))
    sink.check("root")
    writer = sink.open("s-0", 1)
    for number in range(2):
        writer.publish(writer.prepare(SinkBatch(number, f"1-{number}", RECORDS)))
        assert [(each.record, each.reason) for each in writer.take_refused()] == [
            (RECORDS[1], "field 'n' is str 'x', but the Avro schema requires a long")
        ]
    files = sorted((tmp_path / "out").glob("*.avro"))
    assert len(files) == (1 if layout else 2)
    found = [row for path in files for row in fastavro.reader(io.BytesIO(path.read_bytes()))]
    assert found == [{"n": 1}, {"n": 2}] * 2


def test_keys_of_several_fields_in_columns_are_lists_as_they_are_in_rows() -> None:
    frame = pl.DataFrame({"a": ["x", "y"], "n": [1, 2]})
    order = np.arange(2)
    batch = ColumnBatch("s", order, order, key_column([frame["a"], frame["n"]]), frame)
    content = Content(Shape("jsonl", True, True, {}, None))
    in_columns = content.of(SinkBatch(1, "1-1", [], [batch]))
    assert in_columns == content.encode(records_of(batch))
    assert json.loads(in_columns.splitlines()[1]) == {
        "key": ["y", 2],
        "timestamp": 1,
        "a": "y",
        "n": 2,
    }


@pytest.mark.parametrize("with_key", [True, False])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_records_in_columns_are_the_file_that_they_are_in_rows(form: str, with_key: bool) -> None:
    order = np.arange(2)
    frames = [
        pl.DataFrame({"a": ["x", None], "n": [1, 2], "f": [1e16, -0.0]}),
        pl.DataFrame({"a": ["y", "z"], "n": [0.5, 1.0]}),
    ]
    batches = [
        ColumnBatch("s", order, order, pl.Series("key", ["k", "l"]), each) for each in frames
    ]
    content, rows = (Content(Shape(form, with_key, True, {}, None)) for _ in range(2))
    for some in ([batches[0]], batches, [batches[1], batches[1]]):
        whole = [record for batch in some for record in records_of(batch)]
        assert content.of(SinkBatch(1, "1-1", [], some)) == rows.encode(whole)


@pytest.mark.parametrize("with_key", [True, False])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_changes_in_columns_are_the_file_that_they_are_in_rows(form: str, with_key: bool) -> None:
    order = np.arange(2)
    new = pl.DataFrame({"a": ["x", None], "change": [1, 2], "f": [1e16, -0.0]})
    frames = [retractions_of(new), new, new.with_columns(pl.Series(RETRACTION_FIELD, [1, None]))]
    back, brings, odd = (
        ColumnBatch("s", order, order, pl.Series("key", ["k", "l"]), each) for each in frames
    )
    content, rows = (Content(Shape(form, with_key, True, {}, "change")) for _ in range(2))
    for some in ([back, brings], [brings], [back], [brings, odd]):
        whole = [record for batch in some for record in records_of(batch)]
        assert content.of(SinkBatch(1, "1-1", [], some)) == rows.encode(whole)


# pieces.py: Committables of sinks with a layout.


def test_what_was_packed_is_unpacked() -> None:
    told = Pieces(3, [Piece("a=1/part-x-00000003.jsonl", "part-x.tmp", 1, 3, 7, b"{}\n")])
    assert unpack(pack(told)) == told


@pytest.mark.parametrize("final", ["", "../x", "a//b", "/x", "a/./b"])
def test_names_that_lead_elsewhere_are_damage(final: str) -> None:
    data = pack([3, [[final, "t", 1, 3, 7, b""]]])
    with pytest.raises(CorruptionError):
        unpack(data)
