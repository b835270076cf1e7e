from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from millwheel.control.savepoints.blueprint import Blueprint, NodeBlueprint
from millwheel.control.savepoints.orders import (
    Standing,
)
from millwheel.control.savepoints.record import (
    NOTES_FILE,
    RECORD_FILE,
    SavepointRecord,
    encode_record,
    first_tables,
    note,
    noted_savepoints,
    read_record,
    saved_shards,
)
from millwheel.core.model.range_table import Ancestor, RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import SetupError

LINEAGE = (Ancestor("w0", 3, -1, 7),)
TABLE = RangeTable(
    "a", tuple(ShardEntry(f"a-{n}", keys, "w1", 4, LINEAGE) for n, keys in enumerate(tile(2))), 8
)
CUT = {"a-0": Standing(4, 10), "a-1": Standing(4, 11)}


def record() -> SavepointRecord:
    return SavepointRecord(
        "s1", "p-1", "/root", "now", True, 5, Blueprint("p", {}), saved_shards([TABLE], CUT)
    )


def test_a_record_comes_back_and_gives_tables_that_nobody_owns_under_tokens_that_only_rise(
    tmp_path: Path,
) -> None:
    (tmp_path / RECORD_FILE).write_bytes(encode_record(record()))
    found = read_record(tmp_path)
    assert found == record()
    (table,) = first_tables(found, ["a", "new"])
    assert [(e.shard, e.range, e.owner, e.token, e.lineage) for e in table.shards] == [
        (e.shard, e.range, "", 4, ()) for e in TABLE.shards
    ]
    assert table.version == -1
    assert first_tables(found, ["new"]) == []


def test_a_folder_without_a_record_and_a_damaged_one_are_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        SetupError, match=r"contains no savepoint .* `millwheel savepoint FOLDER` takes one"
    ):
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


OUTSIDE = ("../x", "/etc/x", "a/b", "", "a\0b", "..", ".hidden", "x" * 300, "a\\b", "a\nb")


@pytest.mark.parametrize("bad", OUTSIDE)
@pytest.mark.parametrize("where", ["shard", "node", "name", "named", "blueprint"])
def test_a_savepoint_of_others_cannot_name_what_lies_elsewhere(
    tmp_path: Path, bad: str, where: str
) -> None:
    whole = record()
    changed = {
        "shard": {
            "shards": [msgspec.structs.replace(whole.shards[0], shard=bad), *whole.shards[1:]]
        },
        "node": {"shards": [msgspec.structs.replace(whole.shards[0], node=bad), *whole.shards[1:]]},
        "name": {"name": bad},
        "named": {"named": {bad: 1}},
        "blueprint": {"blueprint": Blueprint("p", {bad: NodeBlueprint("source", {})})},
    }[where]
    (tmp_path / RECORD_FILE).write_bytes(encode_record(msgspec.structs.replace(whole, **changed)))
    with pytest.raises(SetupError, match="cannot be used"):
        read_record(tmp_path)


WRONG = ({"token": -1}, {"commit": -1}, {"lo": "zz"}, {"lo": "-1"}, {"hi": "0"}, {"hi": "f" * 99})


@pytest.mark.parametrize("changed", WRONG)
def test_numbers_of_a_shard_are_checked_when_they_are_read(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    whole = record()
    shards = [msgspec.structs.replace(whole.shards[0], **changed), *whole.shards[1:]]
    (tmp_path / RECORD_FILE).write_bytes(
        encode_record(msgspec.structs.replace(whole, shards=shards))
    )
    with pytest.raises(SetupError, match="cannot be used"):
        read_record(tmp_path)


def savepoint(name: str) -> Any:
    return SimpleNamespace(
        name=name, taken="2026-11-23T10:00:00+00:00", shards=[1, 2], held_ms=7, last=False
    )


def test_savepoints_are_listed_newest_first_with_whether_they_are_there(tmp_path: Path) -> None:
    assert noted_savepoints(tmp_path) == []
    for name in ("s1", "s2"):
        note(tmp_path, tmp_path / name, savepoint(name))
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / RECORD_FILE).write_text("")
    found = noted_savepoints(tmp_path)
    assert [(each.name, each.shards, there) for each, there in found] == [
        ("s2", 2, False),
        ("s1", 2, True),
    ]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    note(tmp_path, tmp_path / "s1", savepoint("s1"))
    with open(tmp_path / NOTES_FILE, "ab") as file:
        file.write(b'{"folder": "/x", "na')
    assert [each.name for each, _ in noted_savepoints(tmp_path)] == ["s1"]
