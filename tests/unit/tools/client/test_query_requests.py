"""Questions of a client as requests."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from millwheel.engine.queries.model import QueryError
from millwheel.tools.client.query_requests import MOST_ASKS, Ask, body_of, pieces_of
from millwheel.tools.gateway.questions import MAX_BATCH, decode_batch


def question(**given: Any) -> dict[str, Any]:
    body = body_of([Ask(**given)], {})
    decode_batch(body)  # the gateway takes it
    (found,) = msgspec.json.decode(body)["queries"]
    return {name: value for name, value in found.items() if name not in ("mode", "consistency")}


def test_a_question_is_what_the_gateway_takes() -> None:
    assert question(indicator="clicks", key=42, window="3h") == {
        "indicator": "clicks",
        "key": 42,
        "window": "3h",
    }
    assert question(indicator="clicks.n / views.n", key=("a", 1))["formula"] == "clicks.n / views.n"
    assert question(indicator="a", key=1, window=timedelta(minutes=1))["window"] == 60_000_000
    at = datetime(1970, 1, 2, 1, tzinfo=timezone(timedelta(hours=1)))
    assert question(indicator="a", key=1, until=at)["until"] == 86_400_000_000
    assert (
        body_of(["clicks:42:3h"], {"stale": False})
        == b'{"queries":[{"name":"clicks:42:3h"}],"stale":false}'
    )


def test_what_is_no_question_is_a_sentence() -> None:
    with pytest.raises(QueryError, match="a key is a number"):
        question(indicator="a", key=object())
    with pytest.raises(QueryError, match="needs a time zone"):
        question(indicator="a", key=1, until=datetime(2026, 1, 1))


def test_many_questions_are_several_requests() -> None:
    assert MOST_ASKS == MAX_BATCH
    assert [len(piece) for piece in pieces_of(["a:1"] * (MOST_ASKS + 1))] == [MOST_ASKS, 1]
