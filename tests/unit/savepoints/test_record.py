from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.model.range_table import Ancestor, RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import SetupError
from millwheel.savepoints.blueprint import Blueprint
from millwheel.savepoints.orders import Standing
from millwheel.savepoints.record import (
    RECORD_FILE,
    SavepointRecord,
    encode_record,
    first_tables,
    read_record,
    saved_shards,
)

LINEAGE = (Ancestor("w0", 3, -1, 7),)
TABLE = RangeTable("a", tuple(ShardEntry(f"a-{n}", keys, "w1", 4, LINEAGE) for n, keys in enumerate(tile(2))), 8)
CUT = {"a-0": Standing(4, 10), "a-1": Standing(4, 11)}


def record() -> SavepointRecord:
    return SavepointRecord("s1", "p-1", "/root", "now", True, 5, Blueprint("p", {}), saved_shards([TABLE], CUT))


def test_a_record_comes_back_and_gives_tables_that_nobody_owns_under_tokens_that_only_rise(tmp_path: Path) -> None:
    (tmp_path / RECORD_FILE).write_bytes(encode_record(record()))
    found = read_record(tmp_path)
    assert found == record()
    (table,) = first_tables(found, ["a", "new"])
    assert [(e.shard, e.range, e.owner, e.token, e.lineage) for e in table.shards] == [
        (e.shard, e.range, "", 4, ()) for e in TABLE.shards
    ]
    assert table.version == -1
    assert first_tables(found, ["new"]) == []


def test_a_folder_without_a_record_and_a_damaged_one_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"contains no savepoint .* `millwheel savepoint FOLDER` takes one"):
        read_record(tmp_path)
    (tmp_path / "snapshots").mkdir()
    with pytest.raises(SetupError, match="It was not finished"):
        read_record(tmp_path)
    whole = encode_record(record())
    (tmp_path / RECORD_FILE).write_bytes(whole.replace(b'"commit": 10', b'"commit": 12'))
    with pytest.raises(SetupError, match="fails its checksum"):
        read_record(tmp_path)
    (tmp_path / RECORD_FILE).write_bytes(whole[:50])
    with pytest.raises(SetupError, match="cannot be used"):
        read_record(tmp_path)
