from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE, KeyRange
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME
from millwheel.core.model.watermark import ShardReport
from millwheel.injector.effects import Broadcast, Greet, TokensKnown
from millwheel.injector.events import Connected, PublishDue, RangesChanged, ReportColumns, ReportsArrived
from millwheel.injector.state import InjectorState, Latencies, WatermarkView

HALF = SPACE // 2
ALL = (0, SPACE)
LEFT, RIGHT = (0, HALF), (HALF, SPACE)


class Injector:
    """The machine with short words: tables as ``shard=(range, token)``, reports as ``(shard, token, value)``."""

    def __init__(self) -> None:
        self.state = InjectorState()
        self._version = -1

    def table(self, node: str = "n", **shards: tuple[tuple[int, int], int]) -> dict[int, Mapping[str, int]]:
        self._version += 1
        entries = tuple(ShardEntry(name, KeyRange(*edges), "w", token) for name, (edges, token) in shards.items())
        return self.answers(self.state.handle(RangesChanged(RangeTable(node, entries, self._version))))

    def report(self, *reports: tuple[str, int, int], node: str = "n", by: int = 1) -> Mapping[str, int]:
        return self.rows([ShardReport(*report) for report in reports], node, by)

    def rows(self, reports: Sequence[ShardReport], node: str = "n", by: int = 1) -> Mapping[str, int]:
        event = ReportsArrived(by, node, ReportColumns.of(reports), [ms for r in reports for ms in r.latencies_ms])
        return self.answers(self.state.handle(event)).get(by, {})

    def answers(self, effects: Sequence[object]) -> dict[int, Mapping[str, int]]:
        assert all(isinstance(effect, TokensKnown) for effect in effects)
        return {effect.connection: effect.tokens for effect in effects if isinstance(effect, TokensKnown)}

    def publish(self) -> Mapping[str, int]:
        effects = self.state.handle(PublishDue())
        assert len(effects) <= 1
        for effect in effects:
            assert isinstance(effect, Broadcast)
            return effect.watermarks
        return {}

    def view(self, node: str = "n") -> WatermarkView:
        return next(view for view in self.state.view() if view.node == node)


@pytest.fixture
def injector() -> Injector:
    return Injector()


@pytest.fixture
def halves(injector: Injector) -> Injector:
    """A node of two shards that have both reported 10."""
    injector.table(a=(LEFT, 1), b=(RIGHT, 1))
    injector.report(("a", 1, 10), ("b", 1, 10))
    assert injector.publish() == {"n": 10}
    return injector


def test_a_node_is_silent_until_every_shard_has_reported(injector: Injector) -> None:
    injector.table(a=(LEFT, 1), b=(RIGHT, 1))
    injector.report(("a", 1, 10))
    assert injector.publish() == {}
    injector.report(("b", 1, 7))
    assert injector.publish() == {"n": 7}


def test_nothing_is_published_without_a_table(injector: Injector) -> None:
    injector.report(("a", 1, 10))
    assert injector.publish() == {}
    assert injector.state.view() == []


def test_the_minimum_over_the_shards_is_published_when_it_rises_and_not_again(halves: Injector) -> None:
    halves.report(("a", 1, 30))
    assert halves.publish() == {}
    halves.report(("b", 1, 20))
    assert halves.publish() == {"n": 20}
    assert halves.publish() == {}


def test_only_nodes_that_changed_are_broadcast(halves: Injector) -> None:
    halves.table("m", c=(ALL, 1))
    halves.report(("c", 1, 5), node="m")
    assert halves.publish() == {"m": 5}


def test_the_end_of_a_bounded_source_is_published_as_the_end_of_time(halves: Injector) -> None:
    halves.report(("a", 1, MAX_TIME), ("b", 1, MAX_TIME))
    assert halves.publish() == {"n": MAX_TIME}


