"""What is late and what is final, for single values and for columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.lazy_polars import pl
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows import lateness
from millwheel.core.windows.windows import GLOBAL_WINDOW, Window

TIMES = st.integers(-(2**60), 2**60)


@pytest.mark.parametrize(("watermark", "late"), [(99, False), (100, False), (101, True)])
def test_a_record_at_the_watermark_is_on_time(watermark: int, late: bool) -> None:
    assert lateness.is_behind(100, watermark) is late
    assert list(lateness.late_among([100], watermark)) == ([0] if late else [])


@pytest.mark.parametrize(
    ("watermark", "complete", "final"), [(99, False, False), (100, True, False), (110, True, True)]
)
def test_a_window_is_complete_at_its_end_and_final_when_the_lateness_has_passed(
    watermark: int, complete: bool, final: bool
) -> None:
    assert lateness.is_complete(100, watermark) is complete
    assert lateness.is_final(100, watermark, 10) is final


def test_the_end_of_bounded_input_ends_all_windows_whatever_the_lateness() -> None:
    assert lateness.is_final(GLOBAL_WINDOW.end, MAX_TIME, 10**9)
    assert not lateness.is_final(GLOBAL_WINDOW.end, MAX_TIME - 1, 0)


@given(st.lists(TIMES, max_size=8), TIMES)
def test_columns_are_judged_as_each_of_their_values(ends: list[int], watermark: int) -> None:
    each = [not lateness.is_complete(end, watermark) for end in ends]
    frame = pl.DataFrame({"end": pl.Series(ends, dtype=pl.Int64)})
    assert lateness.still_open(np.array(ends, np.int64), watermark).tolist() == each
    assert frame.select(lateness.still_open(pl.col("end"), watermark)).to_series().to_list() == each
    windows = [Window(end - 1, end) for end in ends]
    assert lateness.open_windows(windows, watermark) == [
        w for w, open_ in zip(windows, each, strict=True) if open_
    ]
    assert each == [not lateness.is_final(end, watermark, 0) for end in ends]


@given(
    st.lists(TIMES, max_size=8),
    TIMES | st.just(MIN_TIME),
    st.integers(0, 2**50),
    st.booleans(),
    st.integers(0, 8),
)
def test_how_a_source_is_read_does_not_decide_what_is_late(
    times: list[int], highest: int, delay: int, stated: bool, cut: int
) -> None:
    whole = lateness.late_mask(np.array(times, np.int64), highest, delay, stated).tolist()
    first, rest = times[:cut], times[cut:]
    reached = highest if stated else max([highest, *first])
    parts = lateness.late_mask(np.array(first, np.int64), highest, delay, stated).tolist()
    parts += lateness.late_mask(np.array(rest, np.int64), reached, delay, stated).tolist()
    assert whole == parts
    assert lateness.late_rows(times, highest, delay, stated) == np.flatnonzero(whole).tolist()
    assert whole == [
        lateness.is_behind(
            time,
            lateness.watermark_after(highest if stated else max([highest, *times[:index]]), delay),
        )
        for index, time in enumerate(times)
    ]
    if times and lateness.none_late(min(times), max([highest, *times]), delay):
        assert not any(whole)


def test_a_record_beyond_the_far_future_is_refused_and_one_at_its_edge_is_not() -> None:
    assert [lateness.is_too_far(at, 100, 50) for at in (150, 151)] == [False, True]
    assert not lateness.is_too_far(2**62, 100, None)
    assert lateness.too_far(151, 2_000_000) == (
        "timestamp 151 µs lies more than 2s in the future (watermark.max_future)"
    )
