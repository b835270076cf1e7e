"""Reports of shards as columns are the reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.control.injector.events import ReportColumns
from millwheel.core.model.watermark import ShardReport
from millwheel.errors import InvariantError

TIMES = st.integers(-(2**63), 2**63 - 1)
REPORTS: Any = st.lists(
    st.builds(
        ShardReport,
        st.text(max_size=3),
        st.integers(0, 2**62),
        TIMES,
        st.text(max_size=3),
        st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
        shares=st.just({0.9: 5}) | st.just({}),
        idle_us=TIMES,
    ),
    max_size=5,
)


@given(REPORTS, st.data())
def test_rows_come_back_from_columns_and_any_selection_keeps_them_whole(
    reports: list[Any], data: Any
) -> None:
    columns = ReportColumns.of(reports)
    mask = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(reports), max_size=len(reports))), bool
    )
    picked = columns.where(mask)
    wanted = [report for report, taken in zip(reports, mask, strict=True) if taken]
    found = [picked.row(index) for index in range(len(picked.shards))]
    for one, other in zip(found, wanted, strict=True):
        assert (one.shard, one.token, one.watermark_us, one.holder) == (
            other.shard,
            other.token,
            other.watermark_us,
            other.holder,
        )
        assert (one.counters, one.idle_us) == (other.counters, other.idle_us)
        assert {
            share: at for share, at in one.shares.items() if share in other.shares
        } == other.shares


def test_columns_of_different_length_are_a_mistake() -> None:
    one = np.zeros(1, np.int64)
    with pytest.raises(InvariantError, match="differ in length"):
        ReportColumns(["a", "b"], one, one, np.array(["x"], object))  # type: ignore[list-item]
