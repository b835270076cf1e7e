"""Options of the files sink that cannot work are refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.sinks.files.sink import build_files

AVRO = {
    "avro": {"schema": {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}}
}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"format": "avro"}, "avro needs 'schema'"),
        ({"format": AVRO, "mode": "upsert", "by": "n"}, "option 'mode' is upsert"),
        (
            {"format": AVRO, "fields": {"n": "int"}},
            "option 'fields' fixes the columns of format: parquet and csv",
        ),
        ({"format": {"csv": {"delimiter": ";"}}}, "csv has no options here"),
        ({"format": "parket"}, "did you mean 'parquet'"),
        ({"format": {"avro": {"schema": "no.avsc"}}}, "cannot read"),
    ],
)
def test_formats_that_cannot_be_written(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build_files({"path": "out", **options}, str(tmp_path))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "hdfs://name/x"}, "nothing here reads or writes hdfs://"),
        ({"path": "kafka://broker/x"}, r"pip install 'millwheel-spark\[kafka\]'"),
        ({"path": "s3://"}, "names no bucket"),
        ({"path": "s3://key:word@bucket/x"}, "credentials and endpoint belong into 'config'"),
        (
            {"path": "out", "config": {"region": "x"}},
            "option 'config' is for the client of an object store",
        ),
        ({"path": "out", "roll": {"size": "many"}}, "option 'roll'"),
        ({"path": "out", "roll": {"every": "0s"}}, "closes files at once"),
        (
            {"path": "out", "roll": {}, "mode": "upsert", "by": "a"},
            "option 'roll' does not fit mode: upsert",
        ),
        ({"path": "out", "partition_by": ["a + b"]}, "needs a name"),
    ],
)
def test_places_and_layouts_that_cannot_work(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_files(options, "/")
