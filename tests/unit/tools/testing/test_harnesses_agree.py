"""The whole runtime says what the window machines alone say: any windows, triggers, disorder,
bundles and crashes."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from millwheel.core.machines.specs import window_from_spec
from millwheel.core.pipeline.work import WindowSpec
from millwheel.core.windows.panes import pane_row
from millwheel.core.windows.trees import trigger_from_tree
from millwheel.testing import PipelineHarness, WindowHarness

KEYS = ["ann", "bob", "cy"]
AGGREGATE = {"n": "count", "total": {"sum": "v"}, "all": {"collect": "v"}}
WINDOWS = {
    "tumbling": ({"tumbling": "10us"}, WindowSpec("tumbling", {"size_us": 10})),
    "sliding": (
        {"sliding": "10us", "every": "5us"},
        WindowSpec("sliding", {"size_us": 10, "every_us": 5}),
    ),
    "cumulative": (
        {"cumulative": "20us", "every": "5us"},
        WindowSpec("cumulative", {"size_us": 20, "every_us": 5}),
    ),
    "count": ({"count": 3}, WindowSpec("count", {"count": 3})),
    "changes": (
        {"sliding": "10us", "every": "2us", "emit": "changes"},
        WindowSpec("sliding", {"size_us": 10, "every_us": 2, "changes": True}),
    ),
    "empty": (
        {"tumbling": "10us", "emit": "empty"},
        WindowSpec("tumbling", {"size_us": 10, "empty": True}),
    ),
    "session": ({"session": "7us"}, WindowSpec("session", {"gap_us": 7})),
}

_leaves = st.one_of(
    st.integers(1, 4).map(lambda n: {"after_count": n}),
    st.integers(1, 20).map(lambda us: {"after_processing_time": f"{us}us"}),
    st.just("after_watermark"),
    st.just("default"),
)


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda t: {"repeat": t}),
        several.map(lambda ts: {"any": ts}),
        several.map(lambda ts: {"all": ts}),
        several.map(lambda ts: {"each": ts}),
        st.tuples(inner, inner).map(lambda ts: {"or_finally": {"main": ts[0], "until": ts[1]}}),
        st.tuples(inner, inner).map(
            lambda ts: {"after_watermark": {"early": ts[0], "late": ts[1]}}
        ),
    )


_triggers = st.recursive(_leaves, _wider, max_leaves=4)
_records = st.tuples(st.sampled_from(KEYS), st.integers(-5, 5), st.integers(0, 40))
_steps = st.lists(
    st.one_of(
        st.lists(_records, min_size=1, max_size=6).map(lambda records: ("push", records)),
        st.integers(0, 15).map(lambda by: ("watermark", by)),
        st.integers(1, 15).map(lambda by: ("clock", by)),
    ),
    min_size=1,
    max_size=12,
)


def _pipeline(folder: Path, window: Any, options: dict[str, Any]) -> Path:
    computation = {
        "input": {"s": {"key": "k"}},
        "window": window,
        "aggregate": AGGREGATE,
        "output": "out",
        **options,
    }
    document = {
        "pipeline": "p",
        "streams": {"s": {"source": {"injection": {}}, "timestamp": "t"}},
        "computations": {"c": computation},
        "sinks": {"out": {"stdout": {"mode": "changelog"}}},
    }
    (folder / "p.yaml").write_text(json.dumps(document))
    return folder / "p.yaml"


def _by_key(rows: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[row["k"]].append(row)
    return found


_TRIGGERED = ("tumbling", "sliding", "session")
_MODES = ["discarding", "accumulating", "retracting"]


@pytest.mark.parametrize("kind", _TRIGGERED)
@settings(
    max_examples=13,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    trigger=_triggers,
    accumulation=st.sampled_from(_MODES),
    output_time=st.sampled_from(["end_of_window", "earliest", "latest"]),
    lateness=st.sampled_from([1, 10, 1000]),
    steps=_steps,
    crash_every=st.sampled_from([None, 20]),
)
def test_a_pipeline_says_what_its_window_machine_says(
    tmp_path: Path,
    kind: str,
    trigger: Any,
    accumulation: str,
    output_time: str,
    lateness: int,
    steps: list[tuple[str, Any]],
    crash_every: int | None,
) -> None:
    options = {
        "accumulation": accumulation,
        "allowed_lateness": f"{lateness}us",
        "output_time": output_time,
    }
    alone = WindowHarness(
        window_from_spec(WINDOWS[kind][1]),
        trigger_from_tree(trigger),
        accumulation,
        lateness,
        output_time,
        aggregate=AGGREGATE,
    )
    file = _pipeline(tmp_path, WINDOWS[kind][0], {"trigger": trigger, **options})
    with PipelineHarness(file, crash_every=crash_every) as whole:
        _tell(whole, alone, steps)


@pytest.mark.parametrize("kind", [kind for kind in WINDOWS if kind not in _TRIGGERED])
@settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(mode=st.sampled_from(_MODES), steps=_steps, crash_every=st.sampled_from([None, 20]))
def test_a_pipeline_says_what_windows_without_triggers_say(
    tmp_path: Path, kind: str, mode: str, steps: list[tuple[str, Any]], crash_every: int | None
) -> None:
    fires_once = kind in ("count", "empty")
    lateness = 0 if fires_once or mode == "discarding" else 30
    written = {} if fires_once else {"accumulation": mode, "allowed_lateness": f"{lateness}us"}
    alone = WindowHarness(
        window_from_spec(WINDOWS[kind][1]),
        accumulation="discarding" if fires_once else mode,
        allowed_lateness=lateness,
        aggregate=AGGREGATE,
    )
    file = _pipeline(tmp_path, WINDOWS[kind][0], {**written, "late": "side:late"})
    with PipelineHarness(file, crash_every=crash_every) as whole:
        _tell(whole, alone, steps)
        assert sorted(row["t"] for row in whole.read("late")) == sorted(
            late.timestamp for late in alone.late
        )


def _tell(whole: PipelineHarness, alone: WindowHarness, steps: list[tuple[str, Any]]) -> None:
    """The same story to both, compared after each step."""
    watermark = clock = 0
    for step, told in steps:
        if step == "push":
            rows = [{"k": key, "v": value, "t": at} for key, value, at in told]
            whole.push("s", rows)
            alone.push_bundle([(row["k"], row, row["t"]) for row in rows])
        elif step == "watermark":
            watermark += told
            whole.advance_watermark(watermark)
            alone.advance_watermark(watermark)
        else:
            clock += told
            whole.advance_processing_time(clock)
            alone.advance_processing_time(clock)
        said = [pane_row(pane, {"k": pane.key}) for pane in alone.take()]
        assert _by_key(whole.take("out")) == _by_key(said), (step, told)
    for key in KEYS:
        assert whole.open_windows("c", key) == alone.open_windows(key)
    assert whole.counters.get("late", 0) == len(alone.late)
