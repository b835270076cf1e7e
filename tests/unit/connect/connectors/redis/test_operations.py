from __future__ import annotations

from typing import Any

from millwheel import Retraction
from millwheel.connect.connectors.redis.operations import RedisRows
from millwheel.connect.connectors.redis.sink_options import RedisSinkOptions
from millwheel.connect.sinks.base import SinkRecord


def words_of(values: list[Any], **options: Any) -> tuple[list[tuple[str, ...]], dict[int, str]]:
    rows = RedisRows(RedisSinkOptions("redis://localhost", "k:{k}", **options))
    operations, refused = rows.operations([SinkRecord("", value, 0) for value in values])
    return [(each.key, *each.words) for each in operations], refused


def test_the_last_row_of_a_key_is_written() -> None:
    found, _ = words_of([{"k": 1, "n": 1}, {"k": 2}, {"k": 1, "n": 2}], kind="string")
    assert found == [("k:1", "set", "0", '{"k":1,"n":2}'), ("k:2", "set", "0", '{"k":2}')]


def test_a_row_that_comes_and_goes_removes_what_stood() -> None:
    assert words_of([{"k": 1}, Retraction({"k": 1})])[0] == [("k:1", "drop")]
    assert words_of([Retraction({"k": 1})])[0] == [("k:1", "hash_back", "k", "1")]


def test_messages_are_sent_all_in_their_order() -> None:
    found, refused = words_of([{"k": 1}, {"k": 1}, Retraction({"k": 1})], kind="pubsub", value="k")
    assert found == [("k:1", "say", "1"), ("k:1", "say", "1")]
    assert refused == {2: "a message that was sent cannot be taken back"}


def test_rows_that_cannot_be_written_are_refused_one_by_one() -> None:
    rows = [{"k": 1, "s": "x"}, {"k": 1, "s": 2.5}, {"k": 1}, {"k": 1, "s": float("nan")}]
    found, refused = words_of(rows, kind="sorted_set", member="m{k}", score="s")
    assert found == [("k:1", "add", "0", "2.5", "m1")]
    assert set(refused) == {0, 2, 3}
    assert "Redis takes numbers" in refused[0]


def test_the_length_of_a_window_is_how_long_its_key_lives() -> None:
    row = {"k": 1, "window_start": 5, "window_end": 1_006}
    assert words_of([row], expire="window")[0][0][:3] == ("k:1", "hash", "2")
    assert "expire: window needs the fields" in words_of([{"k": 1}], expire="window")[1][0]
