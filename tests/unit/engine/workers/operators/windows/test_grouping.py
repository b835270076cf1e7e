"""Windows that fire several times take whole bundles in columns, and say what they say in rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_column
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.segments import ColumnarSegments
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.work import WindowSpec
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.operators.windows.grouping import GroupedOperator
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.state.column_segments import ColumnShard
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.fakes.plain_storage import SimStore
from tests.unit.core.columns.state.test_windows import (
    SLIDING,
    TUMBLING,
    Row,
    batch_of,
    bundles,
    plan_of,
    rows,
    spec_of,
)
from tests.unit.engine.workers.operators.column_runs import (
    events,
    exact,
    idle,
    pipeline,
    run_of,
    same_bundles,
    small_bundles,
    small_reads,
    written,
)

WINDOWING = {
    "early by count": (
        "trigger: {after_watermark: {early: {after_count: 3}}}\n    accumulation: accumulating"
    ),
    "early, taken back": (
        "trigger: {after_watermark: {early: {after_count: 4}}}\n    accumulation: retracting"
    ),
    "once": "trigger: {once: {after_count: 5}}",
}
MORE = """
      spread: {stddev: cost}
      half: {quantile: cost, q: 0.5, where: "type == 'view'"}
      kinds: {count_distinct: type}
      about: {approx_count_distinct: cost}
      best: {top_k: cost, k: 2}
    output: minutes"""


@pytest.mark.parametrize("windowing", WINDOWING.values(), ids=WINDOWING)
@pytest.mark.parametrize("dirt", [[], ["{no json"]], ids=["clean", "dirty"])
@pytest.mark.parametrize(
    ("more", "key"),
    [("    output: minutes", "ad"), (MORE, "ad"), (MORE, "[type, ad]")],
    ids=["own columns", "gathered", "by two fields"],
)
def test_windows_that_fire_again_give_what_they_give_in_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    windowing: str,
    dirt: list[Any],
    more: str,
    key: str,
) -> None:
    """Both forms get the same bundles, because an early pane depends on what a bundle holds."""
    same_bundles(monkeypatch, 40)
    rows = [{**event, "other": ""} for event in events(200, 6)]
    folder = written(tmp_path, {"a": [*rows[:100], *dirt, *rows[100:]]})
    texts = {
        declared: text_of(pipeline(folder, declared, windowing, key), more)
        for declared in (True, False)
    }
    found, grouped = in_both_forms(tmp_path, texts, ("minutes", "totals"))
    assert grouped >= (1 if "once" in windowing else 2)
    assert exact(found[0]) == exact(found[1])
    assert len(found[0]["minutes"]) > 10


def text_of(path: str, more: str) -> str:
    """The pipeline, with more aggregates."""
    return Path(path).read_text().replace("    output: minutes", more, 1)


def in_both_forms(
    folder: Path, texts: Mapping[bool, str], streams: Sequence[str] = ("minutes",)
) -> tuple[list[dict[str, Any]], int]:
    """What a pipeline gives whose windows take groups, and the other where nothing is in columns;
    and how many bundles were grouped."""
    found, grouped = [], 0
    for declared, text in texts.items():
        path = folder / f"form-{declared}.yaml"
        path.write_text(text)
        made, [operator] = run_of(path, not declared, streams, shards=1)
        assert isinstance(operator, GroupedOperator) == declared
        grouped += operator.bundles_grouped if isinstance(operator, GroupedOperator) else 0
        found.append(made)
    return found, grouped


LATENESS: dict[str, dict[str, Any]] = {
    "dropped": {"accumulation": "retracting"},
    "aside": {"late": "side:behind"},
    "again": {"late": "refire"},
    "allowed": {"allowed_lateness_us": 15},
    "allowed, all of it": {"allowed_lateness_us": 15, "accumulation": "retracting"},
    "early, then closed": {"trigger": {"once": {"after_count": 3}}},
}


@pytest.mark.parametrize("changes", LATENESS.values(), ids=LATENESS)
@pytest.mark.parametrize("window", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
@given(bundles=bundles)
@settings(max_examples=13)
def test_late_records_in_columns_go_where_they_go_in_rows(
    window: WindowSpec, changes: dict[str, Any], bundles: list[tuple[list[Row], int]]
) -> None:
    same_in_every_form(window, ("ad",), bundles, **changes)


@pytest.mark.parametrize("key", [("ad",), ("kind", "ad")], ids=["one field", "two fields"])
@pytest.mark.parametrize("late", ["drop", "side:behind", "refire"])
@given(bundles=bundles, gap=st.integers(1, 12))
@settings(max_examples=20)
def test_sessions_in_columns_are_those_of_rows(
    key: tuple[str, ...], late: str, bundles: list[tuple[list[Row], int]], gap: int
) -> None:
    same_in_every_form(WindowSpec("session", {"gap_us": gap}), key, bundles, late=late)


@pytest.mark.parametrize("key", [("ad",), ("kind", "ad")], ids=["one field", "two fields"])
@pytest.mark.parametrize("condition", ["", "size > 0"])
@given(bundles=bundles, count=st.integers(1, 6))
@settings(max_examples=13)
def test_count_windows_in_columns_are_those_of_rows(
    key: tuple[str, ...], condition: str, bundles: list[tuple[list[Row], int]], count: int
) -> None:
    window = WindowSpec("count", {"count": count})
    same_in_every_form(window, key, bundles, True, condition=condition)


KEY_WINDOWS: dict[str, dict[str, Any]] = {
    "dropped": {},
    "aside": {"late": "side:behind"},
    "allowed": {"allowed_lateness_us": 15, "accumulation": "accumulating"},
    "allowed, taken back": {"allowed_lateness_us": 15, "accumulation": "retracting"},
    "some of them": {"condition": "size > 0"},
}


@pytest.mark.parametrize("key", [("ad",), ("kind", "ad")], ids=["one field", "two fields"])
@pytest.mark.parametrize("changes", KEY_WINDOWS.values(), ids=KEY_WINDOWS)
@given(bundles=bundles, slide=st.integers(1, 5), times=st.integers(1, 5), offset=st.integers(0, 3))
@settings(max_examples=13)
def test_key_windows_in_columns_are_those_of_rows(
    key: tuple[str, ...],
    changes: dict[str, Any],
    bundles: list[tuple[list[Row], int]],
    slide: int,
    times: int,
    offset: int,
) -> None:
    bounds = {"size_us": slide * times, "every_us": slide, "offset_us": offset}
    same_in_every_form(
        WindowSpec("sliding", {**bounds, "changes": True}), key, bundles, True, **changes
    )


def same_in_every_form(
    window: WindowSpec,
    key: tuple[str, ...],
    bundles: list[tuple[list[Row], int]],
    all_grouped: bool = False,
    **changes: Any,
) -> None:
    """Whole bundles give what the same ones give as rows to the same operator, and to that of
    rows."""
    kind = KeyKind.FIELD if len(key) == 1 else KeyKind.FIELDS
    changes["inputs"] = (InputSpec("events", KeySpec(kind, key)),)
    spec, pipeline = spec_of(window, **changes)
    plan = plan_of(window, **changes)
    assert plan is not None
    plan = replace(plan, fires_once=False)
    columns = grouped(spec, pipeline, plan)
    forms = [(columns, lambda batch: batch), (grouped(spec, pipeline, plan), by_rows)]
    made = [
        produced(operator, bundles, lambda batch, form=form: form(keyed(batch, key)))
        for operator, form in (*forms, (in_rows(spec, pipeline, plan), by_rows))
    ]
    assert made[0] == made[1] == made[2]
    if all_grouped:
        assert columns.bundles_grouped == sum(1 for rows, _ in bundles if rows)


@pytest.mark.parametrize(
    ("window", "held"),
    [
        ("{count: 7}", False),
        ("{sliding: 20s, every: 5s, emit: changes}", False),
        ("{sliding: 20s, every: 5s, emit: changes}", True),
        ("{session: 2s}", True),
    ],
)
def test_a_crash_at_any_place_changes_no_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str, held: bool
) -> None:
    small_reads(monkeypatch)
    path = Path(
        pipeline(written(tmp_path, {"a": [*events(120, 3), "{no json", *events(60, 5)]}), True)
    )
    text = path.read_text().replace("{tumbling: 10s}", window, 1)
    path.write_text(
        text if held else text.replace("      most: {max: cost}", "      most: {top_k: cost, k: 1}")
    )
    grouped_so_far: list[int] = []
    take = GroupedOperator.take_groups
    monkeypatch.setattr(
        GroupedOperator,
        "take_groups",
        lambda self, groups, bundle: (grouped_so_far.append(1), take(self, groups, bundle))[1],
    )
    add = ColumnarSegments.add
    monkeypatch.setattr(
        ColumnarSegments,
        "add",
        lambda self, groups: (grouped_so_far.append(1), add(self, groups))[1],
    )

    assert assert_survives_crashes(str(path), idle, every=19, run_sources=True) > 3
    assert len(grouped_so_far) > 10


def keyed(batch: ColumnBatch, fields: tuple[str, ...]) -> ColumnBatch:
    return replace(batch, keys=key_column([batch.frame[name] for name in fields]))


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({"window": WindowSpec("session", {"gap_us": 5})}, {"out": [(25, 32, 2)]}),
        ({"late": "side:behind"}, {"behind": [1]}),
    ],
    ids=["sessions", "aside"],
)
def test_one_late_record_sends_no_other_by_rows(
    changes: dict[str, Any], made: dict[str, list[Any]]
) -> None:
    spec, pipeline = spec_of(**changes)
    plan = plan_of(**changes)
    assert plan is not None
    operator = grouped(spec, pipeline, plan)
    found = produced(
        operator, [([Row(1, "click", 1.0, 1, at) for at in (3, 25, 27)], 20)], lambda batch: batch
    )
    assert (operator.bundles_grouped, found[0]["late"]) == (1, 1)
    sessions = [(row["window_start"], row["window_end"], row["n"]) for row in found[1]["out"]]
    aside = [row["size"] for row in found[0].get("behind", [])]
    assert made == ({"behind": aside} if aside else {"out": sessions})


def grouped(spec: ComputationSpec, pipeline: PipelineSpec, plan: ColumnPlan) -> GroupedOperator:
    return GroupedOperator(
        spec, pipeline, plan, Overlay(SimStore({})), lambda stream, values: values, 100
    )


def in_rows(spec: ComputationSpec, pipeline: PipelineSpec, plan: ColumnPlan) -> WindowedOperator:
    operator = WindowedOperator(
        spec, pipeline, Overlay(SimStore({})), lambda stream, values: values, 100
    )
    operator.outputs.finish_row = plan.typed
    return operator


def by_rows(batch: ColumnBatch) -> Batch:
    return batch.rows()


def columnar(spec: ComputationSpec, pipeline: PipelineSpec, plan: ColumnPlan) -> ColumnOperator:
    rows = in_rows(spec, pipeline, plan)
    store: Any = rows._overlay
    return ColumnOperator(
        spec, plan, ColumnShard("s", store, MIN_TIME), rows, lambda stream, values: values
    )


HELD: dict[str, WindowSpec] = {
    "tumbling": TUMBLING,
    "sliding": SLIDING,
    "sessions": WindowSpec("session", {"gap_us": 5}),
    "key windows": WindowSpec(
        "sliding", {"size_us": 9, "every_us": 3, "offset_us": 1, "changes": True}
    ),
}
TINY = st.builds(
    Row, st.integers(0, 3), st.just("click"), st.just(1e-14), st.just(1), st.integers(-30, 60)
)
mixed = st.lists(
    st.tuples(
        st.lists(st.one_of(rows, rows, rows, TINY), max_size=8), st.integers(0, 12), st.booleans()
    ),
    max_size=8,
)


@pytest.mark.parametrize("key", [("ad",), ("kind", "ad")], ids=["one field", "two fields"])
@pytest.mark.parametrize("window", HELD.values(), ids=HELD)
@given(script=mixed, condition=st.sampled_from(["", "size > 0"]))
@settings(max_examples=20, deadline=None)
def test_state_in_columns_gives_what_rows_give_also_where_it_goes_on_in_rows(
    window: WindowSpec,
    key: tuple[str, ...],
    script: list[tuple[list[Row], int, bool]],
    condition: str,
) -> None:
    """Bundles come in either form, and a tiny number hands all open windows to the row form."""
    same_state_in_columns(window, key, script, condition=condition)


def same_state_in_columns(
    window: WindowSpec,
    key: tuple[str, ...],
    script: list[tuple[list[Row], int, bool]],
    crash: Callable[[ColumnOperator, int], ColumnOperator] | None = None,
    **changes: Any,
) -> None:
    kind = KeyKind.FIELD if len(key) == 1 else KeyKind.FIELDS
    changes["inputs"] = (InputSpec("events", KeySpec(kind, key)),)
    spec, pipeline = spec_of(window, **changes)
    plan = plan_of(window, **changes)
    assert plan is not None
    assert plan.fires_once
    bundles = [(made, rise) for made, rise, _ in script]
    ways = iter([whole for made, _, whole in script if made])

    def either(batch: ColumnBatch) -> AnyBatch:
        return keyed(batch, key) if next(ways) else by_rows(keyed(batch, key))

    in_columns = produced(columnar(spec, pipeline, plan), bundles, either, crash)
    assert in_columns == produced(
        in_rows(spec, pipeline, plan), bundles, lambda batch: by_rows(keyed(batch, key))
    )


def produced(
    operator: WindowedOperator | ColumnOperator,
    bundles: list[tuple[list[Row], int]],
    form: Callable[[ColumnBatch], AnyBatch],
    crash: Callable[[ColumnOperator, int], ColumnOperator] | None = None,
    ends: bool = True,
) -> list[dict[str, Any]]:
    """What each bundle makes; each comes before the watermark rises by so much."""
    timers = {domain: TimerQueue(domain) for domain in Domain}
    found: list[dict[str, Any]] = []
    watermark = 0
    overlay = operator._rows._overlay if isinstance(operator, ColumnOperator) else operator._overlay
    for number, (records, rise) in enumerate([*bundles, *([([], MAX_TIME)] if ends else [])], 1):
        if crash is not None and isinstance(operator, ColumnOperator):
            operator = crash(operator, watermark if number > 1 else MIN_TIME)
        watermark = min(watermark + rise, MAX_TIME)
        arrivals = (
            [Arrival(ChannelName("c"), 1, 0, form(batch_of(records)), None, 0)] if records else []
        )
        bundle = Bundle(number, 0, watermark, arrivals, overlay, timers)
        operator.run(bundle)
        made = {name: list(outputs.decoded) for name, outputs in bundle.outputs.streams.items()}
        for batch in bundle.outputs.columns:
            made.setdefault(batch.stream, []).extend(batch.frame.to_dicts())
        streams = {name: sorted(records, key=repr) for name, records in made.items()}
        found.append({**streams, "late": bundle.counters.get("late", 0)})
    return found


@pytest.mark.parametrize("late", ["allowed_lateness: 1h", "late: side:behind"])
def test_records_late_at_the_source_reach_windows_that_take_them(tmp_path: Path, late: str) -> None:
    rows = [
        {"ad": 1, "type": "view", "cost": 1.0, "ts": 1_000_000 + at}
        for at in (0, 60_000, 2_000, 61_000)
    ]
    folder = written(tmp_path, {"a": rows})
    path = Path(pipeline(folder, True, late))
    more = (
        '  shown: {input: {behind: {key: ad}}, steps: [{filter: "ad > 0"}], output: kept}\n'
        if "side" in late
        else ""
    )
    path.write_text(path.read_text() + more)
    with PipelineHarness(str(path), run_sources=True, shards=1) as harness:
        harness.advance_processing_time(10**9)
        counted = sum(row["views"] for row in harness.read("minutes"))
        assert counted + (len(harness.read("kept")) if more else 0) == 4


IN_GROUPS = {
    "silence": ("{tumbling: 5s, emit: empty}", ""),
    "every step": ("{cumulative: 20s, every: 5s}", ""),
    "changes": ("{cumulative: 20s, every: 5s, emit: changes}", ""),
    "corrected": (
        "{cumulative: 20s, every: 5s}",
        "allowed_lateness: 15s\n    accumulation: retracting",
    ),
    "late aside": ("{cumulative: 20s, every: 5s}", "late: side:behind"),
    "by count": ("{count: 7}", ""),
    "one by one": ("{count: 1}", ""),
    "key windows": ("{sliding: 20s, every: 5s, emit: changes}", ""),
    "key windows, corrected": (
        "{sliding: 20s, every: 2s, emit: changes}",
        "allowed_lateness: 15s\n    accumulation: retracting",
    ),
    "key windows, late aside": ("{sliding: 4s, every: 2s, emit: changes}", "late: side:behind"),
}


@pytest.mark.parametrize(("window", "more"), IN_GROUPS.values(), ids=IN_GROUPS)
def test_windows_that_take_groups_in_columns_say_what_they_say_in_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str, more: str
) -> None:
    same_bundles(monkeypatch, 25)
    folder = written(tmp_path, {"a": [{**event, "other": ""} for event in events(400, 8)]})
    texts = {
        declared: text_of(pipeline(folder, declared, more), MORE)
        .replace("{tumbling: 10s}", window, 1)
        .split("  totals:", maxsplit=1)[0]
        for declared in (True, False)
    }
    said, grouped = in_both_forms(tmp_path, texts)
    assert grouped >= 2
    # The sum of no floats is 0.0 where fields are declared, and else 0, which is equal.
    assert said[0] == said[1]
    assert len(said[0]["minutes"]) > 10
    assert any(row["kinds"] == 0 for row in said[0]["minutes"]) == (
        "empty" in window or "sliding" in window
    )


WHOLE = """
      dearest: {max_by: cost}
      newest: last_row
      viewed: {first_row: {where: "type == 'view'"}}
      best: {top_rows: ["cost * 2 desc", type, ad], k: 3, rank: place}
    output: minutes
