"""Deliberate mistakes about windows, and about the ids of weak productions. The features that a
pipeline must have to show one stand in its docstring."""

from __future__ import annotations

from typing import Any

from millwheel.connect.sources.base import Reader
from millwheel.core.aggregates import aggregation
from millwheel.core.aggregates.arrival_order import InOrder
from millwheel.core.aggregates.families.approx_distinct import Sketched
from millwheel.core.aggregates.families.distinct import Distincts
from millwheel.core.aggregates.families.rows import ChosenRows
from millwheel.core.columns import from_spec as column_plans
from millwheel.core.columns import pairs as column_pairs
from millwheel.core.columns.few_groups import RowForm
from millwheel.core.columns.segments import ColumnarSegments
from millwheel.core.columns.state import sessions as column_sessions
from millwheel.core.columns.state import windows as column_windows
from millwheel.core.columns.state.late_windows import KeptColumns
from millwheel.core.columns.state.sessions import SessionColumns
from millwheel.core.lazy_polars import pl
from millwheel.core.machines.aligned_windows import SilencesMachine
from millwheel.core.machines.counts import CountMachine, Filling
from millwheel.core.machines.cumulative import CumulativeMachine, Period
from millwheel.core.machines.sessions import MergingMachine
from millwheel.core.machines.slices import PiecesMachine, SlicedMachine
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Batch
from millwheel.core.model.timers import Due
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline import skew
from millwheel.core.pipeline.production_ids import Cause
from millwheel.core.pipeline.work import JoinKind
from millwheel.core.windows import windows
from millwheel.core.windows.calls import Call
from millwheel.core.windows.contract import KeyState
from millwheel.core.windows.lateness import is_final
from millwheel.core.windows.panes import Pane
from millwheel.core.windows.state import WindowState
from millwheel.core.windows.windows import (
    Cumulative,
    OfInput,
    Sliding,
    Tumbling,
    Window,
    WindowFunction,
)
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.beside import BesideColumns
from millwheel.engine.workers.operators import callbacks
from millwheel.engine.workers.operators.windows import join_columns, rows
from millwheel.engine.workers.operators.windows.join_columns import JoinOperator
from millwheel.engine.workers.sources.partition import Part
from millwheel.engine.workers.sources.source_parts import SourceParts
from millwheel.language.spec.parts import computations
from tests.search.mistakes import Context, mistake, replaced
from tests.sim import mistakes_of_both


@mistake(within=10, features="past_timers weak_past same_timers", variants="reference")
def timers_named_by_their_time() -> Context:
    """The id of what a timer produces says for when it was set, not by which call. (Weak
    productions of a callback that sets an event-time timer again for a time that has passed.)"""

    def wrong(due: Due) -> Cause:
        return (due.key, due.tag, due.at)

    return replaced(callbacks, "timer_cause", wrong)


@mistake(within=20, features="weak_count count_window few_times aggregate", variants="reference")
def panes_named_by_window_and_number() -> Context:
    """The id of a pane says its window and its number there, not what made it. (Weak productions of
    count windows, or of ``late: refire``.)"""

    def wrong(call: Cause, pane: Pane, complete_once: bool) -> Cause:
        return (pane.key, *pane.window, pane.index, pane.retraction)

    return replaced(rows, "pane_cause", wrong)


@mistake(within=60, features="weak side late", variants="crash crash-bundles crashes", first=13)
def late_records_sent_aside_without_an_id() -> Context:
    """What a window with weak productions sends aside has no id. (``late: side:STREAM``, weak, and
    a crash.)"""
    return replaced(rows, "aside_cause", lambda call, what, number: None)


@mistake(within=10, features="behind_global", variants="reference")
def windows_beyond_the_end_of_time() -> Context:
    """Windows and their timers may end after the last instant. (A window behind a global one.)"""
    return replaced(windows, "within_time", Window)


@mistake(within=80, features="count_window two_stages", variants="reference")
def count_windows_fire_at_the_time_of_their_records() -> Context:
    """What is left in a count window has the time of its records, which the watermark has passed.
    (A time window behind a count window.)"""
    right = CountMachine._pane

    def wrong(self: CountMachine, own: Filling, key: Key, watermark: int) -> Pane:
        return right(self, own, key, MIN_TIME)

    return replaced(CountMachine, "_pane", wrong)


