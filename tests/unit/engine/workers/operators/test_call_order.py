"""What comes before what: timers before records, and records that wait in their turn."""

from __future__ import annotations

import pytest

from tests.unit.engine.workers.operators.timer_bench import EVENT, Bench, both


@both
@pytest.mark.parametrize("ordered", [False, True])
def test_timers_that_timers_set_come_before_the_records_however_far_the_watermark_jumps(
    ordered: bool, broken: bool
) -> None:
    told = []
    for steps in ([100], [11, 21, 31, 100]):
        bench = Bench(ordered)
        bench.hits((1, [("set", "chain", 10), ("set", "back", 40)]))
        found = bench.told()
        for watermark in steps[:-1]:
            bench.watermark(watermark)
            found += bench.told()
        bench.watermark(100)
        bench.hits((100, []), broken=broken)
        found += bench.told()
        bench.watermark(101)
        told.append(found + bench.told())
    assert told == [[(1, 0), "chain", "next", "last", "back", "past", (100, 5)]] * 2


@both
def test_a_timer_for_a_time_already_passed_fires_before_the_next_record(broken: bool) -> None:
    bench = Bench()
    bench.watermark(100)
    bench.hits((101, [("set", "t", 50)]), (102, [("cancel", "t", EVENT.value)]), broken=broken)
    assert bench.told() == [(101, 0), "t", (102, 1)]


@both
@pytest.mark.parametrize("ordered", [False, True])
def test_no_record_comes_before_the_timers_that_were_due_however_many_they_are(
    ordered: bool, broken: bool
) -> None:
    bench = Bench(ordered, most=10)
    bench.hits((1, [("set", f"t{number}", 50) for number in range(35)]))
    bench.watermark(2)
    assert bench.told() == [(1, 0)]
    bench.watermark(100)
    bench.hits((100, []), broken=broken)
    bench.run()
    bench.watermark(101)
    told = bench.told()
    assert told[-1] == (100, 35)
    assert len(told) == 36


def test_records_behind_the_watermark_come_in_their_order_one_by_one_or_together() -> None:
    told = []
    for deliveries in (
        [[(9, []), (3, []), (105, []), (5, [])]],
        [[(9, [])], [(3, [])], [(105, [])], [(5, [])]],
    ):
        bench = Bench(ordered=True)
        bench.watermark(100)
        found = []
        for hits in deliveries:
            bench.hits(*hits)
            found += bench.told()
        bench.watermark(200)
        told.append(found + bench.told())
    assert told == [[(9, 0), (3, 0), (5, 0), (105, 0)]] * 2


def test_records_that_wait_are_no_timers_of_the_user() -> None:
    bench = Bench(ordered=True)
    bench.hits(*[(at, [("set", "t", 10**7)]) for at in range(11_000)])
    bench.told()
    bench.watermark(10**6)
    assert len(bench.told()) == 11_000
    assert bench.letters == []
    assert list(bench.shard._timers[EVENT].items()) == [("k", "t", 10**7)]
