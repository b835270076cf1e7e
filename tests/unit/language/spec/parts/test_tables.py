"""``table:`` of a stream, from the file to the plan; and what is wrong with one."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.graph import build_graph, retracting_streams
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import BroadcastSpec, EnrichSpec, TopSpec

HEAD = """pipeline: p
streams:
  users:
    source: {files: {path: u.jsonl, format: jsonl}}
    timestamp: {field: at, unit: us}
    table: TABLE
  sides: {source: {files: {path: s.jsonl, format: jsonl}}, table: [a, b]}
  hits: {source: {files: {path: h.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
computations:
  n: {input: {users: {key: city}}, aggregate: {n: count}, output: n}
sinks: {n: {stdout: {mode: changelog}}}
"""
ENRICHED = """
  e: {input: {hits: {key: who}, users: {key: id}}, enrich: {with: users}, output: e}
  f: {input: {hits: {key: [who, what]}, sides: {key: [a, b]}}, enrich: {with: sides}, output: f}
sinks: {n: {stdout: {mode: changelog}}, e: {stdout: {}}, f: {stdout: {}}}
"""


def text(table: str = "{key: id, delete: gone}", more: str = "") -> str:
    head = HEAD.replace("TABLE", table)
    return head.partition("\nsinks")[0] + more if more else head


def test_a_table_stands_behind_its_source_where_its_changes_are_taken(check: Any) -> None:
    spec = check(text(more=ENRICHED))
    table = spec.computations[0]
    assert (table.name, table.outputs) == ("table.users", ("users",))
    assert table.inputs == (InputSpec("events.users", KeySpec(KeyKind.FIELD, ("id",))),)
    assert table.work == TopSpec(latest=True, upserts=True, delete="gone")
    assert table.takes_late
    assert retracting_streams(spec) == {"users", "n"}
    names = [stream.name for stream in spec.streams]
    assert names == ["events.users", "users", "events.sides", "hits"], "nothing takes changes"


def test_an_enrichment_takes_the_records_of_the_source(check: Any) -> None:
    spec = check(text(more=ENRICHED))
    one, other = spec.computations[-2:]
    assert one.work == EnrichSpec("events.users", "users", upserts=True, delete="gone")
    assert one.inputs[1].stream == "events.users"
    assert other.work == EnrichSpec("events.sides", "sides", upserts=True, timeless=True)
    assert spec.stream("events.sides").idle_after_us is None


def test_a_sink_that_replaces_rows_knows_them_by_the_key_of_the_table(check: Any) -> None:
    options = "{dsn: 'postgresql://u@db/d', table: t, mode: upsert}"
    sinks = f"sinks: {{n: {{stdout: {{mode: changelog}}}}, users: {{postgres: {options}}}}}"
    spec = check(text("{key: [id, city]}", more=f"\n{sinks}\n"))
    assert spec.sinks[1].options["by"] == ["id", "city"]


@pytest.mark.parametrize(
    ("table", "more", "expected"),
    [
        ("{delete: gone}", "", "users.table.key: is missing; by which fields a row is known"),
        ("{key: id, deletes: gone}", "", "users.table.deletes: unknown field"),
        ("{key: id, delete: 'gone ='}", "", "users.table.delete"),
        ("{key: id + 1}", "", "users.table.key: 'id + 1' is an expression, and needs a name"),
        (
            "id",
            "  e: {input: {hits: {key: at}, users: {key: city}}, enrich: {with: users}, output: e}",
            "e.input.users: a row of the table 'users' is found by the table's own key; write"
            " {key: id}",
        ),
        (
            '{key: {half: "id // 2"}}',
            "  e: {input: {hits: {key: at}, users: {key: id}}, enrich: {with: users}, output: e}",
            'write {key: {half: "id // 2"}}',
        ),
        (
            "[id, city]",
            "  e: {input: {hits: {key: [at, x]}, users: {key: [city, id]}}, enrich: {with: users},"
            " output: e}",
            "write {key: [id, city]}",
        ),
        (
            "all",
            "  e: {input: {hits: {key: at}, users: {key: id}}, enrich: {with: users}, output: e}",
            "write {key: all}",
        ),
        (
            "id",
            "  w: {input: users, window: {tumbling: 1m}, aggregate: {n: count}, output: w}",
            "w.window: its input comes from the table 'users', and chance decides",
        ),
        (
            "id",
            "  d: {input: {users: {key: id}}, deduplicate: {within: 1m}, output: d}",
            "d.deduplicate: its input is a table, whose rows are taken back",
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    problems: Any, table: str, more: str, expected: str
) -> None:
    written = text(table)
    if more:
        written = written.replace("\nsinks", f"\n{more}\nsinks")
    assert expected in "\n".join(problems(written))


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (
            "{source: {files: {path: s, format: jsonl, follow: true}}, table: id}",
            "timestamp: is missing; this table never ends",
        ),
        ("{source: {injection: {}}, table: id}", "write timestamp: FIELD, or let the source end"),
        (
            "{source: {files: {path: s, format: jsonl}}, table: id, watermark: {max_delay: 1s}}",
            "watermark: a table without a timestamp has no watermark but its end",
        ),
        (
            '{source: {kafka: {brokers: "b:1", topics: t, tombstones: delete, key_field: k}},'
            " timestamp: ts}",
            "source: tombstones: delete is for the rows of a table; write for example table:",
        ),
        (
            '{source: {kafka: {brokers: "b:1", topics: t, tombstones: delete}}, timestamp: ts,'
            " table: k}",
            "option 'tombstones': delete needs the key of the message; write key_field: FIELD",
        ),
        ("{table: id}", "write deduplicate: {keep: last} where a computation makes the rows"),
        (
            '{source: {kafka: {brokers: "b:1", topics: t, until: latest, format: debezium}},'
            " timestamp: ts, table: id}",
            "this is a table already; leave table out",
        ),
    ],
)
def test_what_is_wrong_with_the_source_of_a_table_is_said(
    problems: Any, stream: str, expected: str
) -> None:
    written = text("id").replace("\n  hits:", f"\n  other: {stream}\n  hits:")
    assert expected in "\n".join(problems(written))


def held(broadcast: str, more: str = "") -> str:
    """A pipeline with an enrichment whose table is held whole."""
    made = (
        "  f: {input: {hits: {key: [who, what]}, sides: {key: [a, b]}},"
        f" enrich: {{with: sides, broadcast: {broadcast}{more}}}, output: f}}"
    )
    return text("id").replace("\nsinks: {", f"\n{made}\nsinks: {{f: {{stdout: {{}}}}, ")


def test_a_table_that_is_held_whole_is_no_input(check: Any) -> None:
    spec = check(held("true"))
    by = KeySpec(KeyKind.FIELDS, ("who", "what"))
    of = KeySpec(KeyKind.FIELDS, ("a", "b"))
    [enriched] = (each for each in spec.computations if each.name == "f")
    assert enriched.inputs == (InputSpec("hits", KeySpec(KeyKind.RECORD)),)
    assert enriched.work == EnrichSpec(
        "events.sides",
        "sides",
        upserts=True,
        timeless=True,
        broadcast=BroadcastSpec(64_000_000, by, of),
    )
    [judging] = (each for each in spec.computations if each.name == "rows.sides")
    assert (judging.inputs, judging.outputs) == ((InputSpec("events.sides", of),), ())
    assert build_graph(spec).read_first("source.hits") == {"source.events.sides"}


@pytest.mark.parametrize(
    "source",
    [
        'kafka: {brokers: "b:1", topics: t, until: latest}',
        "postgres: {dsn: 'postgresql://u@db/d', table: t, order_by: a}",
    ],
)
def test_a_table_of_any_source_that_ends_is_held_whole(check: Any, source: str) -> None:
    files = "files: {path: s.jsonl, format: jsonl}"
    [work] = (
        each.work
        for each in check(held("true").replace(files, source)).computations
        if each.name == "f"
    )
    assert work.broadcast


@pytest.mark.parametrize(
    ("broadcast", "limit"), [("{limit: 2MB}", 2_000_000), ("{}", 64_000_000), ("false", 0)]
)
def test_how_large_a_table_may_be_is_written_beside_it(
    check: Any, broadcast: str, limit: int
) -> None:
    [work] = (each.work for each in check(held(broadcast)).computations if each.name == "f")
    assert (work.broadcast.limit_bytes if work.broadcast else 0) == limit


OF_USERS = held("true").replace("sides: {key: [a, b]}", "users: {key: id}")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            held("soon"),
            "enrich.broadcast: must be true, false or a limit such as {limit: 64MB}, not 'soon'",
        ),
        (held("{limits: 1MB}"), "enrich.broadcast.limits: unknown field"),
        (held("{limit: 3}"), "write a number and a unit, such as 64kB"),
        (held("{limit: 3B}"), "must lie between"),
        (held("true", ", as_of: arrival"), "that is there whole; leave out as_of"),
        (held("{copies: 1}"), "enrich.broadcast.copies: must be a whole number from 2 to 256"),
        (
            held("{copies: 4}"),
            "f.enrich.broadcast: copies are of a table that goes on, and each worker reads one that"
            " ends and has no times; leave out copies; or leave out broadcast",
        ),
        (
            OF_USERS.replace("with: sides", "with: users").replace("hits: {key: [who, what]}", "n"),
            "f.enrich.broadcast: records of 'n' come without a key for their row: the one that"
            " their producer gave decides which copy of the table they go to; write the key, for"
            " example n: {key: id}; or leave out broadcast",
        ),
        (
            held("true").replace("table: [a, b]", "table: [a, b], id: a"),
            "leave out id of 'sides'; or leave out broadcast",
        ),
    ],
)
def test_what_is_wrong_with_a_table_that_is_held_whole_is_said(
    problems: Any, written: str, expected: str
) -> None:
    assert expected in "\n".join(problems(written))
