"""An aggregate without a window is a change log. It takes back what it replaces where that makes a
difference."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.work import AggregationSpec, FiringSpec, WindowSpec
from millwheel.language.spec.change_logs import consumers
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


LOG = computation(input="{hits: {key: user}}", aggregate="{n: count}")


@pytest.mark.parametrize(
    ("behind", "mode"),
    [
        ("", "accumulating"),
        ("  d: {input: out, map: {n: n}, output: q}\n", "accumulating"),
        ("  d: {input: out, filter: n > 1, output: q}\n", "retracting"),
        ("  d: {input: out, flat_map: 'detectors:by_user', output: q}\n", "retracting"),
        ("  d: {input: out, branch: {few: n < 3, rest: otherwise}}\n", "retracting"),
        ("  d: {input: out, callback: 'detectors:SpikeDetector', output: q}\n", "accumulating"),
        ("  d: {input: {out: {key: n}}, aggregate: {users: count}, output: q}\n", "retracting"),
        (
            "  d: {input: out, filter: n > 1, output: q}\n"
            "  e: {input: {q: {key: n}}, window: global, aggregate: {users: count}, output: r}\n",
            "retracting",
        ),
    ],
)
def test_it_takes_back_what_a_consumer_would_count_twice(
    check: Any, behind: str, mode: str
) -> None:
    spec = check(LOG + behind)
    assert spec.computations[0].firing.accumulation == mode


def test_behind_another_it_takes_back_too_since_groups_can_go(check: Any) -> None:
    first, second = check(
        LOG + "  d: {input: {out: {key: n}}, aggregate: {users: count}, output: q}\n"
    ).computations
    assert {first.firing.accumulation, second.firing.accumulation} == {"retracting"}


def test_a_file_may_say_it_itself(check: Any) -> None:
    text = LOG + "    accumulation: %s\n"
    for mode in ("accumulating", "retracting"):
        assert check(text % mode).computations[0].firing.accumulation == mode


def test_its_consumers_stand_behind_steps_and_branches(check: Any) -> None:
    spec = check(
        LOG
        + "  d: {input: out, branch: {some: n > 1, rest: otherwise}}\n"
        + "  e: {input: {rest: {key: n}}, aggregate: {users: count}, output: r}\n"
    )
    assert [each.name for each in consumers(spec.computations[0].outputs, spec)] == ["e"]


# Sinks of change logs know by which fields their rows are known.

POSTGRES = "{postgres: {dsn: 'host=x', table: t, mode: upsert%s}}"
DELTA = "{delta: {path: t, mode: upsert, fields: {user: str, day: int, n: int}%s}}"


@pytest.mark.parametrize("sink", [POSTGRES, DELTA])
def test_the_key_of_the_groups_need_not_be_written_twice(check: Any, sink: str) -> None:
    key = "{hits: {key: {user: user, day: \"trunc(ts, '1d')\"}}}"
    text = computation(input=key, aggregate="{n: count}") + "sinks: {out: %s}\n"
    [found] = check(text % (sink % "")).sinks
    assert found.options["by"] == ["user", "day"]
    assert found.key == KeySpec(KeyKind.FIELDS, ("user", "day"))
    [written] = check(text % (sink % ", by: [user]")).sinks
    assert written.options["by"] == ["user"]


def test_elsewhere_it_must_be_written(problems: Any) -> None:
    sink = "sinks: {out: %s}\n" % (POSTGRES % "")
    windowed = {"window": "{tumbling: 1m}", "input": "{hits: {key: user}}"}
    for fields in (windowed, {"input": "{hits: {key: all}}"}):
        found = problems(computation(aggregate="{n: count}", **fields) + sink)
        assert any("needs the option 'by'" in each for each in found), found
