"""Which aggregations take groups in place of records: accumulators of a key and a stretch of time,
made by the sender.

A group must tell all that the window would have seen of its records. So windows depend on nothing
but timestamps and fire once, results do not depend on the order of records, and no record is looked
at again: to be passed on when it is late, to name what it causes, or to be taken back.
"""

from __future__ import annotations

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec, Productions
from millwheel.core.windows.contract import Windowing
from millwheel.core.windows.panes import Accumulation, OutputTime
from millwheel.core.windows.triggers import Default
from millwheel.core.windows.windows import Sliding, Tumbling, WindowFunction


def why_not_combined(spec: ComputationSpec, windowing: Windowing, aggregation: Aggregation) -> str:
    """Why an aggregation takes no groups, as a phrase; "" where it does."""
    if spec.stage is not AggregationStage.WHOLE or spec.scatter > 1:
        return "its keys are divided"
    if len(spec.inputs) != 1:
        return "it has several inputs"
    if spec.is_change_log:
        return "it has no window"
    if combined_window(windowing.window) is None:
        return "its windows are neither plain tumbling ones nor sliding by whole steps"
    if (
        not isinstance(windowing.trigger, Default)
        or windowing.accumulation is Accumulation.RETRACTING
    ):
        return "its windows may fire more than once"
    if windowing.allowed_lateness or spec.late != "drop":
        return "late records are not dropped"
    if windowing.output_time is not OutputTime.END_OF_WINDOW:
        return "output_time looks at each record"
    if windowing.takes_retractions:
        return "records can be taken back"
    if spec.productions is not Productions.STRONG:
        return "its productions are weak"
    return "an aggregate depends on the order of records" if aggregation.ordered else ""


def combined_window(window: WindowFunction) -> Tumbling | None:
    """The stretches of time of groups: tumbling windows, or the steps of sliding ones whose size is
    a number of steps. None for all others."""
    if isinstance(window, Tumbling):
        return None if window.empty else window
    if isinstance(window, Sliding) and not window.changes and window.size % window.every == 0:
        return Tumbling(window.every, window.offset % window.every)
    return None
