from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from millwheel.control.coordinator.effects import StoreTable, StoreValue
from millwheel.control.coordinator.store import CoordinatorStore
from millwheel.core.formats.coordinator_messages import StoredTable
from millwheel.errors import CorruptionError, SetupError, UnavailableError


def test_the_last_version_of_a_table_and_all_values_are_there_after_a_restart(
    tmp_path: Path,
) -> None:
    path = tmp_path / "coordinator.db"
    store = CoordinatorStore(path)
    store.write([StoreTable(StoredTable("traffic", b"a", 0)), StoreValue("instance", b"x")])
    store.write([StoreTable(StoredTable("traffic", b"b", 1))])
    store.close()
    again = CoordinatorStore(path)
    assert again.tables() == [StoredTable("traffic", b"b", 1)]
    assert again.values() == {"instance": b"x"}
    again.close()


def test_a_step_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    store = CoordinatorStore(tmp_path / "coordinator.db")
    store.write([StoreValue("instance", b"x")])
    with pytest.raises(UnavailableError, match="cannot write"):
        store.write([StoreTable(StoredTable("traffic", b"a", 0)), StoreValue("instance", b"y")])
    assert store.tables() == []
    store.write([StoreTable(StoredTable("traffic", b"a", 0))])
    assert store.tables() == [StoredTable("traffic", b"a", 0)]
    store.close()


def test_what_is_acknowledged_is_synced(tmp_path: Path) -> None:
    store = CoordinatorStore(tmp_path / "coordinator.db")
    database: sqlite3.Connection = store._database
    assert database.execute("PRAGMA synchronous").fetchone() == (2,)
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_damaged_database_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(CorruptionError, match="is damaged"):
        CoordinatorStore(path)


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot open"):
        CoordinatorStore(tmp_path / "none" / "coordinator.db")


def test_its_files_are_for_its_user_alone_also_those_of_an_older_root(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    path.touch(0o644)
    store = CoordinatorStore(path)
    store.write([StoreValue("instance", b"x")])
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    store.close()
    assert modes == dict.fromkeys((path.name, f"{path.name}-wal", f"{path.name}-shm"), 0o600)
