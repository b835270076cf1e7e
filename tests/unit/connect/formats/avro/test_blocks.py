"""What a container file may do to the memory of its reader: whatever it claims or unpacks to, very
little."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import fastavro
import pytest

from millwheel.connect.formats.avro import containers
from millwheel.connect.formats.avro.blocks import BlockSpan, read_head, read_span, unpacked
from millwheel.connect.formats.avro.containers import Container
from millwheel.connect.formats.avro.files import AvroReader
from millwheel.connect.formats.avro.messages import AvroMessages
from millwheel.connect.formats.avro.schema import most_bytes, parse
from millwheel.errors import SetupError

WIDE = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "ts", "type": "long"}, {"name": "x", "type": "string"}],
}
ITEM = {"type": "record", "name": "i", "fields": [{"name": "b", "type": "boolean"}]}
MANY = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "ts", "type": "long"},
        {"name": "x", "type": {"type": "array", "items": ITEM}},
    ],
}
CODECS = ("null", "deflate", "bzip2", "xz")


def written(
    path: Path, rows: list[dict[str, Any]], schema: Any = WIDE, codec: str = "deflate"
) -> str:
    with path.open("wb") as file:
        fastavro.writer(
            file, fastavro.parse_schema(schema), rows, codec=codec, sync_interval=1 << 30
        )
    return str(path)


def peak(path: str) -> tuple[list[Any], int]:
    tracemalloc.start()
    found = AvroReader(path, None, "float", None, {}).read(0, 10)
    _, high = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return [*found.values, *found.rejects], high


def test_a_small_file_takes_little_memory_however_much_it_unpacks_to(tmp_path: Path) -> None:
    path = written(tmp_path / "a.avro", [{"ts": n, "x": "a" * 2_000_000} for n in range(50)])
    found, high = peak(path)
    assert len(found) >= 3
    assert high < 60_000_000  # a read has some 16 MB of records


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_are_read_one_by_one_from_every_position(
    tmp_path: Path, codec: str
) -> None:
    rows = [{"ts": n, "x": "é" * (n * 30_000)} for n in range(10)]
    container = Container(written(tmp_path / "a.avro", rows, codec=codec), None, "float")
    found: list[Any] = []
    while not container.finished():
        found += container.after(len(found), 5)
    assert found == rows
    for position in (9, 0, 7):
        assert container.after(position, 1) == [rows[position]]


def test_codecs_without_a_package_of_their_own() -> None:
    import pyarrow as pa

    for codec, name in (("snappy", "snappy"), ("zstandard", "zstd"), ("lz4", "lz4_raw")):
        data = pa.compress(b"plain" * 100_000, codec=name, asbytes=True) + (
            b"1234" if codec == "snappy" else b""
        )
        data = (500_000).to_bytes(4, "little") + data if codec == "lz4" else data
        file = io.BytesIO(data)
        span = block_span(len(data))
        read = unpacked(file, span, codec)
        assert b"".join(iter(lambda read=read: read(1 << 16), b"")) == b"plain" * 100_000  # type: ignore[misc]


@pytest.mark.parametrize("codec", ["snappy", "lz4"])
def test_a_block_that_says_to_unpack_to_far_too_much_is_refused_before_it_is_unpacked(
    codec: str,
) -> None:
    length = b"\xff\xff\xff\xff\x0f" if codec == "snappy" else b"\xff" * 4
    with pytest.raises(ValueError, match="more than 64 MiB; write it with smaller blocks"):
        unpacked(io.BytesIO(length + bytes(100)), block_span(104), codec)


def block_span(size: int) -> BlockSpan:
    return BlockSpan(1, 0, size, size + 16)


def test_a_record_that_is_too_large_is_one_dead_letter_and_the_next_block_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.avro"
    blocks = [[1, 50_000, 1], [1]]
    with path.open("w+b") as file:
        for sizes in blocks:
            rows = [{"ts": size, "x": [{"b": True}] * size} for size in sizes]
            fastavro.writer(
                file, fastavro.parse_schema(MANY), rows, codec="deflate", sync_interval=1 << 30
            )
            file.seek(0, 2)
    for most, good in ((40_000, [1]), (60_000, [1, 50_000, 1])):
        monkeypatch.setattr(containers, "most_bytes", lambda schema, most=most: most)
        reader = AvroReader(str(path), None, "float", None, {})
        chunk = reader.read(0, 100)
        assert [value["ts"] for value in chunk.values] == good
        assert [each.position for each in chunk.rejects] == [2][: len(good) == 1]
        assert chunk.next_position == 3
        assert len(reader.read(3, 100).values) == 1
        assert reader.read(0, 100).next_position == 3
    monkeypatch.setattr(containers, "most_bytes", lambda schema: 40_000)
    assert (
        "the 1 records behind it"
        in AvroReader(str(path), None, "float", None, {}).read(0, 9).rejects[0].reason
    )


def test_items_that_take_more_memory_than_bytes_make_the_bound_lower() -> None:
    assert most_bytes(parse(MANY).bare) < 4 << 20 < most_bytes(parse(WIDE).bare)
    decoder = AvroMessages(MANY)
    long = b"\x02" + b"\x80\x80\x80\x04" + b"\x01" * (4 << 20)
    assert "more than" in decoder.decode([long]).wrong[0]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 10**9},
        {"type": "fixed", "name": "f", "size": 10**12},
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": f"f{n}", "type": "int"} for n in range(20_000)],
        },
    ],
)
def test_a_schema_of_a_file_cannot_take_for_ever(schema: Any) -> None:
    with pytest.raises(ValueError, match="more than"):
        parse(schema)


def test_a_schema_that_is_nested_without_end_is_a_sentence() -> None:
    deep: Any = "int"
    for _ in range(100_000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(ValueError, match="levels"):
        parse(deep)


def test_what_a_block_claims_is_not_believed(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "a.avro", [{"ts": 1, "x": "a"}], codec="null"))
    data = path.read_bytes()
    with path.open("rb") as file:
        head = read_head(file)
        span = read_span(file, head.end, head)
    assert span is not None
    for claim in (b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x01"):
        for changed in (
            claim + data[head.end + 1 :],
            data[head.end : head.end + 1] + claim + data[span.start :],
        ):
            path.write_bytes(data[: head.end] + changed)
            with pytest.raises(SetupError, match="cannot be read after record 0"):
                AvroReader(str(path), None, "float", None, {}).read(0, 10)
    path.write_bytes(data[: span.start + span.size] + bytes(16))
    with pytest.raises(SetupError, match="marker"):
        AvroReader(str(path), None, "float", None, {}).read(0, 10)


def test_endless_records_without_bytes_are_refused(tmp_path: Path) -> None:
    empty = {"type": "record", "name": "r", "fields": []}
    path = Path(written(tmp_path / "a.avro", [{}] * 3, empty, "null"))
    assert AvroReader(str(path), None, "float", None, {}).read(0, 10).values == [{}] * 3
    data = path.read_bytes()
    with path.open("rb") as file:
        end = read_head(file).end
    path.write_bytes(data[:end] + b"\xfe\xff\xff\xff\x0f" + data[end + 1 :])
    with pytest.raises(SetupError, match="without any bytes"):
        AvroReader(str(path), None, "float", None, {}).read(0, 10)