def test_a_report_under_a_token_older_than_the_table_is_refused(halves: Injector) -> None:
    halves.table(a=(LEFT, 2), b=(RIGHT, 1))
    assert halves.report(("a", 1, 50), ("b", 1, 50)) == {}
    assert halves.publish() == {}
    assert halves.view().stale_reports == 1


def test_a_shard_without_owner_keeps_its_last_value(halves: Injector) -> None:
    halves.table(a=(LEFT, 2), b=(RIGHT, 1))
    halves.report(("b", 1, 50))
    assert halves.publish() == {}
    assert halves.view().watermark_us == 10
    assert halves.view().complete


def test_the_first_report_of_a_token_is_answered_and_the_second_is_not(injector: Injector) -> None:
    injector.table(a=(ALL, 3))
    assert injector.report(("a", 3, 10)) == {"a": 3}
    assert injector.report(("a", 3, 11)) == {}


def test_a_report_repeated_on_a_new_connection_is_answered_again(injector: Injector) -> None:
    injector.table(a=(ALL, 3))
    injector.report(("a", 3, 10), by=1)
    assert injector.report(("a", 3, 10), by=2) == {"a": 3}


def test_the_next_token_of_the_same_worker_is_answered_again(halves: Injector) -> None:
    halves.table(a=(LEFT, 2), b=(RIGHT, 1))
    assert halves.report(("a", 2, 10)) == {"a": 2}


def test_a_refused_report_is_not_answered(halves: Injector) -> None:
    halves.table(a=(LEFT, 2), b=(RIGHT, 1))
    assert halves.report(("a", 1, 50), by=9) == {}


def test_a_report_ahead_of_the_table_waits_for_it_and_so_does_its_answer(halves: Injector) -> None:
    assert halves.report(("a", 2, 40), ("b", 1, 40), by=2) == {"b": 1}
    assert halves.publish() == {}
    assert halves.table(a=(LEFT, 2), b=(RIGHT, 1)) == {2: {"a": 2}}
    assert halves.publish() == {"n": 40}


def test_of_the_reports_that_wait_the_newest_of_the_highest_token_counts(halves: Injector) -> None:
    halves.report(("a", 3, 20), ("a", 3, 25), ("a", 2, 99), ("b", 1, 99))
    halves.table(a=(LEFT, 3), b=(RIGHT, 1))
    assert halves.publish() == {"n": 25}


@pytest.mark.parametrize(("token", "known"), [(3, {"in": 7}), (4, {})])
def test_totals_that_wait_are_those_of_the_same_owner_only(halves: Injector, token: int, known: dict[str, int]) -> None:
    halves.rows([ShardReport("a", 3, 20, counters={"in": 7}), ShardReport("a", token, 25)])
    halves.table(a=(LEFT, token), b=(RIGHT, 1))
    assert halves.view().counters == known


def test_a_value_that_waits_is_dropped_when_the_table_is_already_further(halves: Injector) -> None:
    halves.report(("a", 2, 40), ("b", 1, 99))
    halves.table(a=(LEFT, 3), b=(RIGHT, 1))
    assert halves.publish() == {}


def test_an_unknown_shard_is_answered_once_a_table_has_it(injector: Injector) -> None:
    assert injector.report(("a", 1, 10), by=4) == {}
    assert injector.table(a=(ALL, 1)) == {4: {"a": 1}}
    assert injector.publish() == {"n": 10}


def test_an_unknown_shard_under_a_token_that_the_table_has_passed_is_never_answered(injector: Injector) -> None:
    injector.report(("a", 1, 10))
    assert injector.table(a=(ALL, 2)) == {}
    assert injector.publish() == {}


def test_an_older_version_of_a_table_changes_nothing(halves: Injector) -> None:
    halves.table(a=(LEFT, 2), b=(RIGHT, 2))
    old = RangeTable("n", (ShardEntry("a", KeyRange(*ALL), "w", 1),), 0)
    halves.state.handle(RangesChanged(old))
    halves.report(("a", 2, 20), ("b", 2, 20))
    assert halves.publish() == {"n": 20}


