"""Named queries that change while they are asked."""

from __future__ import annotations

from millwheel.core.pipeline.query_changes import QueryChanges, QueryRow
from millwheel.core.pipeline.spec import QuerySpec
from millwheel.engine.queries.named_queries import NamedQueries, merged

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
