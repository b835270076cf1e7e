"""What a target makes of the answers of a server; ``tests/slow/test_redis_sink.py`` runs its
scripts in a real one."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import redis

from millwheel.connect.connectors.external.target import NOTHING_YET, Owner, RowsRefusedError
from millwheel.connect.connectors.redis.operations import RedisRows
from millwheel.connect.connectors.redis.sink import RedisKeySink, RedisTarget, build_redis_sink
from millwheel.connect.connectors.redis.sink_options import RedisSinkOptions
from millwheel.connect.sinks.base import SinkRecord
from millwheel.errors import FencedError, SetupError, UnavailableError


class Server:
    """Answers each script with the next of ``answers``; an exception is raised. It is its own
    client."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[list[str], list[Any]]] = []
        self.connections = 0

    def connect(self) -> Server:
        self.connections += 1
        return self

    def eval(self, script: str, keys: int, *words: Any) -> Any:
        self.asked.append((list(words[:keys]), list(words[keys:])))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None: ...


def target(server: Server, token: int = 5) -> RedisTarget:
    rows = RedisRows(RedisSinkOptions("redis://h", "row:{k}"))
    return RedisTarget(server.connect, rows, Owner("root/s-0", token), "marks:", "Redis at h")


def records(*values: Any) -> list[SinkRecord]:
    return [SinkRecord("", value, 0) for value in values]


def test_the_mark_of_the_shard_tells_what_is_written_and_who_may_write() -> None:
    server = Server([5, 7])
    assert target(server).fence() == 7
    assert server.asked == [(["marks:root/s-0"], [5])]
    with pytest.raises(FencedError, match="its lease token is 6, ours 5"):
        target(Server([6, 7])).fence()


def test_a_batch_names_all_its_keys_and_the_length_of_each_operation() -> None:
    server = Server(["written"])
    target(server).write(0, records({"k": 1, "n": 2}, {"k": 2}))
    [(keys, words)] = server.asked
    assert keys == ["marks:root/s-0", "row:1", "row:2"], (
        "a script may touch only the keys that it was given"
    )
    assert words[:2] == [5, 0]
    lengths, at = [], 2
    while at < len(words):
        lengths.append(words[at])
        at += words[at] + 1
    assert at == len(words), "the script finds the operations by their lengths"
    assert lengths == [6, 4]


def test_rows_that_the_connector_cannot_write_are_refused_before_anything_is_asked() -> None:
    server = Server()
    with pytest.raises(RowsRefusedError) as refused:
        target(server).write(0, records({"k": 1}, {"n": 2}))
    assert list(refused.value.reasons) == [1]
    assert not server.asked


def test_an_operation_that_the_server_refuses_is_that_of_all_its_rows() -> None:
    server = Server(["refused", "1", "WRONGTYPE"])
    with pytest.raises(RowsRefusedError) as refused:
        target(server).write(0, records({"k": 1}, {"k": 2, "n": 1}, {"k": 2, "n": 2}))
    assert refused.value.reasons == {1: "WRONGTYPE", 2: "WRONGTYPE"}


def test_a_newer_owner_ends_us_and_an_older_mark_is_fenced_again() -> None:
    with pytest.raises(FencedError):
        target(Server(["fenced", "6"])).write(0, records({"k": 1}))
    with pytest.raises(UnavailableError, match="an older one than ours, 4"):
        target(Server(["fenced", "4"])).write(0, records({"k": 1}))
    with pytest.raises(UnavailableError, match="the key marks:root/s-0 is gone"):
        target(Server(["forgotten"])).write(0, records({"k": 1}))


def test_a_server_that_lost_batches_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    made = target(Server([5, NOTHING_YET], ["written"], ["written"]))
    made.fence()
    with caplog.at_level(logging.ERROR):
        made.write(3, records({"k": 1}))
        made.write(4, records({"k": 1}))
    [told] = caplog.records
    assert (
        "Redis at h has lost data: it holds the batches of root/s-0 up to -1, and those up to 2"
        in told.message
    )


def test_a_connection_that_failed_is_given_up() -> None:
    server = Server(redis.exceptions.ConnectionError("gone"), [5, 0])
    made = target(server)
    with pytest.raises(UnavailableError, match="gone"):
        made.fence()
    assert made.fence() == 0
    assert server.connections == 2


class MarksServer:
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
    server = MarksServer()
    sink(server, marks="m:").check("p-1")
    assert server.touched == ["m:p-1/check"]
    assert server.closed
    assert not server.keys


def test_a_server_that_lets_nobody_write_marks_is_a_sentence_at_validation() -> None:
    server = MarksServer(refuses=True)
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
