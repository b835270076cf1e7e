"""What a real server answers is in tests/slow/test_lookups.py."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.connect.connectors.redis.lookup import RedisKeyLookup, build_redis_lookup
from millwheel.connect.lookups.base import NoAnswer
from millwheel.errors import UnavailableError

URL = "redis://:s3cret@h:6379/0"


class Server:
    """Stands for the client of redis-py: keys to what lies there, or to the error that the server
    gives."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content
        self._asked: list[str] = []

    def pipeline(self, transaction: bool) -> Server:
        assert not transaction
        return self

    def hgetall(self, name: str) -> None:
        self._asked.append(name)

    get = hgetall

    def execute(self, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        asked, self._asked = self._asked, []
        return [self._content.get(name) for name in asked]

    def close(self) -> None:
        pass


def _lookup(content: dict[str, Any], **options: Any) -> RedisKeyLookup:
    lookup = build_redis_lookup({"url": URL, "key": "item:{item}", **options})
    lookup.connect = lambda: Server(content)
    return lookup


def test_keys_are_filled_into_the_name_and_answers_come_in_their_order() -> None:
    lookup = _lookup({"item:tea": {"price": "80"}, "item:milk": {}})
    assert lookup.look_up([("milk",), ("tea",), ("owl",)]) == [None, {"price": "80"}, None]
    assert lookup.by == ("item",)
    assert "s3cret" not in lookup.where


def test_strings_are_text_or_json() -> None:
    assert _lookup({"item:a": "[1]"}, kind="string").look_up([("a",)]) == ["[1]"]
    (good, bad) = _lookup({"item:a": "[1]", "item:b": "["}, kind="string", format="json").look_up(
        [("a",), ("b",)]
    )
    assert good == [1]
    assert isinstance(bad, NoAnswer)
    assert "is not JSON" in bad.reason


def test_a_key_of_another_type_is_told_and_trouble_of_the_server_is_asked_again() -> None:
    wrong = Exception("WRONGTYPE Operation against a key holding the wrong kind of value")
    (answer,) = _lookup({"item:a": wrong}).look_up([("a",)])
    assert isinstance(answer, NoAnswer)
    assert answer.reason.endswith(str(wrong))
    with pytest.raises(UnavailableError, match="LOADING"):
        _lookup({"item:a": Exception("LOADING Redis is loading the dataset in memory")}).look_up(
            [("a",)]
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "item"}, "the same for every record"),
        ({"kind": "set"}, "kind"),
        ({"key": "item:{"}, "option 'key'"),
    ],
)
def test_options_that_cannot_work_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_redis_lookup({"url": URL, "key": "item:{item}", **options})
