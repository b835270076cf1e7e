"""The open windows of a join: what closes is cut off, and what is stored comes back in any
order."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.groups_frame import END
from millwheel.core.columns.state.join_windows import JoinWindows

bundles = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=9), max_size=12)


class Concat:
    """Segments become one."""

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(groups)


def frames_of(given: Sequence[Sequence[int]]) -> list[pl.DataFrame]:
    """Of each bundle a frame, in which records have the number of their arrival."""
    numbers = iter(range(1_000_000))
    schema = {END: pl.Int64, "arrived": pl.Int64}
    return [
        pl.DataFrame([(end, next(numbers)) for end in ends], schema, orient="row") for ends in given
    ]


@given(bundles, st.lists(st.integers(0, 10)).map(sorted), st.integers(2, 4))
def test_each_window_closes_once_with_its_records_in_the_order_of_arrival(
    given: list[list[int]], watermarks: list[int], fan: int
) -> None:
    frames, closed, watermark = frames_of(given), [], 0
    windows = JoinWindows(Concat(), fan=fan)
    for number, frame in enumerate(frames):
        windows.add(frame.filter(pl.col(END) > watermark))
        watermark = max([watermark, *watermarks[number : number + 1]])
        closed.append(pl.concat([frame.clear(), *windows.take_closed(watermark)]))
        assert (closed[-1][END] <= watermark).all()
        assert windows.due_at() >= watermark
    closed.append(
        pl.concat(
            [pl.DataFrame(schema={END: pl.Int64, "arrived": pl.Int64}), *windows.take_closed(10)]
        )
    )
    assert not windows
    for found in closed:
        for _, of_window in found.group_by(END):
            assert of_window["arrived"].is_sorted()
    ends = [end for found in closed for end in found[END].unique().to_list()]
    assert len(ends) == len(set(ends))


def test_segments_that_were_stored_in_another_order_are_put_in_order() -> None:
    [frame] = frames_of([[9, 3, 9, 3, 5]])
    windows = JoinWindows(Concat(), fan=3)
    windows.restore(7, 0, frame, 3)
    assert [part.rows() for part in windows.take_closed(5)] == [[(5, 4)]]
    assert windows.all_groups().rows() == [(9, 0), (9, 2)]
