from __future__ import annotations

from millwheel.core.grouping.epochs import Rule
from millwheel.core.grouping.tables import Measured, Network
from millwheel.core.model.keys import Key
from millwheel.core.model.names import NodeName, ShardName
from millwheel.engine.workers.delivery.lane_times import LaneTimes
from millwheel.engine.workers.sources.completion import AHEAD_US, CompletionTimes, ReadAhead


def shard_of(node: NodeName, key: Key) -> ShardName | None:
    """Two instances in each shard; the table of the second node is not known."""
    return ShardName(f"{node}-{key[-1] // 2}") if node == "n" else None


def far(shard: ShardName) -> Network:
    return Network.RACK if shard == "n-0" else Network.ELSEWHERE


def complete(times: LaneTimes, shard: str, records: int, took_us: int) -> None:
    times.sent("c", ShardName(shard), 1, 0, records, 0)
    times.acked("c", ShardName(shard), 1, 0, took_us)


def test_an_instance_has_the_means_of_its_shard_since_they_were_taken_last() -> None:
    times = LaneTimes()
    mine, other = (CompletionTimes(times, shard_of, far) for _ in range(2))
    rules = {"n": Rule("tag", 4), "unknown": Rule("tag", 2)}
    complete(times, "n-0", 10, 500)
    found = mine.take(rules)
    network = (Network.RACK, Network.RACK, Network.ELSEWHERE, Network.ELSEWHERE)
    assert found["n"] == Measured((500.0, 500.0, None, None), (50.0, 50.0, None, None), network)
    assert found["unknown"] == Measured((None,) * 2, (None,) * 2, (Network.HOST,) * 2)
    assert mine.take(rules)["n"].completion_us == (None,) * 4
    complete(times, "n-1", 10, 800)
    assert mine.take(rules)["n"].alone_us[2:] == (80.0, 80.0)
    assert other.take(rules)["n"].completion_us == (500.0, 500.0, 800.0, 800.0)


def steady(ahead: ReadAhead, per_s: float, rounds: int) -> int:
    """Consumers that take so many records a second, with always as much to do as may wait: how long
    a read takes in the end (µs)."""
    now_us, took_us = 0, 0
    for _ in range(rounds):
        waited, sent_at_us = ahead.most, now_us
        took_us = round(waited / per_s * 1e6)
        now_us += took_us
        ahead.applied(waited, sent_at_us, now_us)
    return took_us


def test_a_partition_is_read_ahead_by_a_limited_time_whatever_the_rate() -> None:
    for per_s in (1_000, 5_000, 500_000):
        assert AHEAD_US // 4 <= steady(ReadAhead(), per_s, rounds=20) <= AHEAD_US


def test_what_was_sent_before_a_change_does_not_change_it_again() -> None:
    ahead = ReadAhead(8_000)
    for sent_at_us in (0, 1, 2):
        ahead.applied(8_000, sent_at_us, 4 * AHEAD_US)
    assert ahead.most == 2_000
    ahead.applied(2_000, 4 * AHEAD_US, 6 * AHEAD_US)
    assert ahead.most == 1_000


def test_nothing_grows_while_little_comes() -> None:
    ahead = ReadAhead()
    ahead.applied(10, 0, 5_000)
    assert ahead.most == 512


def test_some_records_may_always_be_read() -> None:
    ahead = ReadAhead(8_000)
    ahead.applied(8_000, 0, 10**12)
    assert ahead.most == 512
    assert ahead.share == 256
    assert ahead.has_room(511)
    assert not ahead.has_room(512)
