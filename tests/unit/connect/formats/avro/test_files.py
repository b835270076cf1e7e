"""Avro files as a source."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millwheel.connect.formats.avro.containers import ContainerRows
from millwheel.connect.sources.base import Chunk, FrameChunk, Reader
from millwheel.connect.sources.files.source import build_files
from millwheel.testing import PipelineHarness

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "n", "type": ["null", "long"]}, {"name": "t", "type": "string"}],
}
ROWS = [{"n": number or None, "t": f"é{number}"} for number in range(50)]


class Row(msgspec.Struct):
    n: int
    t: str


def opened(folder: Path, schema: type | None = None, **fields: str) -> Reader:
    (folder / "in.avro").write_bytes(ContainerRows(SCHEMA, True).encode(ROWS))
    source = build_files({"path": "*.avro", "format": "avro"}, str(folder), schema, fields)
    (partition,) = source.partitions()
    return source.open(partition)


def rest(reader: Reader, position: int, size: int) -> list[Chunk]:
    chunks = []
    with closing(reader):
        while True:
            chunks.append(reader.read(position, size))
            position = chunks[-1].next_position
            if chunks[-1].finished:
                return chunks


@pytest.mark.parametrize("position", [0, 1, 17, 49, 50])
def test_reading_goes_on_at_any_position(tmp_path: Path, position: int) -> None:
    chunks = rest(opened(tmp_path), position, 7)
    assert [value for chunk in chunks for value in chunk.values] == ROWS[position:]
    assert [at for chunk in chunks for at in chunk.positions] == list(range(position + 1, 51))


def test_columns_hold_what_rows_hold(tmp_path: Path) -> None:
    with closing(opened(tmp_path, n="int", t="str")) as reader:
        frame = reader.read_frame(0, 1 << 20)
    assert isinstance(frame, FrameChunk)
    assert frame.frame.to_dicts() == ROWS
    assert (frame.finished, frame.positions.tolist()) == (True, list(range(1, 51)))
    with closing(opened(tmp_path)) as reader:
        assert reader.read_frame(0, 1 << 20) is None


def test_records_that_do_not_fit_are_told_with_their_number(tmp_path: Path) -> None:
    (chunk,) = rest(opened(tmp_path, t="int"), 0, 100)
    assert (len(chunk), len(chunk.rejects), chunk.rejects[0].position) == (0, 50, 1)
    assert "is declared as int" in chunk.rejects[0].reason
    (chunk,) = rest(opened(tmp_path, Row), 0, 100)
    assert (chunk.values[0], [each.position for each in chunk.rejects]) == (Row(1, "é1"), [1])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"format": "avr"}, "did you mean 'avro'"),
        ({"format": "avro", "follow": True}, "'follow' does not fit format avro"),
        ({"format": {"avro": {"registry": {"url": "http://h"}}}}, "files have their schema within"),
        ({"format": {"avro": {"schema": "no.avsc"}}}, "cannot read"),
        ({"format": "avro", "columns": ["a"]}, "are for format: csv, not avro"),
    ],
)
def test_options_that_cannot_work_are_sentences(
    tmp_path: Path, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        build_files({"path": "*.avro", **options}, str(tmp_path), None, {})


def test_options_of_csv_may_stand_at_the_format(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("1;x\n")
    form = {"csv": {"columns": ["n", "t"], "delimiter": ";"}}
    source = build_files({"path": "in.csv", "format": form}, str(tmp_path), None, {"n": "int"})
    with closing(source.open(source.partitions()[0])) as reader:
        assert reader.read(0, 10).values == [{"n": 1, "t": "x"}]


PIPELINE = """
pipeline: p
streams:
  hits:
    source: {files: {path: "in.*", format: FORMAT}}
    timestamp: at
    watermark: {max_delay: 2s}
    FIELDS
computations:
  counts: {input: {hits: {key: k}}, window: {tumbling: 10s}, aggregate: {n: count, s: {sum: n}},
    output: counts}
sinks: {counts: {stdout: {}}}
"""
TYPES = {"at": "long", "k": "string", "n": "long"}


@pytest.mark.parametrize("crash_every", [None, 3])
@pytest.mark.parametrize("declared", [True, False])
def test_the_same_records_in_any_format_give_the_same_rows(
    tmp_path: Path, declared: bool, crash_every: int | None
) -> None:
    draw = random.Random(3)
    records = [
        {"at": (at + draw.randrange(5)) * 1_000_000, "k": draw.choice("abc"), "n": at}
        for at in range(60)
    ]
    fields = [{"name": name, "type": kind} for name, kind in TYPES.items()]
    contents = {
        "jsonl": b"".join(json.dumps(record).encode() + b"\n" for record in records),
        "avro": ContainerRows({"type": "record", "name": "H", "fields": fields}, True).encode(
            records
        ),
        "csv": b"at,k,n\n"
        + b"".join(b"%d,%s,%d\n" % (r["at"], r["k"].encode(), r["n"]) for r in records),
    }
    found = {}
    for name, content in contents.items():
        if name == "csv" and not declared:
            continue  # its numbers are text then
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"in.{name}").write_bytes(content)
        text = PIPELINE.replace("FORMAT", name)
        (folder / "p.yaml").write_text(
            text.replace("FIELDS", "fields: {at: int, k: str, n: int}" if declared else "")
        )
        with PipelineHarness(
            folder / "p.yaml", run_sources=True, crash_every=crash_every
        ) as harness:
            harness.advance_processing_time(10**9)
            found[name] = sorted(map(repr, harness.read("counts")))
    assert found["jsonl"]
    assert all(rows == found["jsonl"] for rows in found.values()), found
