"""The outputs of the windows of a shard: results, late records, and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from millwheel.connect.own_functions import language_of
from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.results import shown_by, shows_each
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.from_spec import float_sums
from millwheel.core.columns.groups import GroupsPlan
from millwheel.core.columns.groups_frame import END, KEY
from millwheel.core.columns.stateless.results import ResultColumns
from millwheel.core.expressions.language import Language
from millwheel.core.lazy_polars import pl
from millwheel.core.model.failures import in_words
from millwheel.core.model.keys import Key
from millwheel.core.model.records import DeadLetter
from millwheel.core.pipeline.production_ids import Cause, production_id
from millwheel.core.pipeline.skew import aggregated_stream
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec, PipelineSpec
from millwheel.core.windows.calls import Group
from millwheel.core.windows.contract import LateRecord, RejectedRecord
from millwheel.core.windows.panes import RETRACTION_FIELD, Pane, pane_row
from millwheel.core.windows.state import tag_of
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import RECORD, TIMER, UNCARRIABLE, Bundle
from millwheel.engine.workers.state.window_results import WindowResults
from millwheel.errors import RecordError


class WindowOutputs:
    """The outputs of the windows of a computation in a bundle. ``results`` keeps the newest result
    of each key for queries (None: it is not kept). ``finish_row`` makes the row of a result
    final."""

    def __init__(
        self, spec: ComputationSpec, pipeline: PipelineSpec, results: WindowResults | None
    ) -> None:
        self._spec = spec
        self._pipeline = pipeline.name
        self._head = spec.inputs[0].key.naming()
        self._bounded = not spec.is_change_log
        self._then = shown_by(spec, language_of(pipeline).compile)
        self._shows_each = shows_each(spec)
        self.finish_row: Callable[[dict[str, Any]], dict[str, Any]] = finisher(spec, pipeline)
        self._results = results

    def pane(self, pane: Pane, cause: Cause, bundle: Bundle) -> None:
        """Emit the result of a window that has fired."""
        row = self.finish_row(pane_row(pane, self._head(pane.key), self._bounded))
        if self._shows_each:
            shown = self.shown(row, pane.key, pane.timestamp, cause, bundle)
            if shown is None:
                return
            row = shown
        try:
            if self._results is not None:
                self._results.fired(pane, self.finish_row(dict(pane.result)))
        except UNCARRIABLE as ex:
            self._not_carried(row, pane.key, pane.timestamp, cause, bundle, ex)
        else:
            self.row(row, pane.key, pane.timestamp, cause, bundle)

    def row(self, row: dict[str, Any], key: Key, at: int, cause: Cause, bundle: Bundle) -> None:
        """Emit the row of a result, or a dead letter where it cannot be carried."""
        try:
            for number, stream in enumerate(self._spec.outputs):
                bundle.outputs.produce(stream, key, row, at, production_id(cause, number))
        except UNCARRIABLE as ex:  # a user's aggregator made it, or an expression of then
            self._not_carried(row, key, at, cause, bundle, ex)

    def _not_carried(
        self, row: dict[str, Any], key: Key, at: int, cause: Cause, bundle: Bundle, ex: Exception
    ) -> None:
        reason = f"the result of a window cannot be carried: {ex}"
        self.letter(bundle, key, row, at, reason, cause, TIMER)

    def shown(
        self, row: dict[str, Any], key: Key, at: int, cause: Cause, bundle: Bundle
    ) -> dict[str, Any] | None:
        """The row of a result as it is emitted; None for one that is left out, or that fails and is
        a dead letter."""
        try:
            return self._then(row)
        except RecordError as ex:
            if RETRACTION_FIELD not in row:  # the result has been reported already
                reason = f"then or having failed on a result: {ex}"
                self.letter(bundle, key, row, max(at, bundle.floor), reason, cause, TIMER)
            return None

    def late(self, late: LateRecord, cause: Cause, bundle: Bundle) -> None:
        """Count a late record, and send it where late ones go."""
        bundle.count("late")
        if side := self._spec.late_side:
            # Earlier than the floor, consumers would get the record behind what a predecessor has
            # published, late once more (emits_late makes the floor durable before it is published).
            at = max(late.timestamp, bundle.passed)
            bundle.outputs.produce(side, late.key, late.value, at, production_id(cause, 0))

    def refuse(self, bad: RejectedRecord, cause: Cause, bundle: Bundle) -> None:
        """Send a record that the aggregation cannot use to the dead letters."""
        stream = bad.stream or self.only_stream()
        who = f" (aggregate {bad.aggregate!r} of stream {stream!r})" if bad.aggregate else ""
        self.letter(
            bundle, bad.key, bad.value, bad.timestamp, bad.reason + who, cause, stream=stream
        )

    def only_stream(self) -> str:
        """The one input; none of several."""
        return self._spec.inputs[0].stream if len(self._spec.inputs) == 1 else ""

    def letter(
        self,
        bundle: Bundle,
        key: Key,
        value: Any,
        timestamp: int,
        reason: str,
        cause: Cause = None,
        what: str = RECORD,
        stream: str = "",
    ) -> None:
        """Send a value that could not be used to the dead letters: a call about ``what`` failed.
        ``cause`` is the basis of their ids."""
        stream = stream or self.only_stream()
        letter = DeadLetter(self._pipeline, self._spec.name, stream, reason, key, value, timestamp)
        bundle.dead_letter(letter, max(timestamp, bundle.floor), cause, what)

    def lose(self, key: Key, groups: Sequence[Group], ex: BaseException, bundle: Bundle) -> None:
        """Report that the aggregator cannot merge the groups of a key. They are a dead letter
        together."""
        together = sum(group.count for group in groups)
        reason = f"aggregation of {together} records together failed: {in_words(ex)}"
        self.letter(bundle, key, None, groups[0].window.end - 1, reason)

    def unstorable(self, key: Key, slot: Any, why: str, cause: Cause, bundle: Bundle) -> None:
        """Report that the state of a window with its newest records cannot be written."""
        reason = (
            f"the state of window {tag_of(slot)} cannot be stored, so its newest records are"
            f" lost: {why}; aggregators and triggers must keep plain data"
        )
        self.letter(bundle, key, None, bundle.floor, reason, cause, TIMER)

    def could_not_fire(
        self, bundle: Bundle, key: Key, tag: str, at: int, ex: BaseException, cause: Cause = None
    ) -> None:
        """Report that the aggregator of a window has no result for its accumulator."""
        reason = f"window {tag} could not fire: {in_words(ex)}"
        self.letter(bundle, key, None, max(at, bundle.floor), reason, cause, TIMER)


class ColumnOutputs:
    """The outputs of windows in columns: columns, and through ``rows`` results that no column can
    hold."""

    def __init__(
        self,
        spec: ComputationSpec,
        aggregation: Aggregation,
        language: Language,
        boundary: ColumnBoundary,
        rows: WindowOutputs,
    ) -> None:
        self._spec = spec
        self._aggregation = aggregation
        self._results = ResultColumns(spec, language.compile)
        self._boundary = boundary
        self._rows = rows

    def emit(self, plan: GroupsPlan, closed: pl.DataFrame, bundle: Bundle) -> None:
        """Emit the results of closed windows, in the order in which they are."""
        if self._spec.stage is AggregationStage.PARTIAL:  # accumulators have no column form
            self._emit_rows(plan, closed, bundle)
            return
        stamps, none = closed[END].to_numpy() - 1, np.array([], np.int64)
        try:
            with self._boundary.inside(bundle.count):
                whole = ColumnBatch("", none, stamps, closed[KEY], plan.results(closed))
                parts, for_rows = self._results.shown(whole)
        except Inexact:
            self._emit_rows(plan, closed, bundle)
            return
        if len(for_rows):
            self._emit_rows(plan, closed[for_rows], bundle)
        for part in parts:
            bundle.outputs.produce_columns(part)

    def _emit_rows(self, plan: GroupsPlan, closed: pl.DataFrame, bundle: Bundle) -> None:
        """Emit results that columns cannot hold, for example a sum beyond 64 bits."""
        head = self._spec.inputs[0].key.naming()
        for key, group in plan.row_groups(closed):
            start, end = group.window
            row = head(key) | {"window_start": start, "window_end": end}
            try:
                row.update(self._aggregation.result(group.acc))
            except Exception as ex:  # as in rows: this window cannot fire, the others can
                self._rows.could_not_fire(bundle, key, tag_of(group.window), end - 1, ex)
                continue
            shown = self._rows.shown(plan.typed(row), key, end - 1, None, bundle)
            if shown is not None:
                self._rows.row(shown, key, end - 1, None, bundle)


def finisher(
    spec: ComputationSpec, pipeline: PipelineSpec
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The function that makes the row of a result final. Accumulators do not show which fields were
    declared as floats: their sums are floats as those of an aggregation in columns, also where
    nothing was summed."""
    floats: tuple[str, ...] = ()
    if spec.stage is AggregationStage.FINAL:
        floats = float_sums(
            spec, aggregated_stream(spec, pipeline).fields, language_of(pipeline).compile
        )
    elif spec.stage is AggregationStage.WHOLE and len(spec.inputs) == 1:
        floats = float_sums(
            spec, pipeline.stream(spec.inputs[0].stream).fields, language_of(pipeline).compile
        )

    def finish(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, **{name: float(row[name]) for name in floats}}

    return finish if floats else dict
