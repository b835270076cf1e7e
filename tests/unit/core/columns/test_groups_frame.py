"""One row for each key and window, whichever way it is found."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns import groups_frame
from millwheel.core.pipeline.work import WindowSpec
from tests.unit.core.columns.state.test_windows import SLIDING, TUMBLING, Row, batch_of, plan_of

FAR = st.sampled_from([0, 1, 7, -5, 2**40, -(2**63), 2**63 - 1])


@given(
    st.lists(
        st.builds(Row, FAR, st.just("click"), st.just(0.5), st.integers(0, 9), st.integers(0, 60)),
        max_size=30,
    )
)
@pytest.mark.parametrize("window", [TUMBLING, SLIDING])
def test_one_number_for_each_window_groups_as_key_start_and_end_do(
    window: WindowSpec, made: list[Row]
) -> None:
    plan = plan_of(window)
    assert plan is not None
    batch = batch_of(made)
    found = plan.group(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups_frame, "_group", lambda frame: None)
        by_three = plan.group(batch)
    assert found.equals(by_three)


def test_windows_that_begin_together_and_end_apart_stay_apart() -> None:
    plan = plan_of()
    assert plan is not None
    groups = plan.group(batch_of([Row(1, "click", 0.5, 1, 3), Row(1, "click", 0.5, 1, 4)]))
    longer = groups.with_columns(pl.col("end") + 10)
    assert plan.merge([groups, longer, groups])["end"].to_list() == [10, 20]
