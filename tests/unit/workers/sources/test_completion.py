from __future__ import annotations

from millwheel.core.grouping.epochs import Rule
from millwheel.core.grouping.tables import Measured, Network
from millwheel.core.model.keys import Key
from millwheel.core.model.names import NodeName, ShardName
from millwheel.workers.delivery.lane_times import LaneTimes
from millwheel.workers.sources.completion import CompletionTimes


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
