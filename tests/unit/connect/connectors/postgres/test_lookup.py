"""What a real server answers is in tests/slow/test_lookups.py."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from millwheel.connect.connectors.postgres import client
from millwheel.connect.connectors.postgres.lookup import build_postgres_lookup
from millwheel.errors import UnavailableError

DSN = "postgresql://user:s3cret@h/db"


def test_a_lookup_names_its_columns_and_its_server_without_the_password() -> None:
    lookup = build_postgres_lookup({"dsn": DSN, "table": "prices", "by": ["item", "day"]})
    assert lookup.by == ("item", "day")
    assert "s3cret" not in lookup.where


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "item"}, "either the option 'table' or the option 'query'"),
        (
            {"table": "t", "query": "SELECT 1", "by": "item"},
            "either the option 'table' or the option 'query'",
        ),
        ({"table": "t", "by": []}, "option 'by' names no column"),
    ],
)
def test_options_that_cannot_work_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_postgres_lookup({"dsn": DSN, **options})


def test_a_server_that_is_away_is_asked_again_over_a_new_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        def execute(self, *_: object) -> Any:
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        def close(self) -> None:
            closed.append(self)

    closed: list[Broken] = []
    monkeypatch.setattr(client, "connect", lambda dsn: Broken())
    lookup = build_postgres_lookup({"dsn": DSN, "table": "t", "by": "item"})
    for _ in range(2):
        with pytest.raises(UnavailableError):
            lookup.look_up([("tea",)])
    assert len(closed) == 2
