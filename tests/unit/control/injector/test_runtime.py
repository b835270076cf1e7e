from __future__ import annotations

from collections.abc import Mapping

from millwheel.control.injector.events import Event, RangesChanged, ReportColumns, ReportsArrived
from millwheel.control.injector.runtime import InjectorRuntime
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import KeyRange
from millwheel.core.model.times import MAX_TIME
from millwheel.core.model.watermark import ShardReport

TABLE = RangeTable("counts", (ShardEntry("counts-0", KeyRange(0, 1 << 64), "w1", 3),), 0)


class Line:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Mapping[str, int]]] = []

    def greet(self, watermarks: Mapping[str, int]) -> None:
        self.heard.append(("greeted", dict(watermarks)))

    def watermarks(self, watermarks: Mapping[str, int]) -> None:
        self.heard.append(("risen", dict(watermarks)))

    def tokens(self, tokens: Mapping[str, int]) -> None:
        self.heard.append(("tokens", dict(tokens)))

    def close(self) -> None:
        self.heard.append(("closed", {}))


def report(watermark_us: int) -> Event:
    return ReportsArrived(1, "counts", ReportColumns.of([ShardReport("counts-0", 3, watermark_us)]))


def test_a_connection_is_greeted_answered_and_told_what_rose() -> None:
    runtime, line = InjectorRuntime(), Line()
    runtime.step([runtime.connect(1, line), RangesChanged(TABLE), report(500)], 0)
    assert line.heard == [("greeted", {}), ("tokens", {"counts-0": 3}), ("risen", {"counts": 500})]


def test_reports_that_keep_coming_are_published_together_and_none_is_forgotten() -> None:
    runtime, line = InjectorRuntime(publish_every_us=2_000), Line()
    runtime.step([runtime.connect(1, line), RangesChanged(TABLE), report(500)], 10_000)
    line.heard.clear()
    assert runtime.step([report(501)], 10_500) == 12_000
    assert runtime.step([report(502)], 11_000) == 12_000
    assert line.heard == []
    assert runtime.step([], 12_000) == MAX_TIME
    assert line.heard == [("risen", {"counts": 502})]


def test_a_connection_that_ended_is_told_nothing_more() -> None:
    runtime, line = InjectorRuntime(), Line()
    runtime.step([runtime.connect(1, line)], 0)
    runtime.disconnect(1)
    runtime.step([RangesChanged(TABLE), report(500)], 10_000)
    assert line.heard == [("greeted", {}), ("closed", {})]
