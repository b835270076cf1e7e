"""Windows, triggers and aggregates that cannot work together: each is refused before anything
starts, with the fix."""

from __future__ import annotations

from typing import Any

import pytest

COUNT = "aggregate: {n: count}"
HEAD = """\
pipeline: p
streams:
  s: {source: {injection: {}}, timestamp: t, fields: {v: str, yes: bool, n: int, x: float}}
computations:
"""
RETRACTING = (
    "  r: {input: s, window: {session: 1m}, aggregate: {worth: count}, accumulation: retracting,"
    " output: back}\n"
)


@pytest.mark.parametrize(
    ("fields", "wrong", "fix"),
    [
        # windows
        (
            "window: {sliding: 1m, every: 7s}, aggregate: {n: count}, emit: x",
            "unknown field 'emit'",
            "",
        ),
        (
            "window: {sliding: 1m, every: 7s, emit: changes}",
            "multiple of the slide",
            "write a slide that divides",
        ),
        ("window: {tumbling: 90m, time_zone: Europe/Paris}", "last whole days", "write 1d"),
        # count windows
        (
            "window: {count: 5}, trigger: {after_count: 1}",
            "fire when they are full",
            "use window: global with trigger",
        ),
        (
            "window: {count: 5}, allowed_lateness: 1m",
            "fire when they are full",
            "leave out trigger and allowed_lateness",
        ),
        # key windows
        (
            "window: {sliding: 1m, every: 1s, emit: changes}, trigger: {after_count: 1}",
            "fire when the result changes",
            "leave out trigger and output_time, or",
        ),
        (
            "window: {sliding: 1m, every: 1s, emit: changes}, output_time: earliest",
            "fire when the result changes",
            "leave out emit: changes",
        ),
        (
            "window: {sliding: 1m, every: 1s, emit: changes}, late: refire",
            "no late: refire",
            "leave out emit: changes",
        ),
        (
            "window: {sliding: 1m, every: 1s, emit: changes}, allowed_lateness: 1m",
            "corrects results that were emitted",
            "write accumulation: accumulating or retracting",
        ),
        (
            "window: {cumulative: 1h, every: 1m, emit: changes}, trigger: {after_count: 1}",
            "fire as the watermark",
            "leave",
        ),
        # triggers
        (
            "window: {tumbling: 1m}, trigger: {after_percentile_watermark: 1.5}",
            "a share between 0 and 1",
            "such as 0.95",
        ),
        ("window: {tumbling: 1m}, trigger: {any: []}", "needs a list", ""),
        ("window: {tumbling: 1m}, trigger: {or_finally: {main: never}}", "until", ""),
        ("window: {tumbling: 1m}, trigger: sometimes", "unknown trigger 'sometimes'", "there are"),
        # accumulation and lateness
        ("window: {tumbling: 1m}, allowed_lateness: -1s", "", ""),
        (
            "window: {tumbling: 1m}, late: refire, accumulation: accumulating",
            "a pane of the late records alone",
            "set allowed_lateness",
        ),
        ("window: {tumbling: 1m}, late: 'side:'", "must be drop, refire or side:STREAM", ""),
        (
            "window: {tumbling: 1m}, output_time: start",
            "must be one of end_of_window, earliest",
            "",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_fix(
    problems: Any, fields: str, wrong: str, fix: str
) -> None:
    aggregate = "" if "aggregate:" in fields else f", {COUNT}"
    found = problems(f"{HEAD}  c: {{input: s, {fields}{aggregate}, output: o}}\n")
    assert len(found) == 1, found
    assert found[0].startswith("pipeline.yaml:5: computations.c")
    assert wrong in found[0]
    assert fix in found[0]


KEYED = [
    ("{s: {key: window_start}}", f"window: {{tumbling: 1m}}, {COUNT}"),
    ("{s: {key: window_end}}", f"window: {{session: 1m}}, {COUNT}"),
    ("{s: {key: [v, window_end]}}", f"window: {{count: 3}}, {COUNT}"),
    ("{s: {key: window_start}, t: {key: v}}", "window: {tumbling: 1m}, join: left"),
]


@pytest.mark.parametrize(("given", "fields"), KEYED)
def test_a_key_that_the_bounds_of_the_window_would_replace_is_refused_with_the_fix(
    problems: Any, given: str, fields: str
) -> None:
    head = HEAD.replace(
        "computations", "  t: {source: {injection: {}}, timestamp: t}\ncomputations"
    )
    [found] = problems(f"{head}  c: {{input: {given}, {fields}, output: o}}\n")
    assert found.startswith("pipeline.yaml:6: computations.c.input.s.key")
    assert "would replace the key 'window_" in found
    assert "write key: {of_window: window_" in found


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ("{s: {key: window_start}}", "map: {of_window: window_start}"),
        ("{s: {key: window_start}}", "deduplicate: {within: 1m}"),
        ("{s: {key: v}, t: {key: window_start}}", "window: {tumbling: 1m}, join: left"),
    ],
)
def test_a_key_of_that_name_stays_where_no_bounds_replace_it(
    problems: Any, given: str, fields: str
) -> None:
    head = HEAD.replace(
        "computations", "  t: {source: {injection: {}}, timestamp: t}\ncomputations"
    )
    assert problems(f"{head}  c: {{input: {given}, {fields}, output: o}}\n") == []


@pytest.mark.parametrize(
    ("fields", "wrong", "fix"),
    [
        (
            (
                "window: {tumbling: 1m}, aggregate: {m: {max: worth}}, trigger: {repeat:"
                " {after_count: 2}}"
            ),
            "a discarding pane cannot take back",
            "write accumulation: retracting (or accumulating), or use only count and sum",
        ),
        (
            "window: {count: 5}, aggregate: {n: count}",
            "count windows cannot undo a record",
            "use tumbling ones",
        ),
        (
            "window: {sliding: 1m, every: 1s, emit: changes}, aggregate: {n: count}",
            "take no retractions",
            "leave out emit",
        ),
        (
            "window: {cumulative: 1h, every: 1m, emit: changes}, aggregate: {n: count}",
            "no stream of retractions",
            "leave",
        ),
    ],
)
def test_what_cannot_take_retractions_is_refused_with_the_fix(
    problems: Any, fields: str, wrong: str, fix: str
) -> None:
    [found] = problems(f"{HEAD}{RETRACTING}  c: {{input: back, {fields}, output: o}}\n")
    assert found.startswith("pipeline.yaml:6: computations.c")
    assert wrong in found
    assert fix in found
