from __future__ import annotations

from millwheel.engine.workers.delivery.lane_times import Completed, LaneTimes


def test_a_record_completes_with_the_ack_of_its_delivery_or_of_a_later_one() -> None:
    times = LaneTimes()
    times.sent("c", "s", 1, 0, 10, 100)
    times.sent("c", "s", 1, 1, 30, 200)
    times.acked("c", "s", 1, 1, 500)
    assert times.sums == {"s": Completed(40, 10 * 400 + 30 * 300, 400)}


def test_a_wait_behind_earlier_records_of_the_lane_is_not_its_own() -> None:
    times = LaneTimes()
    times.sent("c", "s", 1, 0, 10, 100)
    times.sent("c", "s", 1, 1, 10, 110)
    times.acked("c", "s", 1, 0, 300)
    times.sent("c", "s", 1, 2, 10, 900)
    times.acked("c", "s", 1, 1, 350)
    times.acked("c", "s", 1, 2, 1000)
    assert times.sums["s"].alone_us == 200 + 50 + 100


def test_what_is_sent_again_or_acked_for_an_earlier_epoch_is_not_measured() -> None:
    times = LaneTimes()
    times.sent("c", "s", 1, 0, 10, 100)
    times.sent("c", "s", 2, 0, 10, 5_000)
    times.acked("c", "s", 1, 0, 5_001)
    times.acked("c", "other", 2, 0, 5_001)
    assert times.sums == {}
    times.acked("c", "s", 2, 0, 5_050)
    assert times.sums == {"s": Completed(10, 500, 50)}


def test_a_clock_that_goes_back_makes_no_negative_time() -> None:
    times = LaneTimes()
    times.sent("c", "s", 1, 0, 10, 100)
    times.acked("c", "s", 1, 0, 50)
    assert times.sums == {"s": Completed(10, 0, 0)}


def test_lanes_to_one_shard_add_up() -> None:
    times = LaneTimes()
    for channel in "ab":
        times.sent(channel, "s", 1, 0, 10, 100)
        times.acked(channel, "s", 1, 0, 200)
    assert times.sums == {"s": Completed(20, 2000, 200)}
