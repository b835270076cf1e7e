"""Whether the rows of a query are those that DuckDB makes of the same files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from bench.checks import Check
from bench.nexmark.events import TABLES
from bench.nexmark.query import Query

Row = tuple[Any, ...]
_ROWS = 10_000  # at a time from DuckDB
_EXAMPLES = 1_000  # of rows that may be surplus


def judged(query: Query, events: Path, rows: Iterable[Mapping[str, Any]]) -> Check:
    """Each row once, no other; of a change log the last row of each key, or what is left of rows
    that are brought and taken back. They are counted by their hashes, since ten million of them
    take more memory than there is."""
    missing: Counter[int] = Counter()
    for number in map(_number, wanted(query, events)):
        missing[number] += 1
    expected, surplus = missing.total(), dict[int, Row]()
    for row in _folded(query, rows):
        brought = not query.marked or row["change"] == "+"
        made = tuple(_field(row, name) for name in query.columns)
        number = _number(made)
        missing[number] -= 1 if brought else -1
        if missing[number] < 0 and len(surplus) < _EXAMPLES:
            surplus[number] = made
    wrong = {number: count for number, count in missing.items() if count}
    return Check(
        expected,
        sum(map(abs, wrong.values())),
        _example(query, events, wrong, surplus) if wrong else "",
    )


def _number(row: Row) -> int:
    return hash(tuple(map(_hashable, row)))


def _example(
    query: Query, events: Path, wrong: Mapping[int, int], surplus: Mapping[int, Row]
) -> str:
    for row in wanted(query, events):
        if wrong.get(_number(row), 0) > 0:
            return f"missing: {row}"
    rows = (row for number, row in surplus.items() if wrong.get(number, 0) < 0)
    return f"surplus: {next(rows, 'one of many')}"


def wanted(query: Query, events: Path) -> Iterator[Row]:
    """The rows by DuckDB."""
    with _tables(events) as database:
        found = database.execute(query.sql)
        while rows := found.fetchmany(_ROWS):
            yield from rows


def number_wanted(query: Query, events: Path) -> int:
    """How many rows DuckDB makes."""
    with _tables(events) as database:
        [[number]] = database.execute(f"select count(*) from ({query.sql})").fetchall()
        return int(number)


@contextmanager
def _tables(events: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as database:
        for kind in TABLES:
            files = str(events / f"{kind}-*.jsonl")
            if any(events.glob(f"{kind}-*.jsonl")):
                database.read_json(files, format="newline_delimited").create_view(kind)
        yield database


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    """What a run has written: JSON lines below ``folder``."""
    for path in sorted(folder.rglob("*.jsonl")):
        with path.open("rb") as lines:
            yield from map(msgspec.json.decode, lines)


def _field(row: Any, name: str) -> Any:
    """``a.b`` is the field ``b`` of the record in ``a``, or of each of those in it."""
    for part in name.split("."):
        row = [each[part] for each in row] if isinstance(row, list) else row[part]
    return row


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _folded(query: Query, rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    if query.added:
        return _added(query, rows)
    if not query.key:
        return rows
    last: dict[Row, Mapping[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in query.key)
        if key not in last or last[key][query.newest] <= row[query.newest]:
            last[key] = row
    return last.values()


def _added(query: Query, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    names = [name for name in query.columns if name != query.added]
    sums: Counter[Row] = Counter()
    for row in rows:
        sums[tuple(row[name] for name in names)] += row[query.added]
    for key, value in sums.items():
        yield {**dict(zip(names, key, strict=True)), query.added: value}
