"""Commands and their replies, without a connection."""

from __future__ import annotations

from typing import Any

import hiredis
from msgspec.structs import replace

from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.pipeline.spec import QuerySpec
from millwheel.engine.queries.cluster import ClusterMap
from millwheel.engine.queries.commands import MAX_KEYS, QueryService, Session
from millwheel.engine.queries.model import Answer, Consistency, Found, QueryError
from millwheel.engine.queries.named_queries import NamedQueries
from millwheel.engine.queries.names import Catalog
from millwheel.engine.queries.replies import Pending

ANSWER = Answer({"n": 3, "spend": 1.5}, 10, 70, 65, True, "clicks-0", 4, 9)
ONE = Answer({"n": 3}, 10, 70, 65, False, "clicks-0", 4, 9)
ENTRIES = tuple(ShardEntry(f"clicks-{n}", piece, f"w{n}", 1) for n, piece in enumerate(tile(2)))
TABLE = RangeTable("clicks", ENTRIES, 3)


def session(password: str = "") -> Session:
    cluster = ClusterMap("w1", "clicks", {"w0": "10.0.0.1:6380", "w1": "10.0.0.2:7000"}, TABLE)
    catalog = Catalog({"clicks": "int"}, frozenset({"clicks"}))
    admits = (lambda shown: shown == password.encode()) if password else None
    return Session(QueryService(catalog, cluster, lambda: 1_000, admits))


def parsed(data: bytes) -> Any:
    reader = hiredis.Reader(encoding="utf-8")
    reader.feed(data)
    return reader.gets()


def told(one: Session, line: str, *found: Found) -> Any:
    reply = one.execute([word.encode() for word in line.split()])
    return parsed(reply.reply(found) if isinstance(reply, Pending) else reply)


def test_get_gives_the_value_and_of_several_an_object() -> None:
    assert told(session(), "GET clicks.n:42:3h", ONE) == "3"
    assert told(session(), "get clicks:42:3h", ANSWER) == '{"n":3,"spend":1.5}'
    assert told(session(), "MGET clicks.n:42:3h clicks.n:43:3h", ONE, ONE) == ["3", "3"]


def test_hgetall_gives_the_values_and_their_span() -> None:
    span = {"covered_start": "10", "covered_end": "70", "watermark": "65", "complete": "1"}
    flat = told(session(), "HGETALL clicks:42:3h", ANSWER)
    assert dict(zip(flat[::2], flat[1::2], strict=True)) == {"n": "3", "spend": "1.5", **span}
    three = session()
    told(three, "HELLO 3")
    assert told(three, "HGETALL clicks:42:3h", ANSWER) == {"n": "3", "spend": "1.5", **span}


def test_a_window_without_an_end_ends_now() -> None:
    reply = session().execute([b"GET", b"clicks:42:3h"])
    assert isinstance(reply, Pending)
    assert reply.queries[0].until_us == 1_000


def test_a_query_gives_everything_as_json() -> None:
    text = told(session(), "MW.QUERY clicks 42 WINDOW 3h MODE inside", ANSWER)
    assert '"shard":"clicks-0","token":4,"commit":9,"consistency":"durable"' in text
    assert str(told(session(), "MW.QUERY clicks 42 WIDTH 3h")).startswith(
        "ERR bad_window: write MW.QUERY"
    )


def test_errors_are_sentences_and_what_passes_says_try_again() -> None:
    assert (
        str(told(session(), "GET clicks:42:3h", QueryError("unavailable", "soon")))
        == "TRYAGAIN soon"
    )
    assert (
        str(told(session(), "GET clicks:42:3h", QueryError("beyond_keep", "gone")))
        == "ERR beyond_keep: gone"
    )
    assert "no indicator 'other'" in str(told(session(), "GET other:42:3h"))
    assert "this server only answers" in str(told(session(), "SET a b"))
    assert "wrong number" in str(told(session(), "GET"))
    for command in (b"MGET", b"EXISTS"):
        many = session().execute([command, *[b"clicks:1:3h"] * (MAX_KEYS + 1)])
        assert "at most" in str(parsed(many))  # type: ignore[arg-type]
    assert parsed(session().execute([b"EXISTS", *[b"clicks:1:3h"] * MAX_KEYS])) == MAX_KEYS  # type: ignore[arg-type]


