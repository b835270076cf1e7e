"""The statements that write rows: one by one for a few, by COPY for many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from millwheel.connectors.postgres.rows import TextRow
from millwheel.connectors.postgres.table import DatabaseTable, quoted, quoted_name

BULK_ROWS = 64
"""The number of rows from which on COPY is faster than statements in a pipeline."""
_STAGE = "millwheel_rows"


def waves(rows: Sequence[TextRow], upsert: bool) -> Iterator[list[TextRow]]:
    """The rows in groups of one kind, in which no identity occurs twice: groups in their order, rows in any. The
    changes of one identity keep their order."""
    found: dict[tuple[int, bool, tuple[str, ...]], list[TextRow]] = {}
    depth: dict[tuple[str | None, ...], int] = {}
    for row in rows:
        wave = 0
        if upsert:
            wave = depth.get(row.identity, -1) + 1
            depth[row.identity] = wave
        found.setdefault((wave, row.back, row.names), []).append(row)
    for _, group in groupby(sorted(found, key=lambda key: key[0]), key=lambda key: key[0]):
        for key in group:
            yield found[key]


class TableWriter:
    """Writes into one table. ``by`` are the columns that identify a row, empty where rows are only appended."""

    def __init__(self, table: DatabaseTable, by: Sequence[str]) -> None:
        self._table = table
        self._by = tuple(by)

    def write(self, connection: Any, rows: Sequence[TextRow]) -> None:
        """Write the rows within the open transaction. Raises psycopg's errors."""
        for wave in waves(rows, bool(self._by)):
            if wave[0].back:
                self._delete(connection, wave)
            elif len(wave) < BULK_ROWS:
                with connection.cursor() as cursor:
                    cursor.executemany(self._insert(wave[0].names), [row.values for row in wave])
            else:
                self._copy(connection, wave)

    def _copy(self, connection: Any, rows: Sequence[TextRow]) -> None:
        names = rows[0].names
        columns = _listed(names)
        target = quoted(self._table.name)
        if self._by:  # COPY knows no conflicts
            connection.execute(
                f"create temporary table {_STAGE} on commit drop as select {columns} from {target} with no data"
            )
            target, into = _STAGE, target
        with connection.cursor() as cursor:
            with cursor.copy(f"copy {target} ({columns}) from stdin") as copy:
                for row in rows:
                    copy.write_row(row.values)
        if self._by:
            connection.execute(f"insert into {into} ({columns}) select {columns} from {_STAGE} {self._conflict(names)}")
            connection.execute(f"drop table {_STAGE}")

    def _insert(self, names: Sequence[str]) -> str:
        values = ", ".join("%s" for _ in names)
        conflict = self._conflict(names) if self._by else ""
        into = _escaped(f"insert into {quoted(self._table.name)} ({_listed(names)})")
        return f"{into} values ({values}) {_escaped(conflict)}"

    def _conflict(self, names: Sequence[str]) -> str:
        others = [quoted_name(name) for name in names if name not in self._by]
        does = f"update set {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "nothing"
        return f"on conflict ({_listed(self._by)}) do {does}"

    def _delete(self, connection: Any, rows: Sequence[TextRow]) -> None:
        """Delete rows, each only if it is still as it was written; otherwise another row has replaced it."""
        names = rows[0].names
        conditions = " and ".join(self._is(name) for name in names)
        with connection.cursor() as cursor:
            table = _escaped(quoted(self._table.name))
            cursor.executemany(f"delete from {table} where {conditions}", [row.values for row in rows])

    def _is(self, name: str) -> str:
        column = self._table.columns[name]
        own, given = _escaped(quoted_name(name)), f"cast(%s as {_escaped(column.type_name)})"
        if name in self._by:
            return f"{own} = {given}"
        if not column.compares:
            own, given = f"{own}::text", f"{given}::text"
        return f"{own} is not distinct from {given}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted_name, names))


def _escaped(text: str) -> str:
    """Beside placeholders a percent sign is written twice."""
    return text.replace("%", "%%")