def test_a_lower_report_does_not_lower_the_shard_and_is_counted(halves: Injector) -> None:
    halves.report(("a", 1, 5), ("b", 1, 30))
    assert halves.publish() == {}
    assert halves.view().watermark_us == 10
    assert halves.view().lower_reports == 1


def test_shards_of_a_split_inherit_until_they_report(halves: Injector) -> None:
    halves.report(("a", 1, 20))
    quarter = HALF // 2
    halves.table(c=((0, quarter), 1), d=((quarter, HALF), 1), b=(RIGHT, 1))
    halves.report(("b", 1, 90))
    assert halves.publish() == {"n": 20}
    halves.report(("c", 1, 70))
    assert halves.publish() == {}
    halves.report(("d", 1, 60))
    assert halves.publish() == {"n": 60}


def test_a_merged_shard_inherits_the_minimum(injector: Injector) -> None:
    injector.table(a=(LEFT, 1), b=(RIGHT, 1))
    injector.report(("a", 1, 30), ("b", 1, 20))
    injector.publish()
    injector.table(c=(ALL, 1))
    assert injector.view().holder_shard == "c"
    assert injector.view().holder == "taken over from b"
    assert injector.publish() == {}
    injector.report(("c", 1, 25))
    assert injector.publish() == {"n": 25}


def test_a_shard_that_inherits_from_a_silent_one_is_silent(injector: Injector) -> None:
    injector.table(a=(LEFT, 1), b=(RIGHT, 1))
    injector.report(("a", 1, 30))
    injector.table(c=(ALL, 1))
    assert injector.publish() == {}
    assert not injector.view().complete


def test_a_shard_that_keeps_its_name_but_gains_a_range_inherits_the_minimum_too(injector: Injector) -> None:
    injector.table(a=(LEFT, 1), b=(RIGHT, 1))
    injector.report(("a", 1, 30), ("b", 1, 20))
    injector.publish()
    injector.table(a=(ALL, 2))
    assert injector.publish() == {}
    assert injector.view().watermark_us == 20


def test_a_child_that_keeps_its_parents_name_cannot_raise_the_range_it_gave_away(injector: Injector) -> None:
    injector.table(a=(ALL, 1))
    injector.report(("a", 1, 10))
    injector.publish()
    injector.report(("a", 2, 80), ("b", 2, 15))  # split, and the table watch lags
    assert injector.publish() == {}
    assert injector.table(a=(LEFT, 2), b=(RIGHT, 2)) == {1: {"a": 2, "b": 2}}
    assert injector.publish() == {"n": 15}


def test_a_merged_shard_is_not_answered_while_zombies_of_its_parents_are_believed(injector: Injector) -> None:
    injector.table(a=(LEFT, 1), b=(RIGHT, 1))
    injector.report(("a", 1, 30), ("b", 1, 10))
    assert injector.report(("a", 2, 10), by=2) == {}  # a took the range of b, and the table watch lags
    assert injector.table(a=(ALL, 2)) == {2: {"a": 2}}
    assert injector.report(("b", 1, 99)) == {}
    assert injector.publish() == {"n": 10}


def test_the_same_shard_twice_in_one_message_counts_under_its_newest_token(injector: Injector) -> None:
    injector.table(a=(ALL, 2))
    assert injector.report(("a", 1, 99), ("a", 2, 10), ("a", 2, 12)) == {"a": 2}
    assert injector.publish() == {"n": 12}


def test_a_new_connection_gets_the_full_picture(halves: Injector) -> None:
    assert halves.state.handle(Connected(7)) == [Greet(7, {"n": 10})]


def test_counters_are_replaced_not_added_and_summed_over_the_shards(halves: Injector) -> None:
    halves.rows([ShardReport("a", 1, 10, counters={"records_in": 5}), ShardReport("b", 1, 10)])
    halves.rows([ShardReport("b", 1, 10, counters={"records_in": 2, "late": 1})])
    halves.rows([ShardReport("a", 1, 10, counters={"records_in": 8})])
    assert halves.view().counters == {"records_in": 10, "late": 1}


