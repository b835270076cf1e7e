"""The statements that write rows: one by one for a few, by COPY for many.

The server decides which rows are the same: with ``citext``, a collation without case, a date made
of times, or '007' for 7, different texts are equal values. A statement must not change a row twice,
and changes of a row keep their order, so rows are divided by the server's equality.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from typing import Any

from millwheel.connect.connectors.postgres.table import DatabaseTable, escaped, quoted, quoted_name
from millwheel.connect.connectors.postgres.text_rows import TextRow

BULK_ROWS = 64
"""The number of rows from which on COPY is faster than statements in a pipeline."""
_STAGE = "millwheel_rows"


_OWN_TEXT = {
    **dict.fromkeys(("int2", "int4", "int8"), re.compile(r"0|-?[1-9]\d*")),
    **dict.fromkeys(
        ("timestamptz", "timestamp"), re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00")
    ),
    "uuid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
}
"""Forms of text of which each value of a type has only one."""


def waves(
    rows: Sequence[TextRow], identities: Sequence[Hashable] | None
) -> Iterator[list[TextRow]]:
    """The rows in groups of one kind, in which no identity occurs twice: groups in their order,
    rows in any. The changes of one identity keep their order. ``identities`` are those of the rows;
    None: all rows are different."""
    groups: dict[tuple[int, bool, tuple[str, ...]], list[TextRow]] = {}
    depth: dict[Hashable, int] = {}
    for index, row in enumerate(rows):
        wave = 0
        if identities is not None:
            identity = identities[index]
            wave = depth.get(identity, -1) + 1
            depth[identity] = wave
        groups.setdefault((wave, row.back, row.names), []).append(row)
    for _, group in groupby(sorted(groups, key=lambda key: key[0]), key=lambda key: key[0]):
        for key in group:
            yield groups[key]


class TableWriter:
    """Writes into one table. ``by`` are the columns that identify a row, empty where rows are only
    appended."""

    def __init__(self, table: DatabaseTable, by: Sequence[str]) -> None:
        self._table = table
        self._by = tuple(by)

    def write(self, connection: Any, rows: Sequence[TextRow]) -> None:
        """Write the rows within the open transaction. Raises psycopg's errors."""
        for wave in waves(rows, self._identities(connection, rows) if self._by else None):
            if wave[0].back:
                self._delete(connection, wave)
            elif len(wave) < BULK_ROWS:
                with connection.cursor() as cursor:
                    cursor.executemany(self._insert(wave[0].names), [row.values for row in wave])
            else:
                self._copy(connection, wave)

    def _identities(self, connection: Any, rows: Sequence[TextRow]) -> Sequence[Hashable]:
        """The identity of each row: the texts of ``by`` if equal values have equal texts, else a
        number by the server. Raises psycopg's errors for a value that does not fit."""
        if len(rows) == 1 or all(map(self._identified_by_text, rows)):
            return [row.identity for row in rows]
        names = [f"k{at}" for at in range(len(self._by))]
        values = ", ".join(map(self._stored, names, self._by))
        placeholders = ", ".join("%s::text[]" for _ in names)
        ranks = connection.execute(
            f"select dense_rank() over (order by {values}) from unnest({placeholders}) "
            f"with ordinality as given({', '.join(names)}, n) order by n",
            [[row.identity[at] for row in rows] for at in range(len(names))],
        )
        return [rank for (rank,) in ranks.fetchall()]

    def _stored(self, text: str, name: str) -> str:
        """The value of the column ``name`` for a text."""
        column = self._table.columns[name]
        collation = f" collate {escaped(column.collation)}" if column.collation else ""
        return f"cast({text} as {escaped(column.type_name)}){collation}"

    def _identified_by_text(self, row: TextRow) -> bool:
        columns = [self._table.columns[name] for name in self._by]
        for column, text in zip(columns, row.identity, strict=True):
            form = _OWN_TEXT.get(column.base)
            if not column.by_text and (form is None or not form.fullmatch(text or "")):
                return False
        return True

    def _copy(self, connection: Any, rows: Sequence[TextRow]) -> None:
        names = rows[0].names
        columns = _listed(names)
        target = quoted(self._table.name)
        if self._by:  # COPY has no "on conflict"
            connection.execute(
                f"create temporary table {_STAGE} on commit drop as select {columns} from {target}"
                " with no data"
            )
            target, into = _STAGE, target
        with connection.cursor() as cursor:
            with cursor.copy(f"copy {target} ({columns}) from stdin") as copy:
                for row in rows:
                    copy.write_row(row.values)
        if self._by:
            connection.execute(
                f"insert into {into} ({columns}) select {columns} from {_STAGE}"
                f" {self._conflict(names)}"
            )
            # At once: the next wave of the same transaction makes it again.
            connection.execute(f"drop table {_STAGE}")

    def _insert(self, names: Sequence[str]) -> str:
        values = ", ".join("%s" for _ in names)
        conflict = self._conflict(names) if self._by else ""
        into = escaped(f"insert into {quoted(self._table.name)} ({_listed(names)})")
        return f"{into} values ({values}) {escaped(conflict)}"

    def _conflict(self, names: Sequence[str]) -> str:
        others = [quoted_name(name) for name in names if name not in self._by]
        does = (
            f"update set {', '.join(f'{name} = excluded.{name}' for name in others)}"
            if others
            else "nothing"
        )
        return f"on conflict ({_listed(self._by)}) do {does}"

    def _delete(self, connection: Any, rows: Sequence[TextRow]) -> None:
        """Delete rows, each only if it is still as it was written; otherwise another row has
        replaced it."""
        names = rows[0].names
        conditions = " and ".join(self._is(name) for name in names)
        with connection.cursor() as cursor:
            table = escaped(quoted(self._table.name))
            cursor.executemany(
                f"delete from {table} where {conditions}", [row.values for row in rows]
            )

    def _is(self, name: str) -> str:
        column = self._table.columns[name]
        own, stored = escaped(quoted_name(name)), f"cast(%s as {escaped(column.type_name)})"
        if name in self._by:
            return f"{own} = {stored}"
        if not column.compares:
            own, stored = f"{own}::text", f"{stored}::text"
        return f"{own} is not distinct from {stored}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted_name, names))
