"""What result files hold, and which rows they cannot hold."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pytest

from millwheel.sinks.base import SinkBatch, SinkRecord
from millwheel.sinks.files.sink import build_files

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
AVRO = {"avro": {"schema": SCHEMA}}
RECORDS = [SinkRecord("k", {"n": 1}, 5), SinkRecord("k", {"n": "x"}, 6), SinkRecord("k", {"n": 2}, 7)]


@pytest.mark.parametrize("layout", [{}, {"roll": {"size": "1MB"}}])
def test_rows_that_do_not_fit_are_refused_and_the_others_are_a_file(tmp_path: Path, layout: dict[str, Any]) -> None:
    sink = build_files({"path": "out", "format": AVRO, **layout}, str(tmp_path))
    sink.check("root")
    writer = sink.open("s-0", 1)
    for number in range(2):
        writer.publish(writer.prepare(SinkBatch(number, f"1-{number}", RECORDS)))
        assert [(each.record, each.reason) for each in writer.take_refused()] == [
            (RECORDS[1], "field 'n' is str 'x', but the Avro schema wants a long")
        ]
    files = sorted((tmp_path / "out").glob("*.avro"))
    assert len(files) == (1 if layout else 2)
    found = [row for path in files for row in fastavro.reader(io.BytesIO(path.read_bytes()))]
    assert found == [{"n": 1}, {"n": 2}] * 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"format": "avro"}, "avro needs 'schema'"),
        ({"format": AVRO, "mode": "upsert", "by": "n"}, "option 'mode' is upsert"),
        ({"format": AVRO, "fields": {"n": "int"}}, "option 'fields' fixes the columns of format: parquet and csv"),
        ({"format": {"csv": {"delimiter": ";"}}}, "csv has no options here"),
        ({"format": "parket"}, "did you mean 'parquet'"),
        ({"format": {"avro": {"schema": "no.avsc"}}}, "cannot read"),
    ],
)
def test_options_that_cannot_work_are_sentences(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build_files({"path": "out", **options}, str(tmp_path))
