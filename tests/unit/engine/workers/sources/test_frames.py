from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from millwheel.connect.sources.base import FrameChunk, Reject
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.spec import SourceSpec, StreamSpec
from millwheel.engine.workers.sources.frames import ReadSize, sort_frame

NEEDS = frozenset({"ts", "n"})


def stream(**more: Any) -> StreamSpec:
    settings = {"max_delay_us": 10, "max_future_us": None, **more}
    return StreamSpec(
        "s", SourceSpec("files", {}), timestamp="ts", fields={"ts": "int", "n": "int"}, **settings
    )


def read(*times: int | None, rejects: list[Reject] | None = None) -> FrameChunk:
    frame = pl.DataFrame(
        {"ts": list(times), "n": list(range(len(times)))}, {"ts": pl.Int64, "n": pl.Int64}
    )
    return FrameChunk(np.arange(1, len(times) + 1), frame, len(times), rejects or [])


def everything(batch: Any, late: Any = None) -> Any:
    """For a consumer that takes no late records."""
    return [("c", batch if late is None else batch.where(~late))], []


def test_late_records_are_named_and_the_highest_time_is_kept() -> None:
    found = sort_frame(read(100, 90, 89, 120, 109), stream(), NEEDS, MIN_TIME, 0, everything)
    assert found is not None
    [(_, batch)] = found.batches
    assert (batch.frame["n"].to_list(), found.late, found.max_timestamp) == ([0, 1, 3], 2, 120)


def test_records_keep_their_ids() -> None:
    found = sort_frame(read(100, 89, 120), stream(id="n"), NEEDS, MIN_TIME, 0, everything)
    assert found is not None
    [(_, batch)] = found.batches
    assert batch.rows().ids == [0, 2]


def test_what_was_read_before_decides_what_is_late() -> None:
    found = sort_frame(read(100, 120), stream(), NEEDS, 115, 0, everything)
    assert found is not None
    assert (found.late, found.max_timestamp) == (1, 120)


def test_times_come_in_the_unit_of_the_stream() -> None:
    found = sort_frame(read(2), stream(timestamp_unit_us=1000), NEEDS, MIN_TIME, 0, everything)
    assert found is not None
    assert found.max_timestamp == 2000


def test_nothing_read_is_nothing_sent() -> None:
    found = sort_frame(read(), stream(), NEEDS, 7, 0, everything)
    assert found is not None
    assert (found.batches, found.late, found.max_timestamp) == ([], 0, 7)


@pytest.mark.parametrize(
    ("chunk", "spec"),
    [
        (read(1, None), stream()),
        (read(1, rejects=[Reject(2, "?", "no record")]), stream()),
        (read(1, 2**62), stream()),
        (read(1, 500), stream(max_future_us=100)),
    ],
    ids=["no time", "a reject", "no possible time", "the far future"],
)
def test_what_needs_a_look_at_a_record_is_read_as_rows(chunk: FrameChunk, spec: StreamSpec) -> None:
    assert sort_frame(chunk, spec, NEEDS, MIN_TIME, 0, everything) is None


def test_records_without_a_key_are_read_as_rows() -> None:
    assert (
        sort_frame(read(1), stream(), NEEDS, MIN_TIME, 0, lambda batch, late: ([], [object()]))
        is None
    )  # type: ignore[list-item]


def test_reads_grow_while_there_is_more_and_begin_small_again() -> None:
    size = ReadSize()
    first = size.bytes
    size.note(True)
    assert size.bytes > first
    for _ in range(10):
        size.note(True)
    most = size.bytes
    size.note(True)
    assert size.bytes == most
    size.note(False)
    assert size.bytes == first


@pytest.mark.parametrize(
    "number", [631_152_000, 1_767_225_600, 1_767_225_600_000, 4_102_444_800_000]
)
def test_numbers_of_no_stated_unit_that_are_hardly_microseconds_are_looked_at_one_by_one(
    number: int,
) -> None:
    for times in ((number,), (1, number), (number, NEW_YEAR)):
        found = sort_frame(read(*times), stream(states_unit=False), NEEDS, MIN_TIME, 0, everything)
        assert found is None
        assert (
            sort_frame(read(*times), stream(states_unit=True), NEEDS, MIN_TIME, 0, everything)
            is not None
        )
    for times in ((1, 2), (NEW_YEAR,), (5_000_000_000, 600_000_000_000)):
        assert (
            sort_frame(read(*times), stream(states_unit=False), NEEDS, MIN_TIME, 0, everything)
            is not None
        )


def test_columns_that_take_any_number_for_microseconds_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def as_they_are(lowest: int, highest: int, unit_us: int, states_unit: bool) -> bool:
        """A mistake: columns do not ask what rows ask."""
        return True

    monkeypatch.setattr("millwheel.engine.workers.sources.frames.are_plain", as_they_are)
    with pytest.raises(AssertionError):
        test_numbers_of_no_stated_unit_that_are_hardly_microseconds_are_looked_at_one_by_one(
            1_767_225_600
        )


NEW_YEAR = 1_767_225_600_000_000  # 2026-01-01
