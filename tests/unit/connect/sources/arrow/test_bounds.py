"""What a Parquet file may do to the memory of its reader: little, whatever its metadata says and
its pages hold."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millwheel.connect.sources.arrow import bounds
from millwheel.connect.sources.arrow.bounds import ParquetBounds
from millwheel.connect.sources.arrow.pages import Encoding, PageKind, pages_of, span_of
from millwheel.connect.sources.arrow.parquet import ParquetBatches, ParquetReader
from millwheel.connect.sources.arrow.ranges import KeptFile
from millwheel.errors import SetupError

MOST = 1 << 20  # the bound in these tests
ROWS = 3_000


def dictionary(texts: list[str], rows: int = ROWS) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array([at % len(texts) for at in range(rows)], pa.int32()), texts
    )


BOMBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a long text of a dictionary": (dictionary(["a" * 100_000]), {}),
    "one long text among short ones": (dictionary(["é" * 50_000, *map(str, range(2_500))]), {}),
    "long texts among empty ones": (dictionary(["", "a" * 100_000, "b"]), {"compression": "none"}),
    "a text of a dictionary of snappy": (dictionary(["a" * 100_000]), {"compression": "snappy"}),
    "pages of the second kind": (dictionary(["a" * 100_000]), {"data_page_version": "2.0"}),
    "texts that begin alike": (
        pa.array(["a" * 10_000] * ROWS),
        {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY", "n": "PLAIN"}},
    ),
    "long plain texts": (
        pa.array(["a" * 10_000] * ROWS),
        {"use_dictionary": False, "data_page_size": 100_000, "write_batch_size": 10},
    ),
    "bytes of a fixed size": (pa.array([b"b" * 2_000] * ROWS, pa.binary(2_000)), {}),
}


def written(path: Path, column: Any, **options: Any) -> str:
    table = pa.table({"n": list(range(len(column))), "x": column})
    pq.write_table(
        table,
        path,
        **{
            "compression": "zstd",
            "dictionary_pagesize_limit": 1 << 30,
            "store_schema": False,
            **options,
        },
    )
    return str(path)


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that tests can afford to reach."""
    monkeypatch.setattr(bounds, "MOST_BYTES", MOST)
    monkeypatch.setattr(bounds, "MOST_RATIO", 1_000_000)
    monkeypatch.setattr(bounds, "_UNCHECKED_BYTES", MOST // 64)


def peak(read: Callable[[], object]) -> int:
    """The most bytes that Arrow has at a time, while something is read."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        read()
    finally:
        pa.set_memory_pool(before)
    return int(pool.max_memory())


def read_on(batches: ParquetBatches, most: int = 10) -> list[int]:
    """Some rows, as frames are read: their numbers."""
    found: list[int] = []
    for _ in range(most):
        batch = batches.after(len(found), 1_000, ["n", "x"])
        if batch is None:
            break
        found += batch.column(0).to_pylist()
    return found


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("name", BOMBS)
def test_no_file_takes_more_memory_than_the_bound_whatever_its_pages_stand_for(
    name: str, tmp_path: Path
) -> None:
    column, options = BOMBS[name]
    path = written(tmp_path / "a.parquet", column, **options)
    found: list[int] = []
    assert peak(lambda: found.extend(read_on(ParquetBatches(path)))) < 4 * MOST
    assert found == list(range(len(found)))
    assert len(found) > 0


@pytest.mark.usefixtures("low")
def test_without_the_bound_of_rows_these_files_take_far_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ParquetBounds, "rows", lambda self, groups, columns, wanted: wanted)
    path = written(tmp_path / "a.parquet", dictionary(["a" * 100_000], 300))
    assert peak(lambda: read_on(ParquetBatches(path))) > 20 * MOST


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("rows", [1, 60_000])
def test_lists_whose_values_take_no_bytes_are_left_out_with_their_row_group(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_RATIO", 100)
    path = str(tmp_path / "a.parquet")
    small = pa.table({"n": [1], "x": [[1]]})
    bomb = pa.table({"n": [2] * rows, "x": [[7] * (300_000 // rows)] * rows})
    with pq.ParquetWriter(path, small.schema, compression="zstd") as writer:
        for table in (small, bomb, small):
            writer.write_table(table)
    found: list[Any] = []
    reader = ParquetReader(path, None, {})
    assert peak(lambda: found.extend(reader.read(at, 100) for at in (0, 1, rows + 1))) < 4 * MOST
    first, refused, last = found
    assert [value["n"] for value in (*first.values, *last.values)] == [1, 1]
    assert (refused.next_position, [each.position for each in refused.rejects]) == (rows + 1, [2])
    assert f"row group 2 of {path} unpacks to more than" in refused.rejects[0].reason


def pread(file: Any, at: int, size: int) -> bytes:
    file.seek(at)
    data: bytes = file.read(size)
    return data


class Lying:
    """Metadata that says that nothing takes a byte."""

    total_byte_size = 1
    total_uncompressed_size = 1

    def __init__(self, true: Any) -> None:
        self._true = true

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._true, name)
        return (lambda at: Lying(found(at))) if name in ("row_group", "column") else found


def test_metadata_that_lies_about_sizes_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_BYTES", MOST)
    column = pa.array(["a" * 100_000] * 100)
    path = written(tmp_path / "a.parquet", column, use_dictionary=False)
    with open(path, "rb") as file:
        found = ParquetBounds(Lying(pq.read_metadata(path)), lambda at, size: pread(file, at, size))
        assert "unpacks to more than" in str(found.refused(0, ["x"]))
        assert found.refused(0, ["n"]) is None


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("seed", range(40))
def test_damaged_bytes_are_a_sentence_or_rows_and_never_much_memory(
    seed: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    path = tmp_path / "a.parquet"
    written(path, dictionary(["a", "bc" * 200], 400), data_page_size=300)
    data = bytearray(path.read_bytes())
    for _ in range(draw.randrange(1, 4)):
        data[draw.randrange(4, 600)] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    path.write_bytes(data)
    assert peak(lambda: read_damaged(path)) < 8 * MOST


def read_damaged(path: Path) -> None:
    """Read on to the end, or to a sentence."""
    with suppress(SetupError):
        reader = ParquetReader(str(path), None, {"n": "int", "x": "str"})
        position = 0
        while position < 400:
            frame = reader.read_frame(position, 1 << 16)
            assert frame is not None
            assert frame.next_position > position
            position = frame.next_position


def test_more_pages_than_can_be_looked_at_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "_MOST_PAGES", 3)
    path = written(tmp_path / "a.parquet", pa.array(["a" * 100] * 100), data_page_size=100,
    use_dictionary=False,
                   write_batch_size=10)  # fmt: skip
    chunk = ParquetReader(path, None, {}).read(0, 10)
    assert ["has more than 3 pages" in each.reason for each in chunk.rejects] == [True]


# ranges.py: The bytes of a file that were looked at are not fetched again.


def test_an_object_is_fetched_once_for_the_look_and_for_the_rows(tmp_path: Path) -> None:
    path = Path(
        written(
            tmp_path / "a.parquet",
            dictionary([str(at) * 20 for at in range(500)]),
            row_group_size=500,
        )
    )
    asked: list[int] = []

    class Content(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(size or 0)
            return super().read(size)

    data = path.read_bytes()
    batches = ParquetBatches("a.parquet", Content(data))
    source = batches._groups._source
    assert isinstance(source, KeptFile)
    found: list[int] = []
    while (batch := batches.after(len(found), 700, None)) is not None:
        found += batch.column(0).to_pylist()
    assert found == list(range(ROWS))
    assert sum(asked) < 1.2 * len(data) + (64 << 10)  # the end of the file is read first
    assert len(asked) <= 2 + ROWS // 500
    assert not source._kept


# pages.py: Pages of Parquet files are found by their headers alone.


def test_pages_are_found_by_their_headers(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", dictionary(["x" * 5_000, "y"]), data_page_size=100)
    column = pq.read_metadata(path).row_group(0).column(1)
    with open(path, "rb") as file:
        found = list(pages_of(lambda at, size: pread(file, at, size), span_of(column)))
    assert (found[0].kind, found[0].values, found[0].plain) == (PageKind.DICTIONARY, 2, 5_009)
    assert {page.encoding for page in found[1:]} == {Encoding.RLE_DICTIONARY}
    assert sum(page.values for page in found[1:]) == ROWS
