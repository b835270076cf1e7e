"""Whether the rows of a query are those that DuckDB makes of the same files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from bench.checks import Check
from bench.nexmark.events import TABLES
from bench.nexmark.query import Query

Row = tuple[Any, ...]


def judged(query: Query, events: Path, rows: Iterable[Mapping[str, Any]]) -> Check:
    """Each row once, no other; of a change log the last row of each key, or what is left of rows
    that are brought and taken back."""
    expected = Counter(tuple(map(_hashable, row)) for row in wanted(query, events))
    actual: Counter[Row] = Counter()
    for row in _folded(query, rows):
        brought = not query.marked or row["change"] == "+"
        made = tuple(_hashable(_field(row, name)) for name in query.columns)
        actual[made] += 1 if brought else -1
    wrong = list(((expected - actual) + (actual - expected)).elements())
    example = "" if not wrong else f"{'missing' if expected[wrong[0]] else 'surplus'}: {wrong[0]}"
    return Check(expected.total(), len(wrong), example)


def wanted(query: Query, events: Path) -> list[Row]:
    """The rows by DuckDB."""
    with duckdb.connect() as database:
        for kind in TABLES:
            files = str(events / f"{kind}-*.jsonl")
            if not any(events.glob(f"{kind}-*.jsonl")):
                continue
            database.read_json(files, format="newline_delimited").create_view(kind)
        return database.execute(query.sql).fetchall()


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    """What a run has written: JSON lines below ``folder``."""
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            yield msgspec.json.decode(line)


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
