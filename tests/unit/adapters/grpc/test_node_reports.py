"""Which reports are spelled out, and which go by number."""

from __future__ import annotations

from millwheel.adapters.grpc.node_reports import NodeReports
from millwheel.core.model.times import IDLE_TIME, MIN_TIME
from millwheel.core.model.watermark import ShardReport


def sent(reports: NodeReports, *given: ShardReport) -> list[tuple[list[str], list[int]]]:
    """The shards that are spelled out, with how far silence has moved them, after these reports."""
    reports.put(given)
    return [(list(part.shards), list(part.idle_us)) for part in reports.take()]


def test_a_shard_is_spelled_out_once_and_then_goes_by_number() -> None:
    reports = NodeReports("n")
    assert sent(reports, ShardReport("a", 1, 10)) == [(["a"], [MIN_TIME])]
    assert sent(reports, ShardReport("a", 1, 20)) == [([], [])]


def test_how_far_silence_has_moved_a_shard_is_spelled_out_whenever_it_changes() -> None:
    reports = NodeReports("n")
    sent(reports, ShardReport("a", 1, 10))
    assert sent(reports, ShardReport("a", 1, IDLE_TIME, idle_us=50)) == [(["a"], [50])]
    assert sent(reports, ShardReport("a", 1, IDLE_TIME, idle_us=60)) == [(["a"], [60])]
    assert sent(reports, ShardReport("a", 1, 70)) == [(["a"], [MIN_TIME])]