def test_without_the_token_nothing_is_answered() -> None:
    one = session("secret-token-of-it")
    assert str(told(one, "GET clicks:42:3h")).startswith("NOAUTH ")
    assert str(told(one, "HELLO 3")).startswith("NOAUTH ")
    assert str(told(one, "AUTH wrong")).startswith("WRONGPASS ")
    assert told(one, "AUTH default secret-token-of-it") == "OK"
    assert told(one, "GET clicks.n:42:3h", ONE) == "3"
    other = session("secret-token-of-it")
    assert told(other, "HELLO 3 AUTH default secret-token-of-it")["proto"] == 3


def test_clients_find_what_they_look_for() -> None:
    one = session()
    assert told(one, "PING") == "PONG"
    assert told(one, "TYPE clicks:42:3h") == "hash"
    assert told(one, "TYPE other:42") == "none"
    assert told(one, "EXISTS clicks:42:3h other:42") == 1
    assert told(one, "CLUSTER KEYSLOT foo") == 12182
    commands = {each[0]: each for each in told(one, "COMMAND")}
    assert {len(each) for each in commands.values()} == {10}
    assert commands["mw.query"][3:6] == [2, 2, 1]
    assert told(one, "QUIT") == "OK"
    assert one.over


def formulas() -> Session:
    cluster = ClusterMap("w1", "clicks", {"w0": "10.0.0.1:6380", "w1": "10.0.0.2:7000"}, TABLE)
    named = NamedQueries(
        [QuerySpec("cpc", "clicks.spend / clicks.n"), QuerySpec("ctr", "clicks.n / views.n", 1)]
    )
    catalog = Catalog({"clicks": "int", "views": "int"}, frozenset({"clicks"}), named)
    return Session(QueryService(catalog, cluster, lambda: 1_000))


def test_named_queries_are_asked_by_every_command() -> None:
    assert told(formulas(), "GET cpc:42:3h", ANSWER) == "0.5"
    assert told(formulas(), "MGET cpc:42:3h clicks.n:42:3h ctr:42", ANSWER, ONE, ONE, ONE) == [
        "0.5",
        "3",
        "1.0",
    ]
    flat = told(formulas(), "HGETALL ctr:42", ONE, ONE)
    assert flat[:6] == ["ctr", "1.0", "covered_start", "10", "covered_end", "70"]
    assert '"values":{"value":6}' in told(formulas(), "MW.QUERY clicks.n*2 42 WINDOW 3h", ONE)
    nothing = replace(ONE, values={"n": 0})
    assert told(formulas(), "GET ctr:42", ONE, nothing) is None
    assert str(told(formulas(), "GET ctr:42", ONE, replace(ONE, values={"m": 0}))).startswith(
        "ERR unknown_indicator: "
    )
    assert told(formulas(), "MW.INDICATORS").startswith('{"computations":')


def test_a_connection_that_only_reads_takes_what_standbys_know() -> None:
    one = session()
    consistencies = []
    for line in (
        "GET clicks:42:3h",
        "READONLY",
        "GET clicks:42:3h",
        "MW.QUERY clicks 42 WINDOW 3h",
    ):
        reply = one.execute([word.encode() for word in line.split()])
        if isinstance(reply, Pending):
            consistencies.append(reply.queries[0].consistency.value)
    explicit = one.execute(b"MW.QUERY clicks 42 WINDOW 3h CONSISTENCY latest".split())
    assert isinstance(explicit, Pending)
    consistencies.append(explicit.queries[0].consistency.value)
    told(one, "READWRITE")
    last = one.execute([b"GET", b"clicks:42:3h"])
    assert isinstance(last, Pending)
    assert [*consistencies, last.queries[0].consistency.value] == [
        "durable",
        "standby",
        "standby",
        "latest",
        "durable",
    ]


def test_what_a_standby_says_is_said_to_be_its() -> None:
    stale = replace(ONE, consistency=Consistency.STANDBY, lag_us=70)
    flat = told(session(), "HGETALL clicks.n:42:3h", stale)
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    assert (found["consistency"], found["commit"], found["lag"]) == ("standby", "9", "70")
    assert "lag" not in told(session(), "HGETALL clicks.n:42:3h", replace(stale, lag_us=None))


def test_info_tells_the_health_and_what_failed_in_the_worker_counts() -> None:
    one = session()
    assert "# Health\r\nhealth:1.00\r\n" in told(one, "INFO")
    told(one, "GET clicks.n:42:3h", ONE)
    told(one, "GET clicks.n:42:3h", QueryError("unavailable", "soon"))
    told(one, "GET clicks.n:42:3h", QueryError("unavailable", "it broke", failed=True))
    errors = one._service.errors
    assert errors.share(0.0) == 1 / 3
