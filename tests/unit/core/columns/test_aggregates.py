"""Aggregates in columns, and the accumulators of the row form."""

from __future__ import annotations

import pytest

from millwheel.core.columns.fixed_sums import (
    Unfit,
)
from tests.unit.core.columns.test_windows import Row, batch_of, plan_of


def test_a_sum_beyond_64_bits_is_noticed_and_kept_exactly() -> None:
    plan = plan_of()
    assert plan is not None
    groups = plan.group(batch_of([Row(1, "click", 1.0, 2**62, 5)] * 3))
    with pytest.raises(Unfit):
        plan.results(groups)
    [(key, group)] = plan.row_groups(groups)
    assert (key, group.count, group.acc[4]) == (1, 3, [str(3 * 2**62)])