"""
INCOMPLETE: dict[str, tuple[list[Any], bool]] = {
    "clean": ([], True),
    "a field is missing": ([{"ad": 1, "cost": 9.0, "ts": 1_001_000}], False),
    "a field is null": ([{"ad": 1, "type": None, "cost": 9.0, "ts": 1_001_000}], False),
    "an order is null": ([{"ad": 1, "type": "view", "cost": None, "ts": 1_001_000}], False),
    "one field more": (
        [{"ad": 1, "type": "view", "cost": 9.0, "ts": 1_001_000, "more": [1]}],
        True,
    ),
    "no fit": ([{"ad": 1, "type": "view", "cost": 1e308, "ts": 1_001_000}], True),
}
"""Records among others, and whether a bundle is in columns still."""


@pytest.mark.parametrize(("dirt", "grouped"), INCOMPLETE.values(), ids=INCOMPLETE)
@pytest.mark.parametrize("window", ["{tumbling: 10s}", "{sliding: 20s, every: 10s}", "{count: 50}"])
def test_whole_records_in_columns_are_those_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str, dirt: list[Any], grouped: bool
) -> None:
    small_bundles(monkeypatch, 600)
    made = [{name: each[name] for name in ("ad", "type", "cost", "ts")} for each in events(1800, 8)]
    folder = written(tmp_path, {"a": [*made[:900], *dirt, *made[900:]]})
    text = text_of(pipeline(folder, True), WHOLE).replace("{tumbling: 10s}", window, 1)
    text = text.split("  totals:", maxsplit=1)[0]
    said, bundles = in_both_forms(tmp_path, {True: text, False: text}, ("minutes", "dead_letters"))
    assert bool(bundles) == grouped
    assert said[0] == said[1]
    assert len(said[0]["minutes"]) > 10
