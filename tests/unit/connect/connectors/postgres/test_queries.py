from __future__ import annotations

import pytest

from millwheel.connect.connectors.postgres.queries import one_query


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("select 1", "select 1"),
        ("select 1;", "select 1"),
        ("select 1 ; -- all of them", "select 1 "),
        ("select 1 -- all; of them", "select 1 -- all; of them"),
        (
            "select ';' as a, \"b;\" /* ; */, $x$;$x$, E'\\';' from t ;\n",
            "select ';' as a, \"b;\" /* ; */, $x$;$x$, E'\\';' from t ",
        ),
    ],
)
def test_a_query_is_one_statement_whatever_its_texts_and_comments_hold(
    text: str, query: str
) -> None:
    assert one_query(text) == query


@pytest.mark.parametrize(
    "text", ["select 1; select 2", "select 1; drop table t -- x", "", " ; ", "-- nothing"]
)
def test_several_statements_or_none_are_no_query(text: str) -> None:
    with pytest.raises(ValueError, match="write one select"):
        one_query(text)
