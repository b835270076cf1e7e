"""The choice of a machine for windows, the combinations that are refused, and the aggregations that
take groups in place of records: accumulators of a key and a stretch of time, made by the sender.

A group must contain all that the window needs of its records. So windows of groups depend on
nothing but timestamps and fire once, results do not depend on the order of records, and no record
is needed again: to be passed on when it is late, to name productions, or to be taken back.
"""

from __future__ import annotations

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.machines.aligned_windows import AlignedMachine, SilencesMachine
from millwheel.core.machines.change_logs import ChangeLogMachine
from millwheel.core.machines.counts import CountMachine
from millwheel.core.machines.cumulative import CumulativeMachine
from millwheel.core.machines.key_windows import KeyWindowMachine
from millwheel.core.machines.session_retractions import UnmergingMachine
from millwheel.core.machines.sessions import MergingMachine
from millwheel.core.machines.slices import PiecesMachine
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec, Productions
from millwheel.core.windows.combinations import Repeat
from millwheel.core.windows.contract import LatePolicy, Machine, Windowing
from millwheel.core.windows.panes import Accumulation, OutputTime
from millwheel.core.windows.triggers import Default
from millwheel.core.windows.windows import (
    Count,
    Cumulative,
    Custom,
    Forever,
    Sessions,
    Sliding,
    Tumbling,
    WindowFunction,
    WindowPieces,
)


def make_machine(windowing: Windowing, aggregation: Aggregation) -> Machine:
    """The machine for a windowing. ValueError, with the fix, for combinations that cannot work."""
    window = windowing.window
    if isinstance(window, WindowPieces):
        return PiecesMachine(aggregation, window)
    _check_late(windowing)
    if windowing.takes_retractions:
        _check_retractions(windowing, aggregation)
    if isinstance(window, Forever):
        _check_forever(windowing)
        return ChangeLogMachine(windowing, aggregation, window)
    if isinstance(window, Count):
        _check_count(windowing)
        return CountMachine(windowing, aggregation, window)
    if isinstance(window, Sliding) and window.changes:
        _check_changes(windowing)
        return KeyWindowMachine(windowing, aggregation, window)
    if isinstance(window, Tumbling) and window.empty:
        _check_empty(windowing)
        return SilencesMachine(windowing, aggregation, window)
    if isinstance(window, Cumulative) and _shares_steps(windowing):
        return CumulativeMachine(windowing, aggregation, window)
    if isinstance(window, (Sessions, Custom)) and window.merging:
        merging = UnmergingMachine if windowing.takes_retractions else MergingMachine
        return merging(windowing, aggregation, window)
    return AlignedMachine(windowing, aggregation)


def _shares_steps(windowing: Windowing) -> bool:
    """Cumulative windows of the common kind need one accumulator per period instead of one per
    step."""
    plain = (
        isinstance(windowing.trigger, Default) and windowing.output_time is OutputTime.END_OF_WINDOW
    )
    if isinstance(windowing.window, Cumulative) and windowing.window.changes:
        if plain and not windowing.takes_retractions:
            return True
        raise ValueError(
            "cumulative windows with emit: changes fire as the watermark passes each step: leave"
            " out trigger and output_time, and read no stream of retractions, or leave out emit:"
            " changes"
        )
    return plain and not windowing.takes_retractions and windowing.late is LatePolicy.DROP


def _check_late(windowing: Windowing) -> None:
    if windowing.allowed_lateness < 0:
        raise ValueError(f"allowed_lateness cannot be negative ({windowing.allowed_lateness})")
    if (
        windowing.late is LatePolicy.REFIRE
        and windowing.accumulation is not Accumulation.DISCARDING
    ):
        raise ValueError(
            "late: refire makes a pane of the late records alone, because the rest of the window is"
            " gone; that needs accumulation: discarding. To have late records corrected into full"
            " results, set allowed_lateness"
        )


def _check_retractions(windowing: Windowing, aggregation: Aggregation) -> None:
    """Panes that hold only differences cannot take back results of an earlier pane, unless
    differences add up."""
    single = isinstance(windowing.trigger, Default) and windowing.allowed_lateness == 0
    if windowing.accumulation is Accumulation.DISCARDING and not single and not aggregation.linear:
        raise ValueError(
            "its input carries retractions, and a discarding pane cannot take back what an earlier"
            " pane emitted; write accumulation: retracting (or accumulating), or use only count"
            " and sum"
        )


def _check_forever(windowing: Windowing) -> None:
    if not isinstance(windowing.trigger, Repeat):
        raise ValueError(
            "a change log goes on for ever: write trigger: {every: 1s}, or leave trigger out to"
            " emit what each bundle changes"
        )
    if windowing.accumulation is Accumulation.DISCARDING:
        raise ValueError(
            "the versions of a change log have all records of their group: write accumulation:"
            " retracting or accumulating, or leave it out"
        )


def _check_count(windowing: Windowing) -> None:
    if not isinstance(windowing.trigger, Default) or windowing.allowed_lateness:
        raise ValueError(
            "count windows fire when they are full: leave out trigger and allowed_lateness, or use "
            "window: global with trigger: {repeat: {after_count: …}}"
        )
    if windowing.takes_retractions:
        raise ValueError(
            "count windows cannot undo a record; read a stream without retractions, or use tumbling"
            " ones"
        )


def _check_changes(windowing: Windowing) -> None:
    if (
        not isinstance(windowing.trigger, Default)
        or windowing.output_time is not OutputTime.END_OF_WINDOW
    ):
        raise ValueError(
            "sliding windows with emit: changes fire when the result changes: leave out trigger and"
            " output_time, or leave out emit: changes"
        )
    if windowing.takes_retractions or windowing.late is LatePolicy.REFIRE:
        raise ValueError(
            "sliding windows with emit: changes take no retractions and no late: refire; leave out"
            " emit: changes"
        )
    if windowing.allowed_lateness and windowing.accumulation is Accumulation.DISCARDING:
        raise ValueError(
            "emit: changes with allowed_lateness corrects results that were emitted; "
            "write accumulation: accumulating or retracting"
        )


def _check_empty(windowing: Windowing) -> None:
    """Whether a key was silent is decided once, as the watermark passes the end of the window."""
    if (
        not isinstance(windowing.trigger, Default)
        or windowing.output_time is not OutputTime.END_OF_WINDOW
    ):
        raise ValueError(
            "tumbling windows with emit: empty fire as the watermark passes their end, when it is"
            " known which keys were silent: leave out trigger and output_time, or leave out emit:"
            " empty"
        )
    if windowing.allowed_lateness or windowing.late is LatePolicy.REFIRE:
        raise ValueError(
            "with emit: empty a late record would make windows that were not silent from some that"
            " were: leave out allowed_lateness and late: refire (late: {side: …} keeps late"
            " records), or leave out emit: empty"
        )
    if windowing.takes_retractions or windowing.accumulation is Accumulation.RETRACTING:
        raise ValueError(
            "tumbling windows with emit: empty fire once, and take no retractions: read a stream"
            " without them, and leave out accumulation; or leave out emit: empty"
        )


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
    """The windows by which groups are made: tumbling windows, or the steps of sliding ones whose
    size is a number of steps. None for all others."""
    if isinstance(window, Tumbling):
        return None if window.empty else window
    if isinstance(window, Sliding) and not window.changes and window.size % window.every == 0:
        return Tumbling(window.every, window.offset % window.every)
    return None