@mistake(within=10, features="session_window collect disorder", variants="reference", first=30)
def sessions_merge_in_the_order_of_their_starts() -> Context:
    """When sessions merge, the records of one come behind those of the other. (``collect`` or
    ``process_window`` over sessions, and a record that joins two.)"""

    def wrong(self: InOrder, acc: list[Any], other: list[Any]) -> list[Any]:
        return [*acc, *other]

    return replaced(InOrder, "merge", wrong)


@mistake(
    within=10, features="session_window window_callback early many_clocks", variants="reference"
)
def merged_sessions_go_on_counting_their_panes() -> Context:
    """The first pane of a merged session has the sum of the numbers of its parts. (Sessions with
    early or late panes; only the reference can tell, by ``ctx.pane`` in a ``process_window``.)"""

    def wrong(
        self: MergingMachine, parts: Any, states: list[WindowState], window: Window
    ) -> tuple[int, int]:
        return sum(state.index for state in states), sum(state.nonspeculative for state in states)

    return replaced(MergingMachine, "_panes_so_far", wrong)


@mistake(within=10, features="refused key_of_bounds", variants="reference")
def keys_replaced_by_the_bounds_of_windows() -> Context:
    """A key field called like a bound of the window is accepted, and replaced in the results. (A
    window or a join over the results of another, keyed by ``window_start``.)"""
    return replaced(computations, "check_keys", lambda reader, fields, inputs: None)


@mistake(within=10, features="missing_field broken", variants="reference")
def aggregates_share_what_one_of_them_read() -> Context:
    """A field that one aggregate may miss, the next one finds as None. (``count`` of a field beside
    another aggregate of it, and a record without it.)"""
    return replaced(aggregation, "_reading", lambda part: (part.argument, True))


@mistake(within=120, features="columns tumbling_window disorder", variants="together", first=83)
def columns_speak_in_the_order_of_first_records() -> Context:
    """Of windows that become due together, columns emit first which had a record first. (A pause in
    the watermark of a stream with declared fields.)"""
    return replaced(column_windows, "in_order_of_time", lambda groups: groups)


@mistake(within=40, features="columns tumbling_window few_times", variants="uncached pairs")
def groups_of_small_bundles_replace_each_other() -> Context:
    """Of several small bundles with records of one key and window, the last one counts. (Declared
    fields, and bundles that are grouped in rows.)"""
    return replaced(RowForm, "together", lambda self, rows: rows[-1])


@mistake(
    within=40, features="columns session_window few_times", variants="uncached pairs", first=30
)
def sessions_of_small_bundles_stay_apart() -> Context:
    """A session of a small bundle does not replace those of earlier ones that it overlaps. (The
    same, and sessions.)"""
    return replaced(column_sessions, "_few_divided", lambda older, newer: None)


@mistake(within=10, features="empty_window", variants="reference")
def silence_put_over_records_that_came() -> Context:
    """The window behind one with records is opened anew although it has records. (``emit: empty``,
    and a key with records in two windows in a row.)"""

    def wrong(self: SilencesMachine, start: int, call: Call) -> None:
        following = self._tumbling.window(start)
        self._settle(following, WindowState(self.aggregation.create()), following, call)

    return replaced(SilencesMachine, "_await", wrong)


@mistake(within=10, features="empty_window", variants="reference")
def silence_passed_over_by_a_jump_of_the_watermark() -> Context:
    """A window that has ended before it was opened counts as one that has spoken. (``emit: empty``,
    and a watermark that passes two windows at once.)"""

    def wrong(self: SilencesMachine, start: int, call: Call) -> None:
        following = self._tumbling.window(start)
        if call.state.get(following) is None:
            self._settle(following, self._born(following, call.times.watermark), following, call)

    return replaced(SilencesMachine, "_await", wrong)


@mistake(within=20, features="columns count_window", variants="together pairs")
def count_windows_begin_anew_with_each_bundle() -> Context:
    """In columns, the records of a bundle do not go on where the one before stopped. (Count windows
    over declared fields.)"""

    def wrong(self: CountMachine, state: KeyState) -> int:
        return 0

    return replaced(CountMachine, "filled", wrong)


@mistake(within=20, features="columns changes_window", variants="together pairs")
def key_windows_that_records_in_columns_enter_too_late() -> Context:
    """In columns, records enter a key window at the end of its length, not of its step. (``emit:
    changes`` over declared fields.)"""

    def wrong(window: WindowFunction) -> WindowFunction:
        if isinstance(window, Sliding) and window.changes:
            return Tumbling(window.size, window.offset)
        return right(window)

    right = column_plans._grouped_by
    return replaced(column_plans, "_grouped_by", wrong)


