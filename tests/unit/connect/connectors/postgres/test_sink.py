from __future__ import annotations

import pytest

from millwheel.connect.connectors.postgres.sink import build_postgres_sink
from millwheel.errors import SetupError


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
