"""What counts as detected, reassigned and first output after a fault, and the figures made of
it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import KeyRange
from millwheel.tools.chaos.fault_injector import FaultCount, Outcome
from millwheel.tools.chaos.plan import Fault, Target
from millwheel.tools.chaos.recoveries import Recoveries, quantile
from millwheel.tools.chaos.report import summary, times_of
from millwheel.tools.chaos.results import Difference

END = 1 << 64
KILLED_WORKER = (Target.WORKERS, Fault.KILL)


def table(*owners: tuple[str, int]) -> RangeTable:
    """One shard for each owner and token, in equal parts."""
    edges = [END * n // len(owners) for n in range(len(owners) + 1)]
    ranges = [KeyRange(lo, hi) for lo, hi in pairwise(edges)]
    rows = zip(ranges, owners, strict=True)
    return RangeTable(
        "n",
        tuple(ShardEntry(f"n-{i}", r, name, token) for i, (r, (name, token)) in enumerate(rows)),
    )


def test_a_killed_worker_is_detected_its_shards_reassigned_and_heard_of_again() -> None:
    seen = Recoveries()
    seen.table(table(("a", 1), ("b", 1), ("a", 4)), 0.0)
    fault = seen.on_fault(*KILLED_WORKER, ["a"], 10.0)
    assert fault.tokens == {"n-0": 1, "n-2": 4}
    seen.gone(["a"], 10.5)
    seen.gone(["a"], 13.0)
    seen.table(table(("b", 2), ("b", 1), ("", 4)), 11.0)
    assert (fault.detected_s, fault.reassigned_s) == (0.5, None)
    seen.table(table(("b", 2), ("b", 1), ("b", 5)), 11.25)
    assert fault.reassigned_s == 1.25
    seen.committed("n-1", 1, 11.5)
    seen.committed("n-2", 4, 11.5)  # what the dead one wrote last
    assert fault.first_output_s is None
    seen.committed("n-0", 2, 12.0)
    seen.committed("n-2", 5, 13.0)
    assert fault.first_output_s == 2.0
    assert not seen.followed


def test_a_table_that_names_another_owner_is_a_detection_too() -> None:
    seen = Recoveries()
    seen.table(table(("a", 1), ("b", 1)), 0.0)
    fault = seen.on_fault(*KILLED_WORKER, ["a"], 1.0)
    seen.table(table(("b", 2), ("b", 1)), 1.5)
    assert (fault.detected_s, fault.reassigned_s) == (0.5, 0.5)


def test_a_worker_without_shards_has_nothing_to_reassign() -> None:
    seen = Recoveries()
    seen.table(table(("b", 1)), 0.0)
    fault = seen.on_fault(*KILLED_WORKER, ["a"], 1.0)
    seen.gone(["a"], 2.0)
    seen.table(table(("b", 2)), 3.0)
    seen.committed("n-0", 2, 3.0)
    assert (fault.detected_s, fault.reassigned_s, fault.first_output_s) == (1.0, None, None)


def test_an_executor_is_gone_when_all_its_workers_are() -> None:
    seen = Recoveries()
    fault = seen.on_fault(Target.EXECUTORS, Fault.KILL, ["a", "b"], 1.0)
    seen.gone(["a"], 2.0)
    assert fault.detected_s is None
    seen.gone(["a", "b"], 3.0)
    assert fault.detected_s == 2.0


def test_a_shard_that_was_merged_away_is_served_by_others() -> None:
    seen = Recoveries()
    seen.table(table(("a", 1), ("a", 1)), 0.0)
    fault = seen.on_fault(*KILLED_WORKER, ["a"], 1.0)
    seen.table(table(("b", 2)), 2.0)
    assert fault.reassigned_s == 1.0


def test_another_leader_is_a_reassignment_and_the_work_goes_on_meanwhile() -> None:
    seen = Recoveries()
    seen.led(Target.MASTER, ["m1"], 0.0)
    seen.led(Target.INJECTOR, ["i1"], 0.0)
    fault = seen.on_fault(Target.MASTER, Fault.KILL, [], 1.0)
    seen.committed("n-0", 1, 1.125)
    seen.led(Target.INJECTOR, [], 1.5)
    assert fault.detected_s is None
    seen.led(Target.MASTER, [], 2.0)
    seen.led(Target.MASTER, ["m2"], 3.0)
    assert (fault.detected_s, fault.reassigned_s, fault.first_output_s) == (1.0, 2.0, 0.125)


def test_a_pause_that_nobody_noticed_needs_no_recovery() -> None:
    seen = Recoveries()
    seen.table(table(("a", 1), ("b", 1)), 0.0)
    seen.on_fault(Target.WORKERS, Fault.PAUSE, ["a"], 1.0)
    noticed = seen.on_fault(Target.WORKERS, Fault.PARTITION, ["b"], 1.0)
    seen.gone(["b"], 4.0)
    seen.outlived(["a"])
    seen.outlived(["b"])
    assert seen.faults == [noticed]


def test_the_next_fault_waits_for_the_recovery_from_the_one_before_but_not_for_ever() -> None:
    seen = Recoveries()
    seen.table(table(("a", 1), ("b", 1)), 0.0)
    assert seen.settled(0.0, 30.0)
    seen.on_fault(*KILLED_WORKER, ["idle"], 1.0)
    assert seen.settled(1.0, 30.0)
    seen.on_fault(*KILLED_WORKER, ["a"], 2.0)
    assert not seen.settled(3.0, 30.0)
    assert seen.settled(32.5, 30.0)
    seen.table(table(("b", 2), ("b", 1)), 4.0)
    assert not seen.settled(4.0, 30.0)
    seen.committed("n-0", 2, 5.0)
    assert seen.settled(5.0, 30.0)
    assert seen.owns(["a", "b"])
    assert not seen.owns(["a", "idle"])


@pytest.mark.parametrize(
    ("samples", "share", "expected"),
    [
        ([], 0.5, None),
        ([3.0], 0.99, 3.0),
        ([4.0, 1.0, 2.0, 3.0], 0.5, 2.0),
        ([*map(float, range(1, 201))], 0.99, 198.0),
    ],
)
def test_a_quantile_is_a_sample(samples: list[float], share: float, expected: float | None) -> None:
    assert quantile(samples, share) == expected


def test_the_summary_has_each_kind_of_fault_by_itself() -> None:
    seen = Recoveries()
    for fault_s, gone_s in ((0.0, 1.0), (10.0, 13.0)):
        seen.on_fault(*KILLED_WORKER, [f"w{gone_s}"], fault_s)
        seen.gone([f"w{gone_s}"], gone_s)
    seen.on_fault(Target.ZOOKEEPER, Fault.KILL, [], 20.0)
    seen.committed("n-0", 1, 20.5)
    fault_counts = {
        KILLED_WORKER: FaultCount(2, [0.25]),
        (Target.ZOOKEEPER, Fault.KILL): FaultCount(1),
    }
    calm, disturbed = Outcome(5.0, {}), Outcome(30.0, fault_counts, seen.faults)
    assert times_of(disturbed, KILLED_WORKER)["detected"] == [1.0, 3.0]
    found = summary(calm, disturbed, [Difference("out", 7, Counter(), Counter())])
    workers, zookeeper = found["faults"]
    assert workers["detected"] == {"seen": 2, "p50": 1.0, "p99": 3.0}
    assert (workers["count"], workers["replaced"]["seen"], workers["reassigned"]) == (
        2,
        1,
        {"seen": 0},
    )
    assert zookeeper["first_output"] == {"seen": 1, "p50": 0.5, "p99": 0.5}
    assert found["sinks"] == [{"stream": "out", "rows": 7, "missing": 0, "extra": 0, "arrival": []}]
