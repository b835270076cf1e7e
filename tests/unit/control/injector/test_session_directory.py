"""What is reported by number is worth what it would be spelled out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from millwheel.control.injector.effects import Broadcast, TokensConfirmed
from millwheel.control.injector.events import (
    Disconnected,
    NumbersReported,
    PublishDue,
    RangesChanged,
    ReportColumns,
    ReportsArrived,
)
from millwheel.control.injector.state import InjectorState, WatermarkView
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE, KeyRange
from millwheel.core.model.times import IDLE_TIME, MAX_TIME
from millwheel.core.model.watermark import ShardReport
from millwheel.errors import InvariantError

HALF = SPACE // 2


class Injector:
    """A node of two shards ``a`` and ``b``; tables are their tokens, numbers are ``{number:
    watermark}``."""

    def __init__(self, a: int, b: int) -> None:
        self.state = InjectorState()
        self._version = -1
        self.table(a, b)

    def table(self, a: int, b: int) -> dict[int, Mapping[str, int]]:
        self._version += 1
        halves = KeyRange(0, HALF), KeyRange(HALF, SPACE)
        entries = tuple(
            ShardEntry(name, half, "w", token)
            for name, half, token in zip("ab", halves, (a, b), strict=True)
        )
        return self._answers(RangesChanged(RangeTable("n", entries, self._version)))

    def name(self, reports: Mapping[int, ShardReport], by: int = 1) -> Mapping[str, int]:
        columns = ReportColumns.of(list(reports.values()))
        numbers = np.array(list(reports), np.int64)
        return self._answers(ReportsArrived(by, "n", columns, (), numbers)).get(by, {})

    def report(self, watermarks: Mapping[int, int], by: int = 1) -> Mapping[str, int]:
        numbers, values = (
            np.array(list(watermarks), np.int64),
            np.array(list(watermarks.values()), np.int64),
        )
        return self._answers(NumbersReported(by, "n", numbers, values)).get(by, {})

    def _answers(
        self, event: RangesChanged | ReportsArrived | NumbersReported
    ) -> dict[int, Mapping[str, int]]:
        effects = self.state.handle(event)
        return {
            effect.connection: effect.tokens
            for effect in effects
            if isinstance(effect, TokensConfirmed)
        }

    def publish(self) -> Mapping[str, int]:
        found = {}
        for effect in self.state.handle(PublishDue()):
            assert isinstance(effect, Broadcast)
            found.update(effect.watermarks)
        return found

    @property
    def view(self) -> WatermarkView:
        return self.state.view()[0]


@pytest.fixture
def named() -> Injector:
    """Connection 1 has named ``a`` 0 and ``b`` 5, both at 10."""
    injector = Injector(1, 1)
    assert injector.name(
        {0: ShardReport("a", 1, 10, "input"), 5: ShardReport("b", 1, 10, "timer")}
    ) == {"a": 1, "b": 1}
    assert injector.publish() == {"n": 10}
    return injector


def test_watermarks_rise_by_number_and_the_holder_is_still_named(named: Injector) -> None:
    assert named.report({0: 30, 5: 20}) == {}
    assert named.publish() == {"n": 20}
    assert (named.view.holder_shard, named.view.holder) == ("b", "timer")


def test_a_number_is_refused_once_the_table_has_another_token(named: Injector) -> None:
    named.table(2, 1)
    assert named.report({0: 50, 5: 50}) == {}
    assert named.publish() == {}
    assert named.view.stale_reports == 1


def test_a_number_that_is_named_anew_stands_for_the_newer_token(named: Injector) -> None:
    named.table(2, 1)
    assert named.name({0: ShardReport("a", 2, 10)}) == {"a": 2}
    named.report({0: 30, 5: 20})
    assert named.publish() == {"n": 20}


def test_a_number_may_come_to_stand_for_another_shard(named: Injector) -> None:
    named.name({0: ShardReport("b", 1, 10)})
    named.report({0: 90})
    assert named.publish() == {}
    assert named.view.holder_shard == "a"


def test_a_number_ahead_of_the_table_waits_for_it_and_so_does_its_answer(named: Injector) -> None:
    assert named.name({0: ShardReport("a", 2, 40, counters={"late": 3})}) == {}
    assert named.report({0: 60, 5: 50}) == {}
    assert named.publish() == {}
    assert named.table(2, 1) == {1: {"a": 2}}
    assert named.publish() == {"n": 50}
    assert named.view.counters == {"late": 3}
    named.report({5: 70})
    assert named.publish() == {"n": 60}


def test_a_number_of_an_unknown_node_counts_once_there_is_a_table() -> None:
    injector = Injector(1, 1)
    rows = ReportColumns.of([ShardReport("c", 1, 10)])
    injector.state.handle(ReportsArrived(1, "m", rows, (), np.array([0])))
    injector.state.handle(NumbersReported(1, "m", np.array([0]), np.array([20])))
    injector.state.handle(
        RangesChanged(RangeTable("m", (ShardEntry("c", KeyRange(0, SPACE), "w", 1),), 0))
    )
    injector.state.handle(NumbersReported(1, "m", np.array([0]), np.array([15])))
    assert injector.publish() == {"m": 20}


def test_numbers_of_one_connection_mean_nothing_on_another(named: Injector) -> None:
    named.name({0: ShardReport("b", 1, 10)}, by=2)
    named.report({0: 90, 5: 90}, by=2)
    assert named.publish() == {}
    assert (named.view.holder_shard, named.view.stale_reports) == ("a", 1)


@pytest.mark.parametrize("number", [1, 4, 6, 4_000_000])
def test_a_number_that_was_never_named_is_refused(named: Injector, number: int) -> None:
    named.report({0: 30, number: 99, 5: 30})
    assert named.publish() == {"n": 30}
    assert named.view.stale_reports == 1


def test_numbers_end_with_their_connection_and_what_they_reported_stays(named: Injector) -> None:
    named.state.handle(Disconnected(1))
    named.report({0: 90, 5: 90})
    assert named.publish() == {}
    assert named.view.watermark_us == 10


def test_an_idle_shard_comes_back_by_number_and_may_be_lower(named: Injector) -> None:
    named.report({0: 100, 5: IDLE_TIME})
    assert named.publish() == {"n": 100}
    named.report({5: 50, 0: 200})
    assert named.publish() == {}
    named.report({5: 150})
    assert named.publish() == {"n": 150}


def test_a_node_has_not_ended_before_those_that_are_idle_have(named: Injector) -> None:
    named.report({0: IDLE_TIME, 5: IDLE_TIME})
    assert named.publish() == {}
    named.report({5: MAX_TIME})
    assert named.publish() == {}
    named.report({0: MAX_TIME})
    assert named.publish() == {"n": MAX_TIME}


def test_a_lower_report_by_number_does_not_lower_the_shard_and_is_counted(named: Injector) -> None:
    named.report({0: 5, 5: 30})
    assert named.publish() == {}
    assert (named.view.watermark_us, named.view.lower_reports) == (10, 1)


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(InvariantError, match="differ in length"):
        NumbersReported(1, "n", np.array([1]), np.array([1, 2]))
    with pytest.raises(InvariantError, match="as many numbers"):
        ReportsArrived(1, "n", ReportColumns.of([]), (), np.array([0]))