@mistake(within=20, features="columns session_window", variants="together pairs")
def sessions_in_columns_that_never_grow() -> Context:
    """What a bundle has of a session is not put together with what is open. (Sessions in
    columns.)"""
    return replaced(SessionColumns, "_take_out", lambda self, newer: [])


@mistake(within=20, features="join tumbling_window", variants="together pairs")
def joins_that_say_nothing_of_what_is_alone() -> Context:
    """In whole bundles, every join is an inner one. (``join: left`` or ``outer`` in tumbling
    windows.)"""
    right = join_columns._makes_result
    return replaced(join_columns, "_makes_result", lambda kind: right(JoinKind.INNER))


@mistake(within=20, features="columns join", variants="together pairs")
def joins_in_columns_that_say_nothing_of_what_is_alone() -> Context:
    """In columns, every join is an inner one. (``join: left`` or ``outer`` over declared
    fields.)"""
    return replaced(column_pairs, "_HOW", dict.fromkeys(JoinKind, "inner"))


@mistake(within=4, features="other_join tumbling_window", variants="reference together", first=10)
def right_joins_that_say_nothing_of_what_is_alone() -> Context:
    """In whole bundles, a right join is an inner one."""
    right = join_columns._makes_result
    inner = JoinKind.INNER
    return replaced(
        join_columns, "_makes_result", lambda kind: right(inner if kind is JoinKind.RIGHT else kind)
    )


@mistake(within=20, features="columns join", variants="together pairs", first=5)
def joins_in_columns_that_lose_what_is_not_declared() -> Context:
    """Columns of whole records have the declared fields only. (A join over fields of which one is
    not declared.)"""
    return replaced(SourceParts, "_takes_whole", _only_declared)


@mistake(within=4, features="columns passed_on", variants="together pairs", first=2)
def filters_in_columns_that_lose_what_is_not_declared() -> Context:
    """The same behind a source whose records are passed on. (A filter alone over fields of which
    one is not declared.)"""
    return replaced(SourceParts, "_takes_whole", _only_declared)


def _only_declared(self: SourceParts, part: Part, reader: Reader) -> bool:
    return self.whole is not None and self.whole.fields == self.stream.fields


@mistake(
    within=5,
    features="columns sum large_numbers sliding_window",
    variants="large-crashes crash-bundles combined-crashes",
    first=7,
)
def keys_that_have_left_the_columns_come_back() -> Context:
    """What keys leave behind in a segment is not stored: after a crash they are in it again. (Sums
    in columns that grow beyond 64 bits for one key, and a crash.)"""
    return replaced(ColumnarSegments, "cut", lambda self, segment, rest: self._keep(segment, rest))


@mistake(within=20, features="join tumbling_window disorder", variants="together pairs bundles")
def joins_that_open_a_window_again() -> Context:
    """In whole bundles, late records get into a window that has closed. (A join in tumbling
    windows, and a late record.)"""

    def wrong(self: JoinOperator, records: pl.DataFrame, bundle: Bundle) -> None:
        self._windows.add(records)

    return replaced(JoinOperator, "_add", wrong)


@mistake(
    within=20, features="fields callback aggregate late", variants="together bundles", first=10
)
def late_records_get_into_columns_that_are_made() -> Context:
    """Columns that a source makes of single records, because a callback takes them too, have the
    late ones as well."""
    right = BesideColumns.split

    def wrong(self: BesideColumns, batch: Batch, late: Any, hot: Any) -> Any:
        return right(self, batch, (), hot)

    return replaced(BesideColumns, "split", wrong)


@mistake(
    within=15, features="columns count_distinct_in_columns", variants="reference together", first=60
)
def values_in_columns_that_count_once_for_each_bundle() -> Context:
    """A list of different values has one twice that came in two bundles. (``count_distinct`` in
    columns.)"""
    return replaced(Distincts, "merged", lambda self: [pl.col(self._column).explode().drop_nulls()])


@mistake(within=10, features="session_window aggregate windowed", variants="divided", first=86)
def pieces_of_sessions_hold_their_ends() -> Context:
    """A piece of a divided session holds the watermark at its end, and not at its first record."""
    return mistakes_of_both.session_pieces_hold_their_ends()


@mistake(within=20, features="cumulative_window aggregate", variants="reference")
def slices_of_due_windows_are_final() -> Context:
    """Slices are merged into the result before them once the watermark has passed them, also while
    the windows between have not fired. (Cumulative windows of which more are due than fire in one
    bundle.)"""

    def wrong(self: Any, own: Period, watermark: int) -> None:
        while own.slices and is_final(own.slices[0][0], watermark, self._lateness_us):
            own.acc = self._aggregation.merge(own.acc, own.slices[0][1])
            own.slices = own.slices[1:]

    return replaced(CumulativeMachine, "_fold", wrong)