def test_counters_that_wait_are_kept_when_a_newer_report_brings_none(injector: Injector) -> None:
    injector.rows([ShardReport("a", 1, 10, counters={"late": 3})])
    injector.rows([ShardReport("a", 1, 11)])
    injector.table(a=(ALL, 1))
    assert injector.view().counters == {"late": 3}


def test_counters_of_a_zombie_do_not_count(halves: Injector) -> None:
    halves.table(a=(LEFT, 2), b=(RIGHT, 1))
    halves.rows([ShardReport("a", 1, 10, counters={"records_in": 5})])
    assert halves.view().counters == {}


def test_status_names_the_holder_and_what_it_says(halves: Injector) -> None:
    halves.rows([ShardReport("a", 1, 30, "input"), ShardReport("b", 1, 20, "timer close of '/index'")])
    halves.publish()
    view = halves.view()
    assert (view.watermark_us, view.holder_shard, view.holder) == (20, "b", "timer close of '/index'")


def test_status_names_the_silent_shards(injector: Injector) -> None:
    injector.table(a=(LEFT, 1), b=(RIGHT, 1))
    injector.report(("a", 1, 10))
    view = injector.view()
    assert (view.watermark_us, view.complete) == (MIN_TIME, False)
    assert (view.silent, view.silent_shards, view.holder_shard) == (1, ("b",), "b")


def test_latency_quantiles_are_over_the_whole_pipeline(injector: Injector) -> None:
    assert injector.state.latencies.quantiles_ms() == ()
    injector.rows([ShardReport("a", 1, 0, latencies_ms=[float(ms) for ms in range(1, 101)])])
    injector.rows([ShardReport("a", 1, 0, latencies_ms=[float("nan"), -1.0])])
    p50, p95, p99, largest = injector.state.latencies.quantiles_ms()
    assert p50 == pytest.approx(50, rel=0.03)
    assert p95 == pytest.approx(95, rel=0.03)
    assert p99 == pytest.approx(99, rel=0.03)
    assert largest == 100.0


@pytest.mark.parametrize("sample", [614.8, 1815.1, 52076.7, 30.1, 0.0, 1e-9])
def test_no_quantile_of_latencies_lies_beyond_the_least_and_the_greatest(sample: float) -> None:
    latencies = Latencies()
    latencies.add([sample] * 10)
    assert latencies.quantiles_ms() == (sample,) * 4


def test_an_idle_shard_counts_for_nothing_and_may_come_back_lower(injector: Injector) -> None:
    injector.table(a=(LEFT, 1), b=(RIGHT, 1))
    injector.report(("a", 1, 100), ("b", 1, IDLE_TIME))
    assert injector.publish() == {"n": 100}
    injector.report(("b", 1, 120), ("a", 1, 150))
    assert injector.publish() == {"n": 120}
    injector.report(("b", 1, IDLE_TIME))
    assert injector.publish() == {"n": 150}
    injector.report(("b", 1, 130), ("a", 1, 200))
    assert injector.publish() == {}
    injector.report(("b", 1, 160))
    assert injector.publish() == {"n": 160}


def test_a_node_whose_shards_are_all_idle_publishes_nothing(injector: Injector) -> None:
    injector.table(a=(ALL, 1))
    injector.report(("a", 1, IDLE_TIME))
    assert injector.publish() == {}


def test_while_all_shards_are_idle_the_one_that_silence_has_moved_furthest_counts(injector: Injector) -> None:
    """As among the partitions of one shard, so it does not matter which of them lie together."""
    injector.table(a=(LEFT, 1), b=(RIGHT, 1))
    injector.rows([ShardReport("a", 1, IDLE_TIME, idle_us=100), ShardReport("b", 1, IDLE_TIME, idle_us=300)])
    assert injector.publish() == {"n": 300}
    injector.rows([ShardReport("a", 1, IDLE_TIME, idle_us=400)])
    assert injector.publish() == {"n": 400}
    injector.rows([ShardReport("a", 1, 350)])
    assert injector.publish() == {}
    injector.rows([ShardReport("a", 1, 500), ShardReport("b", 1, IDLE_TIME, idle_us=450)])
    assert injector.publish() == {"n": 500}


