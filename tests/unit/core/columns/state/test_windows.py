"""Windows on columns give what windows record by record give, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.few_groups import FewGroups, Groups, RowForm, restored_rows, stored_rows
from millwheel.core.columns.forms.windows import plan_or_why
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.store_layout import pack, unpack
from millwheel.core.machines.specs import machine_from_spec, windowing_from_spec
from millwheel.core.model.records import Domain
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec, StreamSpec
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.core.windows.contract import Effects, Times
from millwheel.core.windows.lateness import late_mask
from millwheel.core.windows.panes import pane_row
from millwheel.engine.workers.operators.windows.segment_table import windows_of
from tests.computations import computation_spec

FIELDS = {"ad": "int", "kind": "str", "cost": "float", "size": "int"}
EVERYTHING = (
    AggregateSpec("n", "count"),
    AggregateSpec("clicks", "count", condition="kind == 'click' and not cost > 2"),
    AggregateSpec("spend", "sum", "cost"),
    AggregateSpec("click_spend", "sum", "cost", condition="kind == 'click' or size >= 3"),
    AggregateSpec("bytes", "sum", "size"),
    AggregateSpec("average", "mean", "cost"),
    AggregateSpec("average_size", "mean", "size", condition="kind != 'click'"),
    AggregateSpec("least", "min", "cost", condition="cost > 1"),
    AggregateSpec("most", "max", "size"),
    AggregateSpec("last_kind", "max", "kind"),
)
CALCULATED = (
    AggregateSpec("revenue", "sum", "cost * size"),
    AggregateSpec("weight", "mean", "size * 3 - ad", condition="kind == 'click'"),
    AggregateSpec("best", "max", "cost - size / 2"),
    AggregateSpec("share", "min", "cost / size", condition="size > 0"),
    AggregateSpec("known", "count", "ad * size"),
)
SPREAD = AggregateSpec("spread", "stddev", "size + 0.5")
TUMBLING = WindowSpec("tumbling", {"size_us": 10})
SLIDING = WindowSpec("sliding", {"size_us": 9, "every_us": 3})
SESSION = WindowSpec("session", {"gap_us": 5})
CHANGES = WindowSpec("sliding", {"size_us": 9, "every_us": 3, "changes": True})


def spec_of(window: WindowSpec = TUMBLING, **changes: Any) -> tuple[ComputationSpec, PipelineSpec]:
    stream = StreamSpec("events", timestamp="t", fields=FIELDS)
    settings: dict[str, Any] = {"aggregates": EVERYTHING, "outputs": ("out",), **changes}
    inputs = settings.pop("inputs", (InputSpec("events", KeySpec(KeyKind.FIELD, ("ad",))),))
    spec = computation_spec("c", inputs, window=window, **settings)
    return spec, PipelineSpec("p", (stream,), (spec,), (), "/")


def plan_of(window: WindowSpec = TUMBLING, **changes: Any) -> ColumnPlan | None:
    spec, pipeline = spec_of(window, **changes)
    found = plan_or_why(spec, pipeline, windowing_from_spec(spec), compile_expression)
    return None if isinstance(found, str) else found


@dataclass(frozen=True)
class Row:
    ad: int
    kind: str
    cost: float
    size: int
    at: int

    def value(self) -> dict[str, Any]:
        return {"ad": self.ad, "kind": self.kind, "cost": self.cost, "size": self.size}


def batch_of(rows: Sequence[Row]) -> ColumnBatch:
    dtypes = {"ad": pl.Int64, "kind": pl.String, "cost": pl.Float64, "size": pl.Int64}
    frame = pl.DataFrame([row.value() for row in rows], dtypes)
    stamps = np.array([row.at for row in rows], np.int64)
    return ColumnBatch("events", np.arange(1, len(rows) + 1), stamps, frame["ad"], frame)


costs = st.one_of(
    st.sampled_from([0.0, 0.1, 0.25, 1.1, 2.0, -3.7, 1e6]),
    st.floats(-1e12, 1e12).filter(lambda x: abs(x) > 1e-9 or x == 0),
)
rows = st.builds(
    Row,
    st.integers(0, 3),
    st.sampled_from(["click", "view", "ä"]),
    costs,
    st.integers(-5, 5),
    st.integers(-30, 60),
)
bundles = st.lists(st.tuples(st.lists(rows, max_size=8), st.integers(0, 12)), max_size=8)


def by_rows(
    window: WindowSpec, script: Sequence[tuple[Sequence[Row], int]], **changes: Any
) -> tuple[list[Any], int]:
    """What the machine emits, and how many records were late."""
    spec, _ = spec_of(window, **changes)
    machine = machine_from_spec(spec, compile_expression)
    states: dict[int, dict[Any, Any]] = {}
    timers: dict[tuple[int, str], int] = {}
    emitted: list[Any] = []
    late = 0

    def perform(effects: Effects) -> None:
        nonlocal late
        assert not effects.rejected
        late += len(effects.late)
        emitted.extend((pane.timestamp, pane_row(pane, {"ad": pane.key})) for pane in effects.panes)
        for timer in effects.timers:
            if timer.at is None:
                timers.pop((timer.key, timer.tag), None)
            else:
                timers[timer.key, timer.tag] = timer.at

    watermark = MIN_TIME
    for bundle, step in [*script, ([], None)]:
        by_key: dict[int, list[tuple[Any, int]]] = {}
        for row in bundle:
            by_key.setdefault(row.ad, []).append((row.value(), row.at))
        for key, records in by_key.items():
            effects = Effects()
            machine.on_records(
                states.setdefault(key, {}), key, records, Times(watermark, 0), effects
            )
            perform(effects)
        watermark = MAX_TIME if step is None else max(watermark, -30) + step
        for (key, tag), at in sorted(timers.items(), key=lambda item: item[1]):
            if at < watermark and timers.pop((key, tag), None) is not None:
                effects = Effects()
                machine.on_timer(
                    states[key], key, tag, Domain.EVENT, at, Times(watermark, 0), effects
                )
                perform(effects)
    return emitted, late


def by_columns(
    window: WindowSpec,
    script: Sequence[tuple[Sequence[Row], int]],
    form: str = "columns",
    crashes: bool = False,
    **changes: Any,
) -> tuple[list[Any], int]:
    plan = plan_of(window, **changes)
    assert plan is not None
    stored = Stored(plan)
    few = RowForm(plan, aggregation_of(window, **changes))
    emitted: list[Any] = []
    late = 0
    watermark = MIN_TIME
    for number, (bundle, step) in enumerate([*script, ([], None)]):
        if bundle:
            batch = batch_of(bundle)
            windows = stored.windows
            late_until = windows.late_until(watermark)
            late += int(plan.too_late(batch, late_until).sum())
            if window is SESSION and (behind := plan.late(batch, late_until)) is not None:
                batch = batch.where(~behind)
            groups = plan.group(batch).filter(pl.col("end") > late_until)
            in_rows = list(plan.row_groups(groups))
            if form == "few" or (form == "now and then few" and number % 3):
                made = few.groups(in_rows)
                assert made is not None
                windows.add(windows.entering(made, watermark))
            else:
                groups = plan.from_row_groups(in_rows) if form == "there and back" else groups
                windows.add(windows.entering(groups, watermark))
            stored.keep(watermark, crashes)
        watermark = MAX_TIME if step is None else max(watermark, -30) + step
        closed = stored.windows.close(watermark)
        stored.keep(watermark, crashes)
        if closed is not None:
            stamps = (closed["end"] - 1).to_list()
            emitted += zip(stamps, plan.results(closed).to_dicts(), strict=True)
    assert not stored.windows
    assert not stored.segments
    return emitted, late


class Stored:
    """The windows of a shard, and its entries of them."""

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan
        self.windows = windows_of(plan, MIN_TIME)
        self.segments: dict[int, tuple[int, pl.DataFrame]] = {}

    def keep(self, closed: int, crash: bool) -> None:
        """Write the changes; with ``crash`` the windows are then opened anew."""
        changes = self.windows.take_changes()
        for number in changes.gone:
            del self.segments[number]
        for segment in changes.new:
            self.segments[segment.number] = (segment.level, written(segment.held))
        if crash:
            self.windows = windows_of(self._plan, closed)
            for number, (level, groups) in sorted(self.segments.items()):
                self.windows.restore(number, level, groups, closed)


def written(groups: Groups) -> pl.DataFrame:
    """What the store gives back."""
    return (
        restored_rows(unpack(pack(stored_rows(groups))))
        if isinstance(groups, FewGroups)
        else groups
    )


def aggregation_of(window: WindowSpec = TUMBLING, **changes: Any) -> Aggregation:
    spec, _ = spec_of(window, **changes)
    return compile_aggregation(
        spec.aggregates, compile_expression, None, spec.condition, spec.stage
    )


def in_order(emitted: list[Any]) -> list[Any]:
    return sorted(emitted, key=lambda pair: (pair[0], pair[1]["ad"], pair[1]["window_start"]))


@pytest.mark.parametrize(
    "window",
    [TUMBLING, SLIDING, SESSION, CHANGES],
    ids=["tumbling", "sliding", "session", "key windows"],
)
@pytest.mark.parametrize("form", ["columns", "there and back", "few", "now and then few"])
@given(
    script=bundles,
    condition=st.sampled_from(["", "size > 0", "kind != 'view'"]),
    crashes=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_columns_say_what_rows_say(
    window: WindowSpec,
    form: str,
    script: list[tuple[list[Row], int]],
    condition: str,
    crashes: bool,
) -> None:
    changes: dict[str, Any] = {
        "condition": condition,
        "aggregates": (*EVERYTHING, *CALCULATED, SPREAD),
    }
    if window is SESSION:
        changes["aggregates"] += (AggregateSpec("kinds", "count_distinct", "kind"),)
    rows, late_rows = by_rows(window, script, **changes)
    columns, late_columns = by_columns(window, script, form, crashes, **changes)
    assert in_order(columns) == in_order(rows)
    assert late_columns == late_rows


@given(st.lists(st.integers(-20, 20), min_size=1), st.integers(-20, 20), st.integers(0, 9))
def test_lateness_by_column_is_lateness_by_record(
    stamps: list[int], running: int, delay: int
) -> None:
    expected = []
    highest = running
    for stamp in stamps:
        expected.append(stamp < highest - delay)
        highest = max(highest, stamp)
    assert late_mask(np.array(stamps, np.int64), running, delay).tolist() == expected
