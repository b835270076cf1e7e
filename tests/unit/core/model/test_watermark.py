from __future__ import annotations

from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.model.watermark import WatermarkHold, Watermarks, lowest


def test_the_lowest_hold_counts_and_the_first_of_equals_names_the_holder() -> None:
    holds = [WatermarkHold(7, "input"), WatermarkHold(5, "timer of k"), WatermarkHold(5, "production 3")]
    assert lowest(holds) == WatermarkHold(5, "timer of k")


def test_nothing_that_holds_is_the_end_of_time() -> None:
    assert lowest([]).watermark_us == MAX_TIME


def test_a_published_watermark_that_falls_is_not_believed() -> None:
    known = Watermarks()
    assert known.rise({"a": 5, "b": 1}) == {"a": 5, "b": 1}
    assert known.rise({"a": 4, "b": 2}) == {"b": 2}
    assert known.lowest_of(["a"]) == 5


def test_a_silent_feeder_keeps_the_input_watermark_at_the_beginning_of_time() -> None:
    known = Watermarks()
    known.rise({"a": 5})
    assert known.lowest_of(["a", "b"]) == MIN_TIME
    assert known.lowest_of([]) == MAX_TIME
