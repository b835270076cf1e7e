"""Container files: read from any record on, written so that others read them."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from typing import Any

import fastavro
import pytest

from millwheel.connect.formats.avro.containers import Container, ContainerRows, avro_rows, joined
from millwheel.connect.formats.options import read_format
from millwheel.errors import RecordError, SetupError

TIME = {"type": "long", "logicalType": "timestamp-millis"}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "at", "type": ["null", TIME], "default": None},
    ],
}
ROWS = [{"n": number, "at": number * 1_000 if number % 2 else None} for number in range(300)]


def written(folder: Path, codec: str = "deflate") -> str:
    parsed = fastavro.parse_schema(SCHEMA)
    with (folder / "in.avro").open("wb") as out:
        rows = [{"n": n, "at": n if n % 2 else None} for n in range(300)]
        fastavro.writer(out, parsed, rows, codec, sync_interval=200)
    return str(folder / "in.avro")


def rest(container: Container, position: int, most: int) -> list[Any]:
    found: list[Any] = []
    with closing(container):
        while not container.finished():
            found += container.after(position + len(found), most)
    return found


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2"])
def test_a_file_of_others_is_read_from_every_position(tmp_path: Path, codec: str) -> None:
    path = written(tmp_path, codec)
    for position in (0, 1, 37, 150, 299, 300):
        container = Container(path, None, "float")
        container.after(position, 1)  # seeks
        assert container.after(position, 0) == []
        assert rest(container, position, 7) == ROWS[position:]


def test_a_reader_schema_resolves_the_records(tmp_path: Path) -> None:
    reader = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "double"}]}
    assert rest(Container(written(tmp_path), reader, "float"), 0, 1_000)[:2] == [
        {"n": 0.0},
        {"n": 1.0},
    ]


def test_others_read_what_we_write_with_its_logical_types(tmp_path: Path) -> None:
    rows = ContainerRows(SCHEMA, True)
    data = rows.encode(ROWS)
    assert data == rows.encode(ROWS)
    reader = fastavro.reader(io.BytesIO(data))
    assert reader.writer_schema["fields"][1]["type"][1]["logicalType"] == "timestamp-millis"
    assert [each["n"] for each in reader] == list(range(300))
    (tmp_path / "out.avro").write_bytes(data)
    assert rest(Container(str(tmp_path / "out.avro"), None, "float"), 0, 1_000) == ROWS
    both = joined(data, rows.encode(ROWS[:3]))
    assert both is not None
    (tmp_path / "both.avro").write_bytes(both)
    assert rest(Container(str(tmp_path / "both.avro"), None, "float"), 0, 1_000) == ROWS + ROWS[:3]
    assert joined(data, ContainerRows({**SCHEMA, "name": "S"}, True).encode([])) is None


def test_a_row_that_does_not_fit_is_told() -> None:
    rows = avro_rows(read_format({"avro": {"schema": SCHEMA}}, ("avro",)), "")
    assert rows is not None
    rows.check(ROWS[0])
    with pytest.raises(RecordError, match="field 'n' is str"):
        rows.check({"n": "x"})
    assert avro_rows(read_format("csv", ("csv",)), "") is None


def test_files_that_are_none_damaged_or_changed_are_sentences(tmp_path: Path) -> None:
    path = Path(written(tmp_path))
    container = Container(str(path), None, "float")
    with (
        closing(container),
        pytest.raises(SetupError, match="has 300 records, but 301 were read before"),
    ):
        container.after(301, 1)
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    with pytest.raises(SetupError, match=r"in\.avro cannot be read after record \d+"):
        rest(Container(str(path), None, "float"), 0, 1_000)
    path.write_bytes(b"no avro")
    with pytest.raises(SetupError, match="as an Avro container file"):
        Container(str(path), None, "float")
    with pytest.raises(SetupError, match="cannot read the input file"):
        Container(str(tmp_path / "no.avro"), None, "float")
