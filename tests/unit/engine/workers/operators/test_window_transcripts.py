"""Runs tests/transcripts/*.yaml through the operators of the runtime, in every form that records
and state may have: what a window says is what its transcript has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from millwheel.core.columns.forms.windows import plan_or_why, plans_by_type
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.spec import AggregateSpec, ComputationSpec, PipelineSpec
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.operators.windows.grouping import GroupedOperator
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.state.column_segments import ColumnShard
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore
from tests.unit.core.columns.state.test_windows import Row, batch_of, spec_of
from tests.unit.core.test_transcripts import CASES, record_of, time_of, window_spec

FORMS = ("rows", "declared", "inferred", "grouped", "rows and columns")
_KEYS = ("k", "ann", "bob")
_ONLY_MACHINES = {"percentile", "retract", "rejected"}
"""Steps of which only the machine knows."""


def _told(document: Any) -> bool:
    """Whether the runtime can be told this story: whole numbers as values, and no failures."""
    steps = [next(iter(step.items())) for step in document["steps"]] if "steps" in document else []
    values = [record_of(item)[1] for action, given in steps if action == "push" for item in given]
    plain = all(isinstance(value, int) for value in values)
    own = document.get("aggregate") in (None, "sum", "count", "max", "min")
    apart = _ONLY_MACHINES.isdisjoint(action for action, _ in steps)
    return bool(steps) and plain and own and apart and "fails" not in document


TOLD = [case for case in CASES if _told(case.values[0])]


@dataclass
class OneOperator:
    """An operator between bundles, with its store and its timers. With ``reopens`` each bundle
    meets another owner."""

    spec: ComputationSpec
    pipeline: PipelineSpec
    plan: ColumnPlan | PlansByType | None
    form: str
    reopens: bool
    store: SimStore = field(default_factory=lambda: SimStore({}))
    timers: dict[Domain, TimerQueue] = field(default_factory=dict)
    watermark: int = MIN_TIME
    now_us: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        self.timers = {domain: TimerQueue(domain) for domain in Domain}
        self._open()

    def _open(self) -> None:
        self._overlay = overlay = Overlay(self.store)
        parts, plan = (overlay, _as_they_are, 100), self.plan
        rows = WindowedOperator(self.spec, self.pipeline, *parts)
        if isinstance(plan, ColumnPlan):
            rows.outputs.finish_row = plan.typed
        elif plan is not None:
            rows = GroupedOperator(self.spec, self.pipeline, plan, *parts)
        self.operator: Any = rows
        if isinstance(plan, ColumnPlan) and self.form == "grouped":
            plan = replace(plan, fires_once=False)
            self.operator = GroupedOperator(self.spec, self.pipeline, plan, *parts)
        elif plan is not None and plan.held and self.form != "rows":
            shard = ColumnShard("s", self.store, self.watermark)
            self.operator = ColumnOperator(self.spec, plan, shard, rows, _as_they_are)

    def run(self, records: list[Row]) -> Iterator[tuple[int, int, int, int, bool]]:
        """A bundle of records, and then as many as there are timers due."""
        arrivals = (
            [Arrival(ChannelName("c"), 1, 0, self._formed(records), None, 0)] if records else []
        )
        while True:
            self.number += 1
            bundle = Bundle(
                self.number, self.now_us, self.watermark, arrivals, self._overlay, self.timers
            )
            self.operator.run(bundle)
            for queue in self.timers.values():
                queue.take_changes()
            self.store.apply(*self._overlay.take())
            self.operator.validate(self.store)
            yield from map(_said, _made(bundle))
            if self.reopens:
                self._open()
            if not self._due():
                return
            arrivals = []

    def _due(self) -> bool:
        clocks = {Domain.EVENT: self.watermark, Domain.PROCESSING: self.now_us}
        timers = any(queue.earliest < clocks[domain] for domain, queue in self.timers.items())
        return timers or bool(self.operator.due_at() < self.watermark)

    def _formed(self, records: list[Row]) -> Any:
        batch = batch_of(records)
        in_rows = self.form == "rows" or (self.form == "rows and columns" and self.number % 2)
        return batch.rows() if in_rows else batch


def _as_they_are(stream: str, values: Any) -> Any:
    return values


def _made(bundle: Bundle) -> list[Mapping[str, Any]]:
    made = [row for outputs in bundle.outputs.streams.values() for row in outputs.decoded]
    return made + [row for batch in bundle.outputs.columns for row in batch.frame.to_dicts()]


def _said(row: Mapping[str, Any]) -> tuple[int, int, int, int, bool]:
    result = 0 if row["result"] is None else row["result"]
    bounds = row["window_start"], row["window_end"]
    return (row["ad"], *bounds, result, bool(row.get(RETRACTION_FIELD)))


def _expected(pane: Mapping[str, Any]) -> tuple[int, int, int, int, bool]:
    """A pane of a transcript; the sum of its values, where it has those."""
    result = sum(pane["values"]) if "values" in pane else pane["result"] or 0
    window = (-(2**63), 2**63 - 1) if pane["window"] == "global" else pane["window"]
    bounds = (window[0], window[1])
    return (_KEYS.index(pane.get("key", "k")), *bounds, result, pane.get("retraction", False))


def operator_of(document: Any, form: str, reopens: bool) -> OneOperator:
    """The operator of a document."""
    names = ("trigger", "accumulation", "output_time")
    more = {name: document[name] for name in names if name in document}
    late = document.get("late", "drop")
    spec, pipeline = spec_of(
        window_spec(document["window"]),
        aggregates=(AggregateSpec("result", document.get("aggregate") or "sum", "size"),),
        allowed_lateness_us=time_of(document.get("allowed_lateness", 0)),
        late="drop" if late == "side" else late,
        **more,
    )
    found: ColumnPlan | PlansByType | str
    if form == "inferred":
        found = plans_by_type(spec, windowing_from_spec(spec), compile_expression)
    else:
        found = plan_or_why(spec, pipeline, windowing_from_spec(spec), compile_expression)
    plan = None if isinstance(found, str) else found
    return OneOperator(spec, pipeline, plan, form, reopens)


@pytest.mark.parametrize("reopens", [False, True], ids=["live", "reopened"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("document", TOLD)
def test_every_form_says_what_the_transcript_has(document: Any, form: str, reopens: bool) -> None:
    if "refused" in document:
        pytest.skip("refused before it starts")
    one, said = operator_of(document, form, reopens), []
    for number, step in enumerate(document["steps"]):
        [(action, given)] = step.items()
        where = f"step {number} ({action})"
        if action == "expect":
            assert sorted(said) == sorted(map(_expected, given)), where
            said = []
            continue
        assert not said, where
        records: list[Row] = []
        match action:
            case "push":
                made = [record_of(item) for item in given]
                records = [Row(_KEYS.index(key), "view", 1.0, size, at) for key, size, at in made]
            case "watermark":
                one.watermark = time_of(given)
            case "clock":
                one.now_us = time_of(given)
            case _:
                continue
        said = list(one.run(records))
    assert not said
