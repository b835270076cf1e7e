from __future__ import annotations

from millwheel.adapters.report_desk import ReportDesk
from millwheel.core.watermark import ShardReport
from millwheel.pb import injector_pb2 as pb


def rows(frame: pb.ReportFrame) -> list[tuple[str, str, int, int, dict[str, int]]]:
    return [
        (reports.node, row.shard, row.token, row.watermark_us, dict(row.counters))
        for reports in frame.nodes
        for row in reports.reports
    ]


def test_only_the_newest_report_of_a_shard_is_sent_and_once() -> None:
    desk = ReportDesk()
    desk.put("counts", [ShardReport("counts-0", 1, 10), ShardReport("counts-1", 1, 10)])
    desk.put("counts", [ShardReport("counts-0", 1, 20)])
    assert rows(desk.take()) == [("counts", "counts-0", 1, 20, {}), ("counts", "counts-1", 1, 10, {})]
    assert not desk.waiting()


def test_a_new_session_says_everything_again_with_totals() -> None:
    desk = ReportDesk()
    desk.put("counts", [ShardReport("counts-0", 1, 10, counters={"in": 5})])
    first = rows(desk.take())
    desk.put("counts", [ShardReport("counts-0", 1, 11, counters={"in": 5})])
    assert rows(desk.take()) == [("counts", "counts-0", 1, 11, {})]
    desk.begin()
    assert rows(desk.take()) == [("counts", "counts-0", 1, 11, {"in": 5})]
    assert first == [("counts", "counts-0", 1, 10, {"in": 5})]


def test_what_left_or_is_older_is_not_reported() -> None:
    desk = ReportDesk()
    desk.put("counts", [ShardReport("counts-0", 2, 10), ShardReport("counts-1", 1, 10)])
    desk.put("counts", [ShardReport("counts-0", 1, 99)])
    desk.forget("counts-1")
    assert rows(desk.take()) == [("counts", "counts-0", 2, 10, {})]
