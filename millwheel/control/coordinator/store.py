"""The storage of the embedded coordinator: range tables and named values, in one SQLite file below
the root."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from millwheel.adapters.rights import private_file
from millwheel.control.coordinator.effects import StoreTable, StoreValue
from millwheel.core.formats.coordinator_messages import StoredTable
from millwheel.errors import CorruptionError, SetupError, UnavailableError

_BUSY_S = 0.2
"""How long one write waits for a lock on the database: far less than a session may be silent, since
no request is answered meanwhile."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tables (name TEXT PRIMARY KEY, data BLOB NOT NULL,
  version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS named_values (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
"""


class CoordinatorStore:
    """``path`` is created if absent, in an existing folder. For one thread.

    Raises SetupError when it cannot be opened, CorruptionError when it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            for file in (
                path,
                path.with_name(f"{path.name}-wal"),
                path.with_name(f"{path.name}-shm"),
            ):
                if file == path or file.exists():
                    private_file(file)  # SQLite gives the files beside it the same permissions
            self._database = sqlite3.connect(path, _BUSY_S, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            # WAL alone may lose the last commits with the power; a table that was acknowledged must
            # stay.
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(_SCHEMA)
        except (OSError, sqlite3.OperationalError) as error:
            raise SetupError(
                f"The coordinator cannot open {path}: {error}. Check the folder's permissions and"
                " space"
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def tables(self) -> list[StoredTable]:
        """The last version of each table."""
        return [StoredTable(*row) for row in self._read("SELECT name, data, version FROM tables")]

    def values(self) -> dict[str, bytes]:
        """All named values."""
        return dict(self._read("SELECT name, data FROM named_values"))

    def write(self, effects: Iterable[StoreTable | StoreValue]) -> None:
        """Write all of them or none, durably on return. Raises UnavailableError when that is not
        possible now."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                for effect in effects:
                    self._write(effect)
                self._database.execute("COMMIT")
            except sqlite3.Error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise UnavailableError(f"The coordinator cannot write {self._path}: {error}") from error

    def close(self) -> None:
        """Idempotent."""
        self._database.close()

    def _write(self, effect: StoreTable | StoreValue) -> None:
        if isinstance(effect, StoreTable):
            table = effect.table
            row = (table.name, table.data, table.version)
            self._database.execute("INSERT OR REPLACE INTO tables VALUES (?, ?, ?)", row)
        else:
            self._database.execute(
                "INSERT INTO named_values VALUES (?, ?)", (effect.name, effect.data)
            )

    def _read(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self._database.execute(query).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: sqlite3.Error) -> CorruptionError:
        return CorruptionError(
            f"The coordinator's database {self._path} is damaged: {error}. Without its range tables"
            " it is uncertain which journals count: restore it from a backup of the root, or begin"
            " a new root from a savepoint"
        )
