"""Keys of other workers are redirected, and the parts of a formula gathered."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from millwheel.core.model.names import WorkerName
from millwheel.core.pipeline.spec import QuerySpec
from millwheel.core.slices.slots import slot_of
from millwheel.engine.queries.cluster import ClusterMap
from millwheel.engine.queries.commands import QueryService, Session
from millwheel.engine.queries.model import Elsewhere, Found, QueryError
from millwheel.engine.queries.named_queries import NamedQueries
from millwheel.engine.queries.names import Catalog
from millwheel.engine.queries.replies import Gather, Pending, get_reply, json_reply, value_text
from tests.unit.engine.queries.test_commands import ANSWER, ONE, formulas, parsed, session, told


def test_keys_of_other_workers_are_moved_and_while_they_move_asked_for() -> None:
    slot = slot_of(b"clicks:42:3h")
    assert (
        str(told(session(), "GET clicks:42:3h", Elsewhere(WorkerName("w0"))))
        == f"MOVED {slot} 10.0.0.1:6380"
    )
    asked = told(session(), "GET clicks:42:3h", Elsewhere(WorkerName("w0"), for_now=True))
    assert str(asked) == f"ASK {slot} 10.0.0.1:6380"
    both = told(session(), "MGET clicks:1:3h clicks:2:3h", ONE, Elsewhere(WorkerName("w0")))
    assert str(both).startswith("CROSSSLOT ")
    assert str(told(session(), "GET clicks:42:3h", Elsewhere(WorkerName("w9")))).startswith(
        "TRYAGAIN "
    )


def test_a_formula_is_answered_by_who_has_its_first_computation_and_it_asks_the_others() -> None:
    moved = told(formulas(), "GET ctr:42", Elsewhere(WorkerName("w0")), ONE)
    assert str(moved) == f"MOVED {slot_of(b'ctr:42')} 10.0.0.1:6380"
    reply = formulas().execute([b"MGET", b"ctr:42", b"ctr:43"])
    assert isinstance(reply, Pending)
    there = Elsewhere(WorkerName("w0"))
    wanted = reply.reply([ONE, there, ONE, there])
    assert isinstance(wanted, Gather)
    assert [(each.owner, each.query.indicator, each.query.key) for each in wanted.questions] == [
        ("10.0.0.1:6380", "views", 42),
        ("10.0.0.1:6380", "views", 43),
    ]
    assert parsed(wanted.reply([replace(ONE, values={"n": 6}), ONE])) == ["0.5", "1.0"]
    assert str(parsed(wanted.reply([ONE, QueryError("unavailable", "soon")]))) == "TRYAGAIN soon"


def test_parts_of_a_formula_are_asked_of_standbys_only_where_that_is_good_enough() -> None:
    named = NamedQueries([QuerySpec("ctr", "clicks.n / views.n", 1)])
    catalog = Catalog({"clicks": "int", "views": "int"}, frozenset(), named)
    cluster = ClusterMap("w1", "clicks", {"w0": "a:1", "w2": "c:3"})
    found = [ONE, Elsewhere(WorkerName("w0"), standby=WorkerName("w2"))]
    gone = [ONE, Elsewhere(WorkerName("dead"), standby=WorkerName("w2"))]

    def whom(answers: list[Found], *before: str) -> list[tuple[str, str]] | str:
        one = Session(QueryService(catalog, cluster, lambda: 9))
        for line in before:
            one.execute([line.encode()])
        reply = one.execute([b"GET", b"ctr:5"])
        assert isinstance(reply, Pending)
        wanted = reply.reply(answers)
        return (
            str(parsed(wanted))
            if isinstance(wanted, bytes)
            else [(q.owner, q.standby) for q in wanted.questions]
        )

    assert whom(found) == [("a:1", "")]
    assert whom(found, "READONLY") == [("a:1", "c:3")]
    assert whom(gone, "READONLY") == [("c:3", "c:3")]
    assert str(whom(gone)).startswith("TRYAGAIN")


# Values and answers as clients get them.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, b"3"),
        (1.5, b"1.5"),
        ("é", "é".encode()),
        (b"x", b"x"),
        (True, b"1"),
        ([1, "a"], b'[1,"a"]'),
        (None, None),
    ],
)
def test_values_are_text(value: object, text: bytes | None) -> None:
    assert value_text(value) == text


def test_an_answer_is_a_value_an_object_or_a_document() -> None:
    assert parsed(get_reply(ONE, 2)) == "3"
    assert parsed(get_reply(ANSWER, 2)) == '{"n":3,"spend":1.5}'
    assert parsed(json_reply(ONE)).startswith('{"values":{"n":3},"covered_start":10,')
