"""A sink of Redis before rows are written."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from millwheel.connect.connectors.redis.sink import RedisKeySink, build_redis_sink
from millwheel.errors import SetupError


class Server:
    """A server that lets us in, and perhaps write."""

    def __init__(self, refuses: bool = False) -> None:
        self._refuses = refuses
        self.keys: set[str] = set()
        self.touched: list[str] = []
        self.closed = False

    def info(self, section: str) -> dict[str, int]:
        return {"cluster_enabled": 0}

    def hset(self, key: str, field: str, value: str) -> None:
        self.touched.append(key)
        if self._refuses:
            raise redis.exceptions.NoPermissionError("this user has no permissions")
        self.keys.add(key)

    def delete(self, key: str) -> None:
        self.keys.discard(key)

    def close(self) -> None:
        self.closed = True


def sink(server: Any = None, **options: Any) -> RedisKeySink:
    made = build_redis_sink({"url": "redis://u:hush-hush@h:1/0", "key": "row:{k}", **options})
    if server is not None:
        made.connect = lambda: server  # type: ignore[assignment]
    return made


def test_it_is_checked_that_marks_can_be_written_and_nothing_is_left() -> None:
    server = Server()
    sink(server, marks="m:").check("p-1")
    assert server.touched == ["m:p-1/check"]
    assert server.closed
    assert not server.keys


def test_a_server_that_lets_nobody_write_marks_is_a_sentence_at_validation() -> None:
    server = Server(refuses=True)
    with pytest.raises(
        SetupError, match=r"Redis at h:1 does not let us write keys that begin with 'm:': this user"
    ):
        sink(server, marks="m:").check("p-1")
    assert server.closed


@pytest.mark.parametrize("kind", ["string", "hash", "sorted_set", "pubsub"])
def test_what_was_written_can_be_taken_back_but_not_what_was_sent(kind: str) -> None:
    more = {"member": "{k}", "score": "n"} if kind == "sorted_set" else {}
    assert sink(kind=kind, **more).takes_retractions == (kind != "pubsub")


def test_the_server_is_named_without_a_password_and_options_count() -> None:
    made = sink(flush="30ms")
    assert (made.where, made.flush_us) == ("Redis at h:1", 30_000)
    with pytest.raises(ValueError, match="the sink 'redis'"):
        sink(flsh="30ms")
