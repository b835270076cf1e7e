"""A table's description from the server: its columns with their types, and its unique columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.errors import SetupError

_COLUMNS = """
select a.attname, format_type(a.atttypid, a.atttypmod), t.typcategory::text, t.typname,
       a.attgenerated <> '' or a.attidentity = 'a', a.attnotnull and not a.atthasdef and a.attidentity = '',
       exists (select from pg_operator o where o.oprname = '=' and o.oprleft = t.oid and o.oprright = t.oid)
       or t.typcategory in ('A', 'E', 'R')
from pg_attribute a join pg_type d on d.oid = a.atttypid
join pg_type t on t.oid = case when d.typtype = 'd' then d.typbasetype else d.oid end
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum"""
_UNIQUE = """
select array(select a.attname::text from unnest(i.indkey::int2[]) k join pg_attribute a
             on a.attrelid = i.indrelid and a.attnum = k)
from pg_index i
where i.indrelid = %s and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and i.indexprs is null
"""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """``type_name`` is as in SQL, ``numeric(10,2)``; ``category`` is PostgreSQL's, ``base`` the type's short name.
    ``compares`` says that its type has ``=``."""

    name: str
    type_name: str
    category: str
    base: str
    generated: bool
    required: bool
    compares: bool

    @property
    def holds_json(self) -> bool:
        """Values are written as JSON."""
        return self.base in ("json", "jsonb")

    @property
    def holds_time(self) -> bool:
        """Whole numbers are µs since 1970."""
        return self.base in ("timestamptz", "timestamp", "date")


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """``name`` is as the user wrote it; ``unique`` are the sets of columns that may not occur twice."""

    name: str
    columns: dict[str, TableColumn]
    unique: tuple[frozenset[str], ...]


def look_at(connection: Any, name: str) -> DatabaseTable | None:
    """The table as it is now; None if there is none. Raises psycopg's errors."""
    (oid,) = connection.execute("select to_regclass(%s)::oid", (quoted(name),)).fetchone()
    if oid is None:
        return None
    columns = [TableColumn(*row) for row in connection.execute(_COLUMNS, (oid,)).fetchall()]
    unique = [frozenset(names) for (names,) in connection.execute(_UNIQUE, (oid,)).fetchall()]
    return DatabaseTable(name, {column.name: column for column in columns}, tuple(unique))


def create_statement(name: str, columns: dict[str, str], by: Sequence[str]) -> str:
    """CREATE TABLE for columns and their types."""
    lines = [f"{quoted_name(column)} {kind}" for column, kind in columns.items()]
    lines += [f"primary key ({', '.join(map(quoted_name, by))})"] if by else []
    return f"create table if not exists {quoted(name)} ({', '.join(lines)})"


def quoted_name(name: str) -> str:
    """A name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted(name: str) -> str:
    """The name of a table in SQL, with its schema if it has one: ``billing.ctr``."""
    return ".".join(quoted_name(part) for part in name.split("."))


def check_by(table: DatabaseTable, by: Sequence[str]) -> None:
    """Raises SetupError unless the columns identify a row."""
    if frozenset(by) not in table.unique:
        names = ", ".join(map(quoted_name, by))
        raise SetupError(
            f"the table {table.name} has no unique index on ({', '.join(by)}), which option 'by' names; "
            f"create one: alter table {quoted(table.name)} add primary key ({names})"
        )
