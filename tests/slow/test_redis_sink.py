"""Redis as a sink, against a real server: each row once, whoever writes and dies when."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from millwheel import Retraction
from millwheel.connect.connectors.external.absence import forget
from millwheel.connect.connectors.redis.sink import RedisKeySink, build_redis_sink
from millwheel.connect.sinks.base import BatchRefusedError, SinkBatch, SinkRecord
from millwheel.errors import FencedError, SetupError, UnavailableError
from millwheel.testing.contracts import ExternalSinkContract, SinkWorld
from millwheel.tools.testing.contracts.outside import Outside, WatchedClient
from millwheel.tools.testing.contracts.worlds import IDENTITY
from tests.servers.redis import PASSWORD, RedisServer, running
from tests.slow.waits import until, until_without

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def empty(redis_server: RedisServer) -> None:
    redis_server.client().flushall()
    forget()


class World(SinkWorld):
    def __init__(self, server: RedisServer, **options: Any) -> None:
        self._server, self._options = server, options
        self.reader = server.client()

    def sink(self, outside: Outside) -> RedisKeySink:
        made = build_redis_sink({"url": self._server.url, **self._options})
        connect = made.connect
        made.connect = lambda: WatchedClient(connect(), outside, ["eval"])  # type: ignore[assignment]
        made.identity = IDENTITY
        made.longest_wait_s = 0.0
        return made

    def lost(self) -> Exception:
        return redis.exceptions.ConnectionError("gone")

    def close(self) -> None:
        self.reader.close()


class Hashes(World):
    def rows(self) -> list[Any]:
        found = [self.reader.hgetall(key) for key in self.reader.scan_iter("row:*", _type="hash")]
        rows = [{"batch": int(row["batch"]), "row": int(row["row"])} for row in found]
        return sorted(rows, key=lambda row: (row["batch"], row["row"]))

    def refused(self) -> tuple[Any, str]:
        self.reader.set("row:0:13", "somebody else's")
        return {
            "batch": 0,
            "row": 13,
        }, "WRONGTYPE Operation against a key holding the wrong kind of value"


class Channel(World):
    """A subscriber sees every message: also one that is sent twice."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server, kind="pubsub", key="rows")
        self._heard: list[Any] = []
        self._subscriber = self.reader.pubsub()
        self._subscriber.subscribe("rows")
        while self._subscriber.get_message(timeout=1) is None:
            """Until the server has said that we are subscribed."""

    def rows(self) -> list[Any]:
        self._server.client().publish("rows", "end")
        while (message := self._subscriber.get_message(timeout=5))["data"] != "end":
            self._heard.append(json.loads(message["data"]))
        return list(self._heard)

    def close(self) -> None:
        self._subscriber.close()
        super().close()


class TestHashes(ExternalSinkContract):
    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.server = redis_server

    def world(self) -> SinkWorld:
        self.server.client().flushall()
        return Hashes(self.server, key="row:{batch}:{row}")


class TestMessages(ExternalSinkContract):
    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.server = redis_server

    def world(self) -> SinkWorld:
        self.server.client().flushall()
        return Channel(self.server)


# --- what rows become -----------------------------------------------------------------------------


class Shard:
    """One shard of a sink and its batches."""

    def __init__(self, server: RedisServer, **options: Any) -> None:
        self.sink = build_redis_sink({"url": server.url, **options})
        self.sink.identity = "root"
        self.sink.longest_wait_s = 0.0
        self.writer = self.sink.open("sink.out-0", 1)
        self.number = 0

    def write(self, *values: Any) -> None:
        records = [SinkRecord("k", value, 1) for value in values]
        committable = self.writer.prepare(SinkBatch(self.number, f"1-{self.number}", records))
        assert not self.writer.take_refused()
        self.number += 1
        self.writer.publish(committable)


WINDOW = {"window_start": 0, "window_end": 60_000_000}


def test_a_hash_has_the_fields_of_the_last_row_and_lives_as_long_as_its_window(
    redis_server: RedisServer,
) -> None:
    shard, reader = Shard(redis_server, key="ctr:{ad_id}", expire="window"), redis_server.client()
    shard.write({"ad_id": 7, "clicks": 1, "old": "x", **WINDOW})
    shard.write(
        {"ad_id": 7, "clicks": 2, "note": None, "more": [1], **WINDOW},
        {"ad_id": "a", "ok": True, **WINDOW},
    )
    bounds = {"window_start": "0", "window_end": "60000000"}
    assert reader.hgetall("ctr:7") == {"ad_id": "7", "clicks": "2", "more": "[1]", **bounds}
    assert reader.hgetall("ctr:a") == {"ad_id": "a", "ok": "true", **bounds}
    assert 50_000 < reader.pttl("ctr:7") <= 60_000


