from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from millwheel.core.model.times import MAX_TIME, MIN_TIME, SECOND
from millwheel.engine.workers.sources.arrivals import ArrivalClock, Arrivals
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import PipelineError
from millwheel.testing import PipelineHarness
from tests.fakes.plain_storage import SimStore

PIPELINE = """
pipeline: p
streams:
  clicks: {source: {files: {path: nowhere, format: jsonl}}, timestamp: arrivalFIELDS}
computations:
  counts:
    input: {clicks: {key: user}}
    window: {tumbling: 10s}
    aggregate: {clicks: count, total: {sum: n}}
    output: counts
"""
FIELDS = ["", ", fields: {user: str, n: int}"]


class Partition:
    """The stored times of a partition, as one owner after the other has them."""

    def __init__(self) -> None:
        self.store = SimStore({})
        self.open()

    def open(self) -> None:
        self.clock = ArrivalClock(self.store)
        self.arrivals = Arrivals("p", self.store, self.clock)

    def read(self, position: int, read_to: int, now_us: int) -> bool:
        overlay = Overlay(self.store)
        new = self.arrivals.extend(position, read_to, now_us, overlay)
        self.store.apply(*overlay.take())
        return new

    def forget(self, position: int) -> None:
        overlay = Overlay(self.store)
        self.arrivals.forget(position, overlay)
        self.store.apply(*overlay.take())


def test_what_is_read_again_has_the_times_that_it_had() -> None:
    part = Partition()
    assert part.read(0, 4, 100)
    assert part.read(4, 6, 200)
    part.open()
    assert not part.read(0, 5, 900)  # all of it has been read before
    assert part.read(5, 9, 900)
    assert part.arrivals.times([1, 4, 5, 6, 7, 9]) == [100, 100, 200, 200, 900, 900]


def test_many_have_the_same_times_as_few() -> None:
    part = Partition()
    for number in range(50):
        part.read(number * 7, number * 7 + 7, number)
    positions = np.arange(1, 351)
    few = [part.arrivals.times([int(each)])[0] for each in positions]
    assert np.asarray(part.arrivals.times(positions)).tolist() == few


def test_no_time_lies_before_one_that_was_given_whatever_the_clock_of_the_next_owner_shows() -> (
    None
):
    part = Partition()
    part.read(0, 4, 100)
    part.open()
    assert part.clock.at_us == 100
    part.read(4, 5, 70)
    assert part.arrivals.times([5]) == [100]


def test_the_watermark_waits_for_what_was_read_and_is_read_again() -> None:
    part = Partition()
    part.read(0, 4, 100)
    part.read(4, 8, 200)
    part.open()
    assert [part.arrivals.reached_us(at) for at in (0, 3, 4, 8)] == [100, 100, 200, 200]
    overlay = Overlay(part.store)
    part.clock.move(900, overlay)
    assert [part.arrivals.reached_us(at) for at in (4, 8)] == [200, 900]


def test_times_go_once_all_their_records_are_applied() -> None:
    part = Partition()
    for number in range(4):
        part.read(number * 10, number * 10 + 10, number)
    before = len(part.store.data)
    part.forget(25)
    assert len(part.store.data) == before - 2
    assert part.arrivals.times([26, 40]) == [2, 3]
    part.open()
    assert part.arrivals.times([26, 40]) == [2, 3]


def test_a_silent_clock_moves_in_steps_and_one_that_stands_only_when_told() -> None:
    clock, overlay = ArrivalClock(SimStore({})), Overlay(SimStore({}))
    assert clock.moves_at_us < 0  # at once: nothing is stored yet
    clock.read(100 * SECOND, overlay)
    assert clock.moves_at_us == 100 * SECOND + 250_000
    clock.move(130 * SECOND, overlay)
    assert clock.moves_at_us == 131 * SECOND
    stands = ArrivalClock(SimStore({}), runs=False)
    assert (stands.at_us, stands.moves_at_us) == (MIN_TIME, MAX_TIME)
    stands.look(7)
    assert stands.moves_at_us == 7
    stands.move(7, overlay)
    assert stands.moves_at_us == MAX_TIME


def harness(folder: Path, fields: str) -> PipelineHarness:
    (folder / "p.yaml").write_text(PIPELINE.replace("FIELDS", fields))
    return PipelineHarness(folder / "p.yaml")


@pytest.mark.parametrize("fields", FIELDS)
def test_windows_close_by_the_clock_and_keep_their_records_across_a_crash(
    tmp_path: Path, fields: str
) -> None:
    with harness(tmp_path, fields) as clicks:
        clicks.push("clicks", [{"user": "a", "n": 1}, {"user": "b", "n": 2}])
        clicks.advance_processing_time(4 * SECOND)
        clicks.push("clicks", {"user": "a", "n": 4})
        clicks.crash()
        clicks.advance_processing_time(10 * SECOND - 1)
        assert clicks.take("counts") == []
        clicks.advance_processing_time(10 * SECOND)
        rows = {row["user"]: (row["window_end"], row["total"]) for row in clicks.take("counts")}
        assert rows == {"a": (10 * SECOND, 5), "b": (10 * SECOND, 2)}
        clicks.push("clicks", {"user": "a", "n": 8})
        clicks.finish()
        [row] = clicks.take("counts")
        assert (row["window_end"], row["total"]) == (20 * SECOND, 8)
        assert clicks.counters.get("late", 0) == 0


def test_an_unusable_record_after_a_long_silence_is_a_letter_of_now(tmp_path: Path) -> None:
    with harness(tmp_path, FIELDS[1]) as clicks:
        clicks.push("clicks", {"user": "a", "n": 1})
        clicks.advance_processing_time(100 * SECOND)
        clicks.push("clicks", [{"user": "a", "n": "x"}, {"user": "a", "n": 3}])
        [letter] = clicks.records("dead_letters")
        assert letter.timestamp == 100 * SECOND


def test_a_test_cannot_set_times_of_arrival(tmp_path: Path) -> None:
    with (
        harness(tmp_path, "") as clicks,
        pytest.raises(ValueError, match="advance_processing_time"),
    ):
        clicks.push("clicks", {"user": "a", "n": 1}, timestamp=5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (", watermark: {max_delay: 1s}", "no record is late"),
        (", fields: {arrival: int}", "{field: arrival}"),
    ],
)
def test_options_that_have_no_meaning_with_times_of_arrival_are_refused(
    tmp_path: Path, wrong: str, says: str
) -> None:
    with pytest.raises(PipelineError, match=says):
        harness(tmp_path, wrong)


def test_a_field_may_have_the_name_of_the_word(tmp_path: Path) -> None:
    text = PIPELINE.replace("timestamp: arrivalFIELDS", "timestamp: {field: arrival, unit: us}")
    (tmp_path / "p.yaml").write_text(text)
    with PipelineHarness(tmp_path / "p.yaml") as clicks:
        clicks.push("clicks", {"user": "a", "n": 1, "arrival": 25 * SECOND})
        clicks.finish()
        assert [row["window_start"] for row in clicks.take("counts")] == [20 * SECOND]