@mistake(within=20, features="cumulative_window aggregate", variants="reference")
def a_bundle_has_fired_all_windows() -> Context:
    """A period has fired all that the watermark has passed, also where a bundle had to stop before.
    (Cumulative windows of which more are due than fire in one bundle.)"""
    original = CumulativeMachine._advance

    def wrong(self: Any, base: Window, own: Period, call: Call, *most: int) -> None:
        original(self, base, own, call, *most)
        own.done = max(own.done, min(call.times.watermark, base.end))

    return replaced(CumulativeMachine, "_advance", wrong)


@mistake(
    within=20,
    features="cumulative_window aggregate retracting lateness disorder",
    variants="reference",
    first=7,
)
def corrected_results_are_not_taken_back() -> Context:
    """A late record adds the right result, and the wrong one stays. (Windows that share slices,
    ``retracting``, and a record that comes after its window has fired.)"""
    return replaced(SlicedMachine, "_take_back", lambda self, *given: None)


@mistake(
    within=40,
    features="fields stated lateness tumbling_window aggregate",
    variants="crashes crash-bundles",
    first=11,
)
def windows_that_fire_once_more_after_a_crash() -> Context:
    """Windows that stay in columns count as not fired for whoever opens the shard. (Allowed
    lateness over declared fields, and a crash while a window stays.)"""

    def wrong(
        self: KeptColumns, number: int, level: int, groups: pl.DataFrame, watermark: int, fired: int
    ) -> None:
        self._next_number = max(self._next_number, number + 1)
        open_groups = groups.filter(pl.col("end") > self.late_until(watermark))
        self._take_stored(number, level, open_groups, MIN_TIME)

    return replaced(KeptColumns, "restore", wrong)


@mistake(
    within=3,
    features="fields fired_windows lateness accumulating tumbling_window sum",
    variants="shards pairs crash",
    first=9,
)
def late_records_that_do_not_see_what_has_fired() -> Context:
    """A late record makes a pane of its own, as if its window had never fired. (Allowed lateness
    over declared fields, ``accumulating``, and a late record.)"""
    return replaced(KeptColumns, "fired", lambda self, among=None: None)


@mistake(within=5, features="columns approx_count_distinct_in_columns", variants="pairs bundles")
def sketches_in_columns_that_know_one_bundle() -> Context:
    """Of the coupons of several bundles, those of the first are kept. (``approx_count_distinct`` in
    columns.)"""
    return replaced(Sketched, "merged", lambda self: [pl.col(self._column).first()])


@mistake(within=10, features="cumulative_window aggregate windowed", variants="divided", first=3)
def pieces_of_cumulative_windows_are_whole_periods() -> Context:
    """A part of a divided key makes one piece of a period, which comes when its steps are over."""
    return replaced(Cumulative, "step_bounds", lambda self, timestamp: tuple(self.base(timestamp)))


@mistake(within=10, features="of_window windowed", variants="reference")
def windows_of_results_are_named_by_their_end() -> Context:
    """Results of windows that end together are put into one, wherever these began."""
    named = OfInput.window_of
    return replaced(
        OfInput, "window_of", lambda self, value: Window(MIN_TIME, named(self, value).end)
    )


@mistake(within=10, features="of_window columns two_stages", variants="divided-crashes", first=14)
def weak_pieces_of_windows() -> Context:
    """Weak pieces have ids by their order. After a crash the first one may have what came in the
    second one before, which is dropped then as if it were known."""
    return replaced(skew, "_fires_again", lambda work: False)


@mistake(within=10, features="slices", variants="divided", first=11)
def parts_of_slices_do_not_tell_their_newest_record() -> Context:
    """A part of a slice is of the end of the slice, and not of its newest record."""
    right = PiecesMachine._emit_piece

    def wrong(self: PiecesMachine, call: Call, piece: Window, acc: Any, timestamp: int) -> None:
        right(self, call, piece, acc, piece.max_timestamp)

    return replaced(PiecesMachine, "_emit_piece", wrong)


@mistake(within=3, features="rows_in_order cumulative_window", first=3)
def records_of_merged_parts_are_those_of_the_first() -> Context:
    """Where the records that parts have chosen are put together, those of the first part stay."""
    return replaced(ChosenRows, "merge", lambda self, acc, other: acc or list(other))
