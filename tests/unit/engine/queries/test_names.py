"""Names of the Redis protocol."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.query_changes import QueryChanges, QueryRow
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    QuerySpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.core.slices.slots import slot_of, slot_of_key
from millwheel.engine.queries.model import Answer, Consistency, Mode, Query, QueryError
from millwheel.engine.queries.named_queries import NamedQueries, merged
from millwheel.engine.queries.names import Catalog, Name, QueryPlan, parse_name

HOUR = 3_600_000_000
CATALOG = Catalog({"clicks": "int", "views": None, "users": "str"}, frozenset({"clicks"}))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (b"clicks:42:3h", Name("clicks", "42", 3 * HOUR, None)),
        (b"clicks:42:3h@1700000000000000", Name("clicks", "42", 3 * HOUR, 1_700_000_000_000_000)),
        (b"cpc:42", Name("cpc", "42", None, None)),
        (b"clicks.n:{42}:3h", Name("clicks.n", "42", 3 * HOUR, None)),
        (b"users:a:b:c:3h", Name("users", "a:b:c", 3 * HOUR, None)),
        (b"users:{a:3h}", Name("users", "a:3h", None, None)),
        (b"users:{u1}:cart:3h", Name("users", "{u1}:cart", 3 * HOUR, None)),
        (b"users:{}:3h", Name("users", "{}", 3 * HOUR, None)),
    ],
)
def test_a_name_is_an_indicator_a_key_and_perhaps_a_window(name: bytes, parts: Name) -> None:
    assert parse_name(name) == parts


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (b"clicks", "unknown_indicator"),
        (b":42:3h", "unknown_indicator"),
        (b"clicks:", "unknown_indicator"),
        (b"other:42:3h", "unknown_indicator"),
        (b"clicks:abc:3h", "wrong_key"),
        (b"clicks:99999999999999999999:3h", "wrong_key"),
        (b"clicks:\xff:3h", "wrong_key"),
        (b"clicks:42:-3h", "bad_window"),
        (b"clicks:42:3.5.1h", "wrong_key"),
        (b"clicks:42:3parsecs", "bad_window"),
        (b"clicks:" + b"4" * 5000, "too_much"),
    ],
)
def test_what_is_no_name_is_an_error_with_a_sentence(name: bytes, code: str) -> None:
    with pytest.raises(QueryError) as caught:
        CATALOG.query(name)
    assert caught.value.code == code
    assert len(caught.value.sentence) < 300


@given(st.binary(max_size=60))
def test_whatever_comes_is_a_query_or_an_error(name: bytes) -> None:
    with suppress(QueryError):
        assert isinstance(CATALOG.query(name), Query)


def test_the_type_of_a_key_is_that_of_its_field_or_else_guessed() -> None:
    assert CATALOG.query(b"clicks:42:3h").key == 42
    assert CATALOG.query(b"users:42:3h").key == "42"
    assert CATALOG.query(b"views:42:3h").key == 42
    assert CATALOG.query(b"views:042:3h").key == "042"
    assert CATALOG.query(b'views:"42":3h').key == "42"
    assert CATALOG.query(b'views:["a",1]:3h').key == ("a", 1)


def test_braces_give_clients_the_slot_of_the_key_whatever_window_is_asked_for() -> None:
    for name in (b"clicks:{42}:3h", b"clicks.n:{42}:7d@17"):
        assert slot_of(name) == slot_of_key(CATALOG.query(name).key)


def test_options_are_a_window_its_end_a_mode_and_a_consistency() -> None:
    options = {"window": "1h", "until": "17", "mode": "inside", "consistency": "latest"}
    assert CATALOG.asked("clicks", "42", options) == Query(
        "clicks", 42, HOUR, 17, Mode.INSIDE, Consistency.LATEST
    )
    for wrong in ({"window": "x"}, {"until": "now"}, {"mode": "most"}, {"consistency": "eventual"}):
        with pytest.raises(QueryError):
            CATALOG.asked("clicks", "42", wrong)


def named() -> Catalog:
    ctr = QuerySpec("ctr", "clicks.n / views.n", HOUR)
    share = QuerySpec(
        "share", "clicks.n / users.n", HOUR, ("site", "ad"), {"clicks": ("ad",), "users": ("site",)}
    )
    return Catalog(CATALOG.keys, CATALOG.windowed, NamedQueries([ctr, share]))


def test_the_name_of_a_query_asks_what_its_formula_needs() -> None:
    plan = named().plan(b"ctr:42")
    assert plan.questions == (Query("clicks", 42, HOUR), Query("views", 42, HOUR))
    assert named().plan(b"ctr:{42}@17").questions[1] == Query("views", 42, HOUR, 17)
    assert named().plan(b"ctr:42:3h@17").questions[0] == Query("clicks", 42, 3 * HOUR, 17)
    assert named().plan(b"clicks:42:3h") == QueryPlan((Query("clicks", 42, 3 * HOUR),))


def test_each_computation_of_a_query_has_its_part_of_the_key() -> None:
    (clicks, users) = named().plan(b'share:["s1",42]').questions
    assert (clicks.key, users.key) == (42, "s1")
    with pytest.raises(QueryError, match="2 parts"):
        named().plan(b"share:42")
    with pytest.raises(QueryError, match="keys of clicks are whole numbers"):
        named().plan(b'share:["s1","x"]')


def test_a_command_may_ask_a_formula_without_a_name() -> None:
    plan = named().planned("clicks.n * 2", "42", {"window": "1h"})
    assert plan.questions == (Query("clicks", 42, HOUR),)
    assert plan.answer([Answer({"n": 4}, 0, 1, 1, True, "clicks-0", 1, 1)]).values == {"value": 8}
    for formula, code in (
        ("clicks.n *", "bad_formula"),
        ("other.n * 2", "unknown_indicator"),
        ("(1)", "bad_formula"),
    ):
        with pytest.raises(QueryError) as caught:
            named().planned(formula, "42", {})
        assert caught.value.code == code


@given(st.one_of(st.integers(-5, 5), st.text(min_size=1), st.tuples(st.text(), st.integers(0, 9))))
def test_a_key_is_the_same_after_it_was_a_text(key: object) -> None:
    computation = "users" if isinstance(key, str) else "views"
    assert CATALOG.key(computation, CATALOG.text(computation, key)) == key  # type: ignore[arg-type]
    if not isinstance(key, str) or key:
        assert CATALOG.key("views", CATALOG.text("views", key)) == key  # type: ignore[arg-type]


def test_people_are_told_what_can_be_asked() -> None:
    document = named().document()
    assert document["queries"]["ctr"] == {
        "formula": "clicks.n / views.n",
        "window": "1h",
        "key": [],
        "keys": {},
    }


def test_windows_of_their_own_are_named_by_their_beginning() -> None:
    catalog = Catalog({"minutes": "int"}, frozenset(), firing=frozenset({"minutes"}))
    assert catalog.query(b"minutes:42") == Query("minutes", 42)
    assert catalog.query(b"minutes.n:{42}@1700000000000000") == Query(
        "minutes.n", 42, None, 1_700_000_000_000_000
    )
    assert catalog.asked("minutes", "42", {"mode": "open"}) == Query("minutes", 42, mode=Mode.OPEN)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (KeySpec(KeyKind.FIELD, ("n",)), "int"),
        (KeySpec(KeyKind.FIELDS, ("n", "k")), None),
        (KeySpec(KeyKind.FIELD, ("n",), nulls=True), None),  # [] asks for the nulls
        (KeySpec(KeyKind.EXPRESSIONS, ("half",), texts=("n // 2",)), "int"),
        (KeySpec(KeyKind.EXPRESSIONS, ("low",), texts=("lower(k)",)), "str"),
        (KeySpec(KeyKind.EXPRESSIONS, ("other",), texts=("json(k, 'a')",)), None),
        (KeySpec(KeyKind.ALL), "str"),
        (KeySpec(KeyKind.FUNCTION, ("m:f",)), None),
    ],
)
def test_the_type_of_a_key_is_that_of_its_field_or_expression(
    key: KeySpec, kind: str | None
) -> None:
    stream = StreamSpec("s", fields={"n": "int", "k": "str"})
    counts = ComputationSpec("c", (InputSpec("s", key),), work=SlicesSpec((5,), 20))
    catalog = Catalog.of(PipelineSpec("p", (stream,), (counts,), (), "/"))
    assert catalog.keys == {"c": kind}


# Named queries that change while they are asked.

OWN = [QuerySpec("ctr", "clicks.n / views.n"), QuerySpec("cpc", "clicks.spend / clicks.n")]


def test_queries_are_added_changed_and_removed() -> None:
    named = NamedQueries(OWN, frozenset({"clicks", "views"}))
    assert set(named.formulas) == {"ctr", "cpc"}
    changes = QueryChanges().changed(
        [QueryRow("ctr", "views.n"), QueryRow("cpc"), QueryRow("new", "clicks.n")], "1"
    )
    assert not named.change(changes)
    assert {name: each.spec.formula for name, each in named.formulas.items()} == {
        "ctr": "views.n",
        "new": "clicks.n",
    }
    assert named.number == 1
    assert set(merged(OWN, changes)) == {"ctr", "new"}


def test_what_is_no_formula_is_left_out_with_a_sentence() -> None:
    named = NamedQueries(OWN, frozenset({"clicks"}))
    problems = named.change(
        QueryChanges().changed([QueryRow("clicks", "views.n"), QueryRow("bad", "1 +")], "1")
    )
    assert set(named.formulas) == {"ctr", "cpc"}
    assert "a computation has that name" in problems[0]
    assert "the query bad is left out: column" in problems[1]
