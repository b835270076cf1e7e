from __future__ import annotations

from typing import Any

import pytest

from millwheel.connect.connectors.postgres.sink import build_postgres_sink
from millwheel.errors import SetupError

GIVEN = {"dsn": "postgresql://u:hush-hush@db/results", "table": "ctr"}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"mode": "upsert"}, "needs the option 'by'"),
        ({"by": "ad"}, "remove it, or set the mode"),
        ({"mode": "upsrt"}, "did you mean 'upsert'?"),
        ({"table": "a.b.c"}, "option 'table' is 'a.b.c'"),
        ({"tabel": "x"}, "has no option 'tabel'; did you mean 'table'?"),
        ({"columns": {"n": "1 +"}}, "option 'columns': n: "),
        (
            {"mode": "upsert", "by": "ad", "columns": {"n": "n"}},
            "'ad', which is not a column of option 'columns'",
        ),
        (
            {"mode": "upsert", "by": "ad", "create": {"n": "int"}},
            "'ad', which is not a column of option 'create'",
        ),
        ({"create": {"n": "int; drop table x"}}, "write a type of PostgreSQL, such as bigint"),
        ({"flush": "soon"}, "option 'flush'"),
        ({"cut_records": 0}, "option 'cut_records'"),
        ({"dsn": "postgresql//u:hush-hush@db"}, "option 'dsn' is not a connection string"),
    ],
)
def test_options_that_cannot_work_are_sentences_without_the_password(
    more: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        build_postgres_sink(GIVEN | more)
    assert told in str(caught.value)
    assert "hush" not in str(caught.value)


def test_types_of_columns_may_have_sizes_and_several_words() -> None:
    types = [
        "numeric(10, 2)",
        "timestamp with time zone",
        "text[]",
        "double precision",
        "varchar(3)",
        "app.kind",
    ]
    build_postgres_sink(
        GIVEN | {"create": {f"c{number}": kind for number, kind in enumerate(types)}}
    )


def test_a_secret_that_is_not_known_yet_is_a_connection_string() -> None:
    assert build_postgres_sink(GIVEN | {"dsn": "${secret:PG}"}).where == "PostgreSQL"


# sink.py


def test_the_target_is_named_without_user_and_password() -> None:
    sink = build_postgres_sink(
        {"dsn": "postgresql://u:hush-hush@db:99/results", "table": "ctr", "flush": "20ms"}
    )
    assert sink.where == "PostgreSQL at db:99/results"
    assert (sink.flush_us, sink.takes_retractions) == (20_000, False)


@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_modes_other_than_append_take_retractions(mode: str) -> None:
    options = {
        "dsn": "host=db",
        "table": "ctr",
        "mode": mode,
        "by": "ad" if mode == "upsert" else [],
    }
    assert build_postgres_sink(options).takes_retractions


def test_a_server_that_does_not_answer_is_a_sentence_at_validation() -> None:
    sink = build_postgres_sink(
        {"dsn": "postgresql://u:hush-hush@127.0.0.1:1/results", "table": "ctr"}
    )
    away = r"PostgreSQL at 127\.0\.0\.1:1/results cannot be used"
    with pytest.raises(SetupError, match=away) as caught:
        sink.check("root")
    assert "hush" not in str(caught.value)
