"""Streams that are declared to be tables, in every way to run them: what is counted over their
rows, and what records are enriched with, against plain dicts; and deliberate mistakes that show."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partialmethod
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from millwheel import as_retraction
from millwheel.core.rows import latest
from millwheel.core.rows.waiting import WaitingColumns
from millwheel.engine.workers.delivery import consumer_keys
from millwheel.engine.workers.operators import record_joins
from millwheel.engine.workers.operators.broadcast import copies, enrichment
from millwheel.engine.workers.operators.broadcast.table import HeldTable
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.testing import PipelineHarness
from tests.search.mistakes import replaced
from tests.sim import mistakes_of_both

PIPELINE = """
pipeline: p
streams:
  users:
    source: {injection: {}}
    timestamp: {field: at, unit: us}
    fields: {at: int, id: int, city: str, gone: bool}
    table: {key: id, delete: gone}
  lines:
    source: {injection: {}}
    timestamp: {field: at, unit: us}
    fields: {at: int, line: int, id: int}
  orders: {source: {injection: {}}, timestamp: {field: at, unit: us}, table: oid}
  sides: {source: {files: {path: s.jsonl, format: jsonl}}, table: id}
computations:
  cities: {input: {users: {key: city}}, aggregate: {n: count, ids: {sum: id}}, output: cities}
  of:
    input: {orders: {key: id}, users: {key: id}}
    enrich: {with: users, missing: MISSING}
    output: of
  copied:
    input: {orders: {key: id}, users: {key: id}}
    enrich: {with: users, as: users, missing: MISSING, broadcast: {copies: 3}}
    output: copied
  beside: {input: {orders: {key: id}, sides: {key: id}}, enrich: {with: sides}, output: beside}
  held:
    input: {orders: {key: id}, sides: {key: id}}
    enrich: {with: sides, broadcast: true, missing: MISSING}
    output: held
  met: {input: {orders: {key: id}, users: {key: id}}, join: left, output: met}
  priced:
    input: {lines: {key: id}, users: {key: id}}
    enrich: {with: users, as: who, missing: MISSING}
    output: priced
sinks:
  priced: {stdout: {}}
  users: {stdout: {mode: changelog}}
  cities: {stdout: {mode: changelog}}
  of: {stdout: {mode: changelog}}
  copied: {stdout: {mode: changelog}}
  beside: {stdout: {mode: changelog}}
  held: {stdout: {mode: changelog}}
  met: {stdout: {mode: changelog}}
