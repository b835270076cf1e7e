"""An aggregate without a window is a change log."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.work import AggregationSpec, FiringSpec, WindowSpec
from tests.unit.language.spec.parts.test_steps import computation


def test_an_aggregate_without_a_window_has_one_group_for_each_key(check: Any) -> None:
    found = check(computation(aggregate="{n: count}")).computations[0]
    assert found.work.window == WindowSpec("forever")
    assert found.work.firing == FiringSpec(
        {"repeat": {"after_count": 1}}, accumulation="accumulating"
    )
    assert found.is_change_log
    assert found.takes_late


def test_it_may_emit_every_second_and_forget_groups(check: Any) -> None:
    text = computation(
        aggregate="{n: count}", trigger="{every: 1s}", ttl="7d", where="status > 1",
        accumulation="retracting", queryable="latest",
    )  # fmt: skip
    work = check(text).computations[0].work
    assert work == AggregationSpec(
        window=WindowSpec("forever", {"ttl_us": 604_800_000_000}),
        condition="status > 1",
        firing=FiringSpec({"every": "1s"}, "retracting"),
        aggregates=work.aggregates,
        queryable="latest",
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"late": "refire"}, "c.late: a change log (an aggregate without a window) takes late"),
        ({"allowed_lateness": "1m"}, "takes late records at any time; leave out allowed_lateness"),
        ({"output_time": "latest"}, "gives each version the latest time of its group's records"),
        ({"trigger": "{after_count: 3}"}, "a change log goes on for ever: write trigger: {every"),
        ({"trigger": "{every: 0s}"}, "trigger.every: needs a time between two firings such as 1s"),
        ({"accumulation": "discarding"}, "the versions of a change log have all records of"),
        ({"skew": "scatter(4)"}, "only an aggregation in windows or slices divides its keys"),
        (
            {"window": "{tumbling: 1m}", "ttl": "1d"},
            "ttl is for change logs (an aggregate",
        ),
    ],
)
def test_what_belongs_to_windows_is_refused(
    problems: Any, fields: dict[str, str], sentence: str
) -> None:
    found = problems(computation(aggregate="{n: count}", **fields))
    assert any(sentence in each for each in found), found


def test_its_rows_have_no_bounds_of_windows(check: Any, problems: Any) -> None:
    head = computation(aggregate="{window_start: count}")
    assert check(head).computations[0].aggregates[0].name == "window_start"
    behind = "  d: {input: {out: {key: window_end}}, aggregate: {n: count}, output: q}\n"
    assert any("has no field 'window_end'" in each for each in problems(head + behind))
