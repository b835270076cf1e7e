"""What a request may hold, and the commands that it becomes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from millwheel.core.pipeline.spec import QuerySpec
from millwheel.engine.queries.model import QueryError
from millwheel.engine.queries.named_queries import NamedQueries
from millwheel.engine.queries.names import Catalog
from millwheel.tools.gateway.owners import Owners
from millwheel.tools.gateway.questions import (
    AskedQuestion,
    asking_of,
    batch_of,
    deadline_s,
    decode_batch,
)

NAMED = NamedQueries([QuerySpec("cpc", "clicks.spend / clicks.n", 3_600_000_000)])
CATALOG = Catalog({"clicks": "int", "views": None, "users": "str"}, frozenset({"clicks"}), NAMED)
RUN = SimpleNamespace(catalog=CATALOG, owners=Owners(frozenset({"clicks"})))


def words(**given: Any) -> str:
    """The command that a question becomes."""
    data = asking_of(AskedQuestion(**given), True, RUN).command
    return b" ".join(data.split(b"\r\n")[4::2]).decode()


DEFAULTS = "MODE covering CONSISTENCY durable"


@pytest.mark.parametrize(
    ("given", "command"),
    [
        (
            {"indicator": "clicks", "key": 42, "window": "3h"},
            f"clicks 42 {DEFAULTS} WINDOW 10800000000us",
        ),
        ({"indicator": "clicks", "key": "42", "window": 7}, f"clicks 42 {DEFAULTS} WINDOW 7us"),
        ({"indicator": "views", "key": "42"}, f'views "42" {DEFAULTS}'),
        ({"indicator": "users.n", "key": "42"}, f"users.n 42 {DEFAULTS}"),
        ({"indicator": "views", "key": ["a", 1]}, f'views ["a",1] {DEFAULTS}'),
        ({"name": "clicks:42:3h@17"}, f"clicks 42 {DEFAULTS} WINDOW 10800000000us UNTIL 17"),
        ({"name": "cpc:{42}@17"}, f"cpc 42 {DEFAULTS} WINDOW 3600000000us UNTIL 17"),
        ({"formula": "clicks.n * 2", "key": 1, "until": 9}, f"clicks.n * 2 1 {DEFAULTS} UNTIL 9"),
        (
            {"indicator": "clicks", "key": 1, "mode": "inside"},
            "clicks 1 MODE inside CONSISTENCY durable",
        ),
    ],
)
def test_a_question_is_a_command(given: dict[str, Any], command: str) -> None:
    assert words(**given) == command


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "unknown_indicator"),
        ({"indicator": "clicks"}, "wrong_key"),
        ({"indicator": "clicks", "key": "x"}, "wrong_key"),
        ({"indicator": "clicks", "key": {"a": 1}}, "wrong_key"),
        ({"indicator": "clicks", "key": 1.5}, "wrong_key"),
        ({"indicator": "other", "key": 1}, "unknown_indicator"),
        ({"indicator": "clicks", "key": 1, "formula": "clicks.n"}, "unknown_indicator"),
        ({"formula": "clicks.n +", "key": 1}, "bad_formula"),
        ({"name": "clicks:1:1h", "key": 2}, "bad_window"),
        ({"indicator": "clicks", "key": 1, "window": "3 parsecs"}, "bad_window"),
        ({"indicator": "clicks", "key": 1, "mode": "most"}, "bad_window"),
    ],
)
def test_what_has_no_answer_anywhere_is_told_without_asking(
    given: dict[str, Any], code: str
) -> None:
    with pytest.raises(QueryError) as caught:
        words(**given)
    assert caught.value.code == code


def test_parameters_are_a_request_whose_key_is_as_people_write_it() -> None:
    batch = batch_of(
        {"indicator": "views", "key": "42", "window": "3h", "deadline_ms": "50", "stale": "false"}
    )
    (question,) = batch.queries
    assert (batch.deadline_ms, batch.stale, question.window) == (50, False, "3h")
    assert asking_of(question, False, RUN).command.split(b"\r\n")[6] == b"42"
    for wrong in ({"windw": "3h"}, {"until": "now"}, {"deadline_ms": "soon"}):
        with pytest.raises(QueryError):
            batch_of(wrong)
    with pytest.raises(QueryError, match="deadline_ms is from 1"):
        deadline_s(batch_of({"deadline_ms": "0"}))


def test_a_field_that_is_not_known_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="windw"):
        decode_batch(b'{"queries": [{"indicator": "clicks", "key": 1, "windw": "3h"}]}')