def test_strings_sorted_sets_and_chosen_fields(redis_server: RedisServer) -> None:
    reader = redis_server.client()
    Shard(redis_server, kind="string", key="s:{k}", value="n * 2", expire="1h").write(
        {"k": "a", "n": 21}
    )
    assert reader.get("s:a") == "42"
    assert 3_599_000 < reader.pttl("s:a") <= 3_600_000
    redis_server.client().delete("millwheel:root/sink.out-0")
    Shard(redis_server, kind="sorted_set", key="top:{game}", member="{who}", score="points").write(
        {"game": "g", "who": "ann", "points": 1.5}, {"game": "g", "who": "bob", "points": 1},
        {"game": "g", "who": "ann", "points": 0},
    )  # fmt: skip
    assert reader.zrange("top:g", 0, -1, withscores=True) == [("ann", 0.0), ("bob", 1.0)]
    redis_server.client().delete("millwheel:root/sink.out-0")
    Shard(redis_server, key="h:{k}", fields=["n"]).write({"k": "a", "n": 21})
    assert reader.hgetall("h:a") == {"n": "21"}


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "hash", "key": "x:{k}"},
        {"kind": "string", "key": "x:{k}"},
        {"kind": "sorted_set", "key": "x", "member": "{k}", "score": "n"},
    ],
)
def test_a_row_that_is_taken_back_goes_unless_another_has_replaced_it(
    redis_server: RedisServer, options: dict[str, Any]
) -> None:
    shard, reader = Shard(redis_server, **options), redis_server.client()

    def there() -> bool:
        return bool(reader.keys("x*"))

    one, two = {"k": "a", "n": 1}, {"k": "a", "n": 2}
    shard.write(one)
    shard.write(Retraction(two))
    assert there()
    shard.write(Retraction(one))
    assert not there()
    shard.write(one, Retraction(one))
    assert not there()
    shard.write(one)
    shard.write(two, Retraction(two))
    assert not there()
    shard.write(one)
    shard.write(Retraction(one), two)
    assert there()


# --- the server is away ---------------------------------------------------------------------------


def test_a_server_that_hangs_and_dies_loses_and_doubles_nothing(tmp_path: Path) -> None:
    for server in running(tmp_path):
        shard = Shard(server, kind="sorted_set", key="n", member="{n}", score="n")
        done: list[int] = []

        def write() -> None:
            for n in range(300):
                committable = shard.writer.prepare(
                    SinkBatch(n, f"1-{n}", [SinkRecord("k", {"n": n}, 1)])
                )
                until_without(UnavailableError, partial(shard.writer.publish, committable))
                done.append(n)

        thread = threading.Thread(target=write)
        thread.start()
        for goal, trouble in ((50, server.pause), (100, server.kill), (200, server.kill)):
            until(lambda goal=goal: len(done) >= goal)  # type: ignore[misc]
            trouble()
            (server.resume if trouble == server.pause else server.start)()
        thread.join(60)
        assert [int(member) for member in server.client().zrange("n", 0, -1)] == list(range(300))


def test_a_server_that_forgets_is_told_of_and_written_to_again(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    shard, reader = Shard(redis_server, kind="string", key="s:{n}"), redis_server.client()
    shard.write({"n": 0})
    shard.write({"n": 1})
    reader.flushall()
    with pytest.raises(UnavailableError, match="is gone, which notes what has been written"):
        shard.write({"n": 2})
    committable = shard.writer.prepare(SinkBatch(2, "1-2", [SinkRecord("k", {"n": 2}, 1)]))
    shard.writer.publish(committable)
    assert reader.keys("s:*") == ["s:2"]
    assert (
        "has lost data: it holds the batches of root/sink.out-0 up to -1, and those up to 1"
        in caplog.text
    )


def test_a_newer_owner_shuts_out_the_former_one(redis_server: RedisServer) -> None:
    shard = Shard(redis_server, kind="string", key="s:{n}")
    shard.write({"n": 0})
    newer = shard.sink.open("sink.out-0", 2)
    newer.publish(newer.prepare(SinkBatch(1, "2-1", [SinkRecord("k", {"n": 1}, 1)])))
    with pytest.raises(FencedError, match="newer publisher"):
        shard.write({"n": 3})


# --- bad input ------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_and_a_wrong_password_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(
        SetupError, match=r"Redis at 127\.0\.0\.1:1 does not answer: .*Is it running"
    ):
        build_redis_sink({"url": "redis://127.0.0.1:1/0", "key": "k"}).check("root")
    for server in running(tmp_path, PASSWORD):
        build_redis_sink({"url": server.url, "key": "k"}).check("root")
        for url in (server.url.replace(PASSWORD, "wr0ng"), server.url.replace(f":{PASSWORD}@", "")):
            with pytest.raises(SetupError, match="does not let us in") as raised:
                build_redis_sink({"url": url, "key": "k"}).check("root")
            assert "wr0ng" not in str(raised.value)


def test_a_key_of_another_type_refuses_its_rows_with_the_words_of_the_server(
    redis_server: RedisServer,
) -> None:
    redis_server.client().rpush("row:1", "a list")
    shard = Shard(redis_server, key="row:{n}")
    with pytest.raises(BatchRefusedError, match="has no field 'n'") as raised:
        shard.write({"n": 1}, {"n": 2}, {"n": 1, "more": 1}, {"m": 1})
    assert [each.record.value for each in raised.value.refused] == [{"m": 1}]
    rest = raised.value.committable
    with pytest.raises(BatchRefusedError, match="WRONGTYPE") as raised:
        shard.writer.publish(rest)
    assert [each.record.value for each in raised.value.refused] == [{"n": 1}, {"n": 1, "more": 1}]
    shard.writer.publish(raised.value.committable)
    assert redis_server.client().hgetall("row:2") == {"n": "2"}