def test_a_shard_that_has_ended_does_not_count_while_others_are_idle(injector: Injector) -> None:
    """They may have more, so the end of time has not come."""
    injector.table(a=(LEFT, 1), b=(RIGHT, 1))
    injector.rows([ShardReport("a", 1, MAX_TIME), ShardReport("b", 1, IDLE_TIME, idle_us=300)])
    assert injector.publish() == {"n": 300}
    injector.rows([ShardReport("b", 1, MAX_TIME)])
    assert injector.publish() == {"n": MAX_TIME}


# --- percentile watermarks


@pytest.fixture
def quarters(injector: Injector) -> Injector:
    edges = [position * SPACE // 4 for position in range(5)]
    injector.table(**{f"q{n}": ((edges[n], edges[n + 1]), 1) for n in range(4)})
    return injector


def shares(*values: int) -> list[ShardReport]:
    """Every shard stands at 0; for the share 0.5 they stand at the values."""
    return [ShardReport(f"q{n}", 1, 0, shares={0.5: value}) for n, value in enumerate(values)]


def test_a_percentile_watermark_is_what_that_share_of_the_shards_has_passed(quarters: Injector) -> None:
    quarters.rows(shares(40, 10, 30, 20))
    assert quarters.publish() == {"n": 0, "n@0.5": 30}
    quarters.rows(shares(40, 10, 30, 35)[3:])
    assert quarters.publish() == {"n@0.5": 35}
    assert quarters.state.published() == {"n": 0, "n@0.5": 35}


def test_a_percentile_watermark_is_silent_until_every_shard_has_reported(quarters: Injector) -> None:
    quarters.rows(shares(40, 10, 30, 20)[:3])
    assert quarters.publish() == {}
    quarters.rows(shares(40, 10, 30, 20)[3:])
    assert quarters.publish()["n@0.5"] == 30


def test_a_percentile_watermark_only_rises_and_zombies_do_not_count(quarters: Injector) -> None:
    quarters.rows(shares(40, 10, 30, 20))
    quarters.publish()
    quarters.rows(shares(5, 5, 5, 5))
    quarters.rows([ShardReport(f"q{n}", 0, 0, shares={0.5: 99}) for n in range(4)])
    assert quarters.publish() == {}


def test_idle_shards_are_no_part_of_the_share(quarters: Injector) -> None:
    quarters.rows(shares(40, 10, 30, 20))
    quarters.rows([ShardReport(f"q{n}", 1, IDLE_TIME, shares={0.5: IDLE_TIME}) for n in (0, 2)])
    assert quarters.publish()["n@0.5"] == 20
    quarters.rows([ShardReport("q0", 1, 15, shares={0.5: 15})])
    assert "n@0.5" not in quarters.publish()


def test_when_all_shards_are_idle_silence_counts_for_every_share(quarters: Injector) -> None:
    idle = [ShardReport(f"q{n}", 1, IDLE_TIME, shares={0.5: IDLE_TIME}, idle_us=n) for n in range(4)]
    quarters.rows(idle)
    assert quarters.publish() == {"n": 3, "n@0.5": 3}


def test_shards_of_a_new_table_inherit_the_lowest_of_those_before(quarters: Injector) -> None:
    quarters.rows(shares(40, 10, 30, 20))
    quarters.publish()
    quarters.table(left=(LEFT, 1), right=(RIGHT, 1))
    assert quarters.publish() == {}
    quarters.rows([ShardReport("left", 1, 0, shares={0.5: 50})])
    assert quarters.publish() == {"n@0.5": 50}
