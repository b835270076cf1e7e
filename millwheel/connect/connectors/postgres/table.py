"""A table's description from the server: its columns with their types, and its unique columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.errors import SetupError

_COLUMNS = """
select a.attname, format_type(a.atttypid, a.atttypmod), t.typcategory::text, t.typname,
       a.attgenerated <> '' or a.attidentity = 'a',
         a.attnotnull and not a.atthasdef and a.attidentity = '',
       exists (select from pg_operator o where o.oprname = '=' and o.oprleft = t.oid and o.oprright
         = t.oid)
       or t.typcategory in ('A', 'E', 'R'),
       case when t.typname in ('varchar', 'bpchar') and m.typmod > 4 then m.typmod - 4 else 0 end,
       t.typname in ('text', 'varchar') and m.typmod < 0
       and coalesce((select c.collisdeterministic from pg_collation c where c.oid =
         a.attcollation), true),
       coalesce((select quote_ident(n.nspname) || '.' || quote_ident(c.collname) from pg_collation c
                 join pg_namespace n on n.oid = c.collnamespace
                 where c.oid = a.attcollation and c.collname <> 'default'), '')
from pg_attribute a join pg_type d on d.oid = a.atttypid
cross join lateral (select coalesce(nullif(a.atttypmod, -1), d.typtypmod) as typmod) m
join pg_type t on t.oid = case when d.typtype = 'd' then d.typbasetype else d.oid end
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum"""
_TAKES_ROWS = """
select c.relkind::text, pg_relation_is_updatable(c.oid,
  true) & 8 <> 0 from pg_class c where c.oid = %s"""
_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
}
_UNIQUE = """
select array(select a.attname::text from unnest(i.indkey::int2[]) k join pg_attribute a
             on a.attrelid = i.indrelid and a.attnum = k)
from pg_index i
where i.indrelid = %s and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null
  and i.indexprs is null
"""


_PART = re.compile(r'("(?:[^"]|"")+"|[^".][^.]*)(\.|$)')
_PARTS = re.compile(r'("(?:[^"]|"")+"|[^".][^.]*)(\.("(?:[^"]|"")+"|[^".][^.]*))?')


@dataclass(frozen=True, slots=True)
class TableColumn:
    """``type_name`` is as in SQL, ``numeric(10,2)``; ``category`` is PostgreSQL's, ``base`` the
    type's short name. ``compares``: its type has ``=``. ``letters`` is the most that
    ``varchar(n)`` and ``char(n)`` hold, 0 for no limit. ``by_text``: two values are equal only if
    their texts are. ``collation`` is that of the column in SQL, "" for the default."""

    name: str
    type_name: str
    category: str
    base: str
    generated: bool
    required: bool
    compares: bool
    letters: int = 0
    by_text: bool = False
    collation: str = ""

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
    """``name`` is as the user wrote it; ``unique`` are the sets of columns that may not occur
    twice. ``refuses`` is its kind in words if it takes no rows, for example a view."""

    name: str
    columns: dict[str, TableColumn]
    unique: tuple[frozenset[str], ...]
    refuses: str = ""


def look_at(connection: Any, name: str) -> DatabaseTable | None:
    """The table as it is now; None if there is none. Raises psycopg's errors."""
    (oid,) = connection.execute("select to_regclass(%s)::oid", (quoted(name),)).fetchone()
    if oid is None:
        return None
    columns = [TableColumn(*row) for row in connection.execute(_COLUMNS, (oid,)).fetchall()]
    unique = [frozenset(names) for (names,) in connection.execute(_UNIQUE, (oid,)).fetchall()]
    ((kind, takes_rows),) = connection.execute(_TAKES_ROWS, (oid,)).fetchall()
    refuses = "" if takes_rows else _KINDS.get(kind, "a relation")
    return DatabaseTable(name, {column.name: column for column in columns}, tuple(unique), refuses)


def create_statement(name: str, columns: dict[str, str], by: Sequence[str]) -> str:
    """CREATE TABLE for columns and their types."""
    lines = [f"{quoted_name(column)} {kind}" for column, kind in columns.items()]
    lines += [f"primary key ({', '.join(map(quoted_name, by))})"] if by else []
    return f"create table if not exists {quoted(name)} ({', '.join(lines)})"


def quoted_name(name: str) -> str:
    """A name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted(name: str) -> str:
    """The name of a table in SQL, with its schema if it has one: ``billing.ctr``. A part that has a
    dot itself is written in double quotes."""
    return ".".join(quoted_name(part) for part in parts_of(name))


def parts_of(name: str) -> list[str]:
    """Schema and table of a name as people write it. Raises ValueError for quotes that do not
    match."""
    if not _PARTS.fullmatch(name):
        raise ValueError(
            f'{name!r} is not a name of a table; write ctr, billing.ctr or "with.a dot"'
        )
    return [
        part[1:-1].replace('""', '"') if part.startswith('"') else part
        for part, _ in _PART.findall(name)
    ]


def as_written(name: str) -> str:
    """The name of a table as :func:`parts_of` reads it."""
    return quoted_name(name) if "." in name or '"' in name else name


def escaped(text: str) -> str:
    """Beside placeholders a percent sign is written twice."""
    return text.replace("%", "%%")


def check_by(table: DatabaseTable, by: Sequence[str]) -> None:
    """Raises SetupError unless the columns identify a row."""
    if frozenset(by) not in table.unique:
        names = ", ".join(map(quoted_name, by))
        raise SetupError(
            f"the table {table.name} has no unique index on ({', '.join(by)}), which option 'by'"
            f" names; create one: alter table {quoted(table.name)} add primary key ({names})"
        )
