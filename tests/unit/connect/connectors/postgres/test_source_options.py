from __future__ import annotations

from typing import Any

import pytest

from millwheel.connect.connectors.postgres.source import build_postgres_source


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"order_by": "id"}, "needs one of the options 'table' and 'query'"),
        ({"order_by": "id", "table": "t", "query": "select 1"}, "needs one of the options"),
        ({"table": "t"}, "needs the option 'order_by'; write for example order_by: id"),
        ({"order_by": "id", "query": "select 1; drop table x"}, "more than one statement"),
        ({"order_by": "id", "table": "t", "partitions": 0}, "option 'partitions'"),
        ({"order_by": "id", "table": "t", "page_rows": 0}, "option 'page_rows'"),
        (
            {"order_by": "id", "table": "t", "dsn": "hush hush"},
            "option 'dsn' is no connection string",
        ),
    ],
)
def test_options_that_cannot_work_are_sentences_without_the_password(
    more: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        build_postgres_source({"dsn": "postgresql://u:hush-hush@db/results", **more})
    assert told in str(caught.value)
    assert "hush" not in str(caught.value)