"""
OUTPUTS = ("users", "cities", "of", "copied", "beside", "held", "met", "priced")
# A crash costs 70 ms of recovery of all shards: about twenty a run.
WAYS: dict[str, Any] = {
    "one": {"shards": 1, "workers": 1},
    "columns": {"shards": 1, "workers": 1},
    "columns, crashes": {"shards": 2, "crash_every": 97},
    "crashes": {"crash_every": 131},
    "spread": {"shards": 3, "workers": 3, "crash_at": 17},
}
SEEDS = range(7001, 7007)
TIMES = 9
Row = dict[str, Any]
Found = dict[str, Counter[str]]


@dataclass(frozen=True, slots=True)
class Case:
    """What is pushed: by stream and partition, in order."""

    users: dict[str, list[Row]]
    orders: dict[str, list[Row]]
    sides: dict[str, list[Row]]
    missing: str
    lines: dict[str, list[Row]]


def drawn(seed: int) -> Case:
    rng = random.Random(f"declared {seed}")

    def spread(rows: Sequence[Row]) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {"a": [], "b": []}
        for row in rows:
            found[rng.choice("ab")].append(row)
        return found

    users = [
        {
            "at": rng.randrange(TIMES),
            "id": rng.randrange(3),
            "city": rng.choice("xy"),
            "gone": rng.random() < 0.25,
        }
        for _ in range(rng.randrange(4, 20))
    ]
    orders = [
        {"at": rng.randrange(TIMES), "oid": rng.randrange(5), "id": rng.randrange(4)}
        for _ in range(rng.randrange(3, 14))
    ]
    sides = [{"id": rng.randrange(3), "v": rng.randrange(9)} for _ in range(rng.randrange(7))]
    drawn = spread(users), spread(orders), spread(sides), rng.choice(["keep", "drop"])
    lines = [
        {"at": rng.randrange(TIMES), "line": line, "id": rng.randrange(4)}
        for line in range(rng.randrange(20))
    ]
    return Case(*drawn, spread(lines))


def in_order(parts: dict[str, list[Row]]) -> list[Row]:
    """By time, then partition, then place."""
    placed = [
        ((row.get("at", 0), name, number), row)
        for name, rows in parts.items()
        for number, row in enumerate(rows)
    ]
    return [row for _, row in sorted(placed, key=lambda each: each[0])]


def wanted(case: Case) -> Found:
    """As plain dicts say."""
    users = {row["id"]: row for row in in_order(case.users)}
    rows = [row for row in users.values() if not row["gone"]]
    orders = list({row["oid"]: row for row in in_order(case.orders)}.values())
    sides = {row["id"]: row for row in in_order(case.sides)}
    ids = {
        city: [row["id"] for row in rows if row["city"] == city]
        for city in {row["city"] for row in rows}
    }
    of = [{**order, "users": as_of(case, order)} for order in orders]
    found = [row for row in of if row["users"] or case.missing == "keep"]
    priced = [{**line, "who": as_of(case, line)} for line in in_order(case.lines)]
    by_id = {row["id"]: row for row in rows}
    return {
        "users": texts(rows),
        "cities": texts({"city": c, "n": len(i), "ids": sum(i)} for c, i in ids.items()),
        "of": texts(found),
        "copied": texts(found),
        "beside": texts({**order, "sides": sides.get(order["id"])} for order in orders),
        "priced": texts(row for row in priced if row["who"] or case.missing == "keep"),
        "held": texts(
            {**order, "sides": sides.get(order["id"])}
            for order in orders
            if order["id"] in sides or case.missing == "keep"
        ),
        "met": texts(
            {"id": order["id"], "orders": order, "users": by_id.get(order["id"])}
            for order in orders
        ),
    }


def as_of(case: Case, order: Row) -> Row | None:
    """The row of a user at the time of an order."""
    before = [
        row for row in in_order(case.users) if row["id"] == order["id"] and row["at"] <= order["at"]
    ]
    return before[-1] if before and not before[-1]["gone"] else None


def texts(rows: Any) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def standing(values: list[Any]) -> Counter[str]:
    """What is left of rows and retractions."""
    found: Counter[str] = Counter()
    for value in values:
        back = as_retraction(value)
        row = value if back is None else back.value
        found[json.dumps(row, sort_keys=True)] += 1 if back is None else -1
    assert min(found.values(), default=0) >= 0, "what is taken back was there"
    return +found


def pushes(case: Case, rng: random.Random) -> Iterator[tuple[str, str, list[Row]]]:
    """(stream, partition, rows that come together): the partitions in any mixture."""
    left = {
        (stream, name): list(rows)
        for stream, parts in (
            ("users", case.users),
            ("orders", case.orders),
            ("sides", case.sides),
            ("lines", case.lines),
        )
        for name, rows in parts.items()
        if rows
    }
    while left:
        at = rng.choice(sorted(left))
        size = rng.choice([1, 2, 50])
        yield (*at, left[at][:size])
        left[at] = left[at][size:]
        if not left[at]:
            del left[at]


@contextmanager
def in_columns(way: str) -> Iterator[None]:
    """However few records come together, they are in columns where the way says so."""
    at_once = partialmethod(ShardLimits.__init__, rows_below=0, columns_from=1)
    with ExitStack() as stack:
        if way.startswith("columns"):
            stack.enter_context(replaced(ShardLimits, "__init__", at_once))
        yield


def found(folder: Path, seed: int, way: str) -> Found:
    case, rng = drawn(seed), random.Random(f"ways {seed} {way}")
    folder.mkdir()
    (folder / "p.yaml").write_text(PIPELINE.replace("MISSING", case.missing))
    with in_columns(way), PipelineHarness(folder / "p.yaml", **WAYS[way]) as harness:
        for stream, partition, rows in pushes(case, rng):
            harness.push(stream, rows, key=partition)
        harness.finish("sides")
        harness.finish()
        assert harness.read("dead_letters") == []
        return {name: standing(harness.read(name)) for name in OUTPUTS}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_and_what_is_made_of_them_are_those_of_plain_dicts(
    seed: int, way: str, tmp_path: Path
) -> None:
    assert found(tmp_path / "p", seed, way) == wanted(drawn(seed))


def the_row_is_what_came_last() -> AbstractContextManager[None]:
    """Whatever its time and place."""
    right = latest.LatestRow.added
    return replaced(
        latest.LatestRow, "added", lambda self, kept, records: right(self, [], records[-1:])
    )


def places_of_one_time_do_not_count() -> AbstractContextManager[None]:
    return replaced(latest, "_position", lambda record: [record.timestamp])


def deletes_are_rows() -> AbstractContextManager[None]:
    right = record_joins.Enriched.__init__

    def wrong(self: Any, spec: Any, outputs: Any, *deletes: Any) -> None:
        right(self, spec, outputs)

    return replaced(record_joins.Enriched, "__init__", wrong)


def results_are_taken_back_as_they_would_be_now() -> AbstractContextManager[None]:
    def wrong(self: Any, ctx: Any, fields: Any, name: bytes) -> None:
        version = self.version.get()
        for stream in self._outputs:
            value = None if version is None else version.value
            ctx.produce(stream, record_joins.retracted({**fields, self._spec.name: value}))

    return replaced(record_joins.EnrichedChanges, "_take_back", wrong)


def a_held_table_keeps_its_first_rows() -> AbstractContextManager[None]:
    right = HeldTable._judged

    def wrong(self: HeldTable, value: object) -> Any:
        judged = right(self, value)
        return None if judged is None or judged[0] in self.rows else judged

    return replaced(HeldTable, "_judged", wrong)


def partitions_of_a_held_table_come_as_they_like() -> AbstractContextManager[None]:
    right = HeldTable.read

    def wrong(self: HeldTable, now_us: int) -> None:
        if self._unread is None:
            self._unread = list(self._source.partitions())[::-1]
        right(self, now_us)

    return replaced(HeldTable, "read", wrong)


def what_is_taken_back_of_a_held_table_has_no_row() -> AbstractContextManager[None]:
    right = enrichment.retracted
    return replaced(enrichment, "retracted", lambda row: right({**row, "sides": None}))


def what_is_taken_back_goes_to_any_copy() -> AbstractContextManager[None]:
    turns, right = count(), consumer_keys.copy_key
    return replaced(consumer_keys, "copy_key", lambda key, copies: right(next(turns), copies))


def places_of_one_time_do_not_count_in_copies() -> AbstractContextManager[None]:
    right = copies.Located
    return replaced(copies, "Located", lambda *parts: right(*parts[:4], "", 0))


def only_some_copies_get_a_change() -> AbstractContextManager[None]:
    right = copies.copy_keys
    return replaced(copies, "copy_keys", lambda number: right(number)[:1])


def deletes_in_columns_are_rows() -> AbstractContextManager[None]:
    def wrong(self: WaitingColumns, batch: Any, like: Any) -> Any:
        return self.clean(batch, like, self.most)

    return replaced(WaitingColumns, "fitting", wrong)


@pytest.mark.parametrize(
    "mistake",
    [
        the_row_is_what_came_last,
        places_of_one_time_do_not_count,
        deletes_are_rows,
        results_are_taken_back_as_they_would_be_now,
        mistakes_of_both.tables_count_as_read,
        a_held_table_keeps_its_first_rows,
        partitions_of_a_held_table_come_as_they_like,
        what_is_taken_back_of_a_held_table_has_no_row,
        what_is_taken_back_goes_to_any_copy,
        places_of_one_time_do_not_count_in_copies,
        only_some_copies_get_a_change,
        deletes_in_columns_are_rows,
    ],
)
def test_a_mistake_about_tables_is_found(mistake: Any, tmp_path: Path) -> None:
    def differs(seed: int) -> bool:
        try:
            way = "columns" if mistake is deletes_in_columns_are_rows else "one"
            return found(tmp_path / str(seed), seed, way) != wanted(drawn(seed))
        except AssertionError:
            return True

    with mistake():
        assert any(differs(seed) for seed in SEEDS)
