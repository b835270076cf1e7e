"""Objects read in one version, whoever reads on."""

from __future__ import annotations

import gzip
import logging
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.adapters.spaces.object_store import ObjectStore
from millwheel.connect.sources.base import Partition, Reader
from millwheel.connect.sources.files import object_input
from millwheel.connect.sources.files.objects import ObjectsSource
from millwheel.connect.sources.files.source import FileForms, FilesSourceOptions
from millwheel.errors import ExhaustedError, SetupError, UnavailableError
from tests.fakes.reading import Everything, read_on

ROWS = [{"n": n, "text": "x" * (n % 50)} for n in range(3_000)]
LINES = b"".join(b'{"n":%d,"text":"%s"}\n' % (row["n"], row["text"].encode()) for row in ROWS)  # type: ignore[attr-defined,str-bytes-safe]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_input, "BLOCK_BYTES", 1_000)


class Store(ObjectStore):
    def __init__(self) -> None:
        super().__init__(ObjectAddress("s3", "bucket", ""), {})
        self._client = MemoryStore()
        self.away = False

    def read(self, key: str, start: int, end: int, tag: str = "") -> bytes:
        if self.away:
            raise UnavailableError("no answer")
        return super().read(key, start, end, tag)


def opened(
    store: Store, key: str, kind: str = "jsonl", follow: bool = False, fields: Any = None
) -> Reader:
    options = FilesSourceOptions(path=f"s3://bucket/{key}", format=kind, follow=follow)
    forms = FileForms(options, None, fields or {})
    return ObjectsSource(store, [key], follow, False, forms.object_reader).open(Partition(key))


def parquet(row_group_size: int) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS), out, row_group_size=row_group_size)
    return bytes(out.getvalue())


def begun(reader: Reader, notes: Any = ((0, b""),)) -> tuple[int, bytes]:
    """The decision with which it begins."""
    reader.resume(notes)
    chunk = reader.read(notes[0][0], 10)
    assert not len(chunk)
    assert chunk.begins is not None
    return chunk.begins


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    ("key", "kind", "data"),
    [
        ("a.jsonl", "jsonl", LINES),
        ("a.jsonl.gz", "jsonl", gzip.compress(LINES)),
        ("a.jsonl.zst", "jsonl", bytes(pa.compress(LINES, codec="zstd", asbytes=True))),
        ("a.parquet", "parquet", parquet(700)),
    ],
)
def test_an_object_is_read_whole_and_from_every_middle(
    key: str, kind: str, data: bytes, columns: bool
) -> None:
    store = Store()
    store.stage(key, data)
    fields = {"n": "int", "text": "str"}
    decided = begun(opened(store, key, kind, fields=fields))

    def from_position(position: int) -> Everything:
        reader = opened(store, key, kind, fields=fields)
        reader.resume([(position, b""), decided] if not position else [(position, decided[1])])
        found = read_on(reader, position, size=20_000 if columns else 300, columns=columns)
        reader.close()
        return found

    whole = from_position(0)
    assert whole.values == ROWS
    assert whole.finished
    for index in (0, 1_000, 2_998):
        assert from_position(whole.records[index][0]).records == whole.records[index + 1 :]


@pytest.mark.parametrize(
    ("key", "kind", "data"), [("a.jsonl", "jsonl", LINES), ("a.parquet", "parquet", parquet(700))]
)
def test_whole_records_are_columns_where_all_of_their_fields_are_known(
    key: str, kind: str, data: bytes
) -> None:
    store = Store()
    store.stage(key, data)
    for fields, known in (({"n": "int", "text": "str"}, True), ({"n": "int"}, False)):
        reader = opened(store, key, kind, fields=fields)
        reader.resume([(0, b""), begun(opened(store, key, kind, fields=fields))])
        assert reader.take_whole(fields)
        found = reader.read_frame(0, 20_000)
        assert (found is not None) == known
        assert len(reader.read(0, 100)) > 0
        reader.close()


@pytest.mark.parametrize("follow", [False, True])
def test_an_object_that_is_replaced_before_it_was_read_stops_the_run(follow: bool) -> None:
    store = Store()
    store.stage("a.jsonl", LINES)
    decided = begun(opened(store, "a.jsonl", follow=follow))
    store.stage("a.jsonl", LINES + b"{}\n")
    reader = opened(store, "a.jsonl", follow=follow)
    reader.resume([(0, b""), decided])
    with pytest.raises(
        SetupError, match="replaced while it was read, before all of it had been read"
    ):
        read_on(reader)


def test_an_object_that_is_replaced_after_it_was_read_is_not_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    store.stage("a.jsonl", b'{"n":1}\n')
    first = opened(store, "a.jsonl", follow=True)
    decided = begun(first)
    reader = opened(store, "a.jsonl", follow=True)
    reader.resume([(0, b""), decided])
    chunk = reader.read(0, 10)
    assert (len(chunk), chunk.finished) == (1, False)
    store.stage("a.jsonl", b'{"n":1}\n{"n":2}\n')
    later = opened(store, "a.jsonl", follow=True)
    later.resume([(chunk.next_position, chunk.note)])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            again = later.read(chunk.next_position, 10)
    assert (len(again), again.caught_up, again.finished) == (0, True, False)
    assert caplog.text.count("was replaced after it had been read") == 1


def test_a_store_that_is_away_is_asked_again() -> None:
    store = Store()
    store.stage("a.jsonl", LINES)
    reader = opened(store, "a.jsonl")
    begun(reader)
    store.away = True
    with pytest.raises(ExhaustedError):
        reader.read(0, 10)
    store.away = False
    assert len(reader.read(0, 10)) == 10


def test_an_object_that_is_gone_is_said_or_waited_for() -> None:
    reader = opened(Store(), "a.jsonl")
    reader.resume([(0, b"")])
    with pytest.raises(SetupError, match="is gone"):
        reader.read(0, 10)
    waiting = opened(Store(), "a.jsonl", follow=True)
    waiting.resume([(0, b"")])
    assert waiting.read(0, 10).caught_up
