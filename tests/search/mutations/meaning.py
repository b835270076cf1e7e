"""Deliberate mistakes about what a pipeline means, texts of times and decimals, and what may change
on a root: all ways of running it make them, so only the reference tells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from math import prod
from typing import Any

from msgspec import structs

from millwheel.api import Context as CallContext
from millwheel.control.savepoints import blueprint
from millwheel.core.columns.key_columns import KeyColumns
from millwheel.core.instants import time_forms as instants
from millwheel.core.instants.decimals import DecimalForm
from millwheel.core.machines import choice
from millwheel.core.machines.triggers import TriggeredMachine
from millwheel.core.model.records import Record
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline import joins
from millwheel.core.pipeline.spec import Delivery
from millwheel.core.windows.panes import Pane
from millwheel.core.windows.state import WindowState
from millwheel.core.windows.windows import Sessions, Window
from millwheel.engine.workers.host import grouping
from millwheel.engine.workers.operators import record_joins
from millwheel.engine.workers.operators.keyed_joins.interval import (
    IntervalJoined,
    NearRow,
    NearSide,
)
from millwheel.engine.workers.operators.keyed_joins.regular import RegularJoined
from millwheel.engine.workers.operators.keyed_joins.several import SeveralJoined
from millwheel.engine.workers.operators.record_computations import Deduplicated
from millwheel.engine.workers.operators.windows import join
from millwheel.language.spec import key_extractors
from millwheel.tools.testing import questions
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=60, features="session_window", variants="reference", first=24)
def sessions_that_touch_become_one() -> Context:
    """A record exactly one gap behind a session lengthens it."""

    def wrong(self: Sessions, windows: Sequence[Window]) -> list[list[Window]]:
        groups: list[list[Window]] = []
        end = MIN_TIME
        for window in sorted(windows):
            if groups and window.start <= end:
                groups[-1].append(window)
            else:
                groups.append([window])
            end = max(end, window.end)
        return groups

    return replaced(Sessions, "merge", wrong)


@mistake(within=10, features="timers callback", variants="reference")
def a_timer_fires_when_the_watermark_is_at_its_time() -> Context:
    """Not when it has passed it: records of that time may still come."""
    right = TimerQueue.pop_due
    return replaced(TimerQueue, "pop_due", lambda self, clock: right(self, clock + 1))


@mistake(within=40, features="join", variants="reference")
def an_outer_join_forgets_who_came_alone() -> Context:
    """Records of the second stream without a partner are not emitted."""
    right = joins.come_since

    def wrong(sides: Any, kind: Any) -> joins.Products:
        return [factors for factors in right(sides, kind) if factors[0][0] is not None]

    return replaced(record_joins, "come_since", wrong)


@mistake(within=10, features="join_again", variants="reference")
def a_join_that_fires_again_pairs_what_is_new_with_itself() -> Context:
    """Records that have come since are not paired with those before. (A trigger, or a late record
    within ``allowed_lateness``.)"""
    right = joins.come_since
    return replaced(
        record_joins,
        "come_since",
        lambda sides, kind: right([joins.WindowSide((), (), e.come) for e in sides], kind),
    )


@mistake(within=20, features="join_again", variants="reference", first=13)
def a_join_that_fires_again_leaves_what_stood_alone() -> Context:
    """A record whose first partner has come stands with and without it. (``left`` or ``outer``, and
    an early result.)"""
    return replaced(record_joins, "gone_since", lambda sides, kind: [])


@mistake(within=60, features="window_join_of_three", variants="reference")
def a_join_of_three_in_a_window_is_the_join_of_the_first_two() -> Context:
    """The third stream is null in all results, whatever it has."""
    right = joins.come_since

    def wrong(sides: Any, kind: Any) -> joins.Products:
        if len(sides) < 3:
            return right(sides, kind)
        return [[*factors, [None]] for factors in right(sides[:2], kind)]

    return replaced(record_joins, "come_since", wrong)


@mistake(within=40, features="window_join_of_changes", variants="reference")
def a_window_of_a_join_keeps_what_is_taken_back() -> Context:
    """A record that is taken back out of a window stays in its pairs. (A join behind a window with
    ``accumulation: retracting``.)"""
    right = TriggeredMachine._drop_kept

    def wrong(self: TriggeredMachine, own: WindowState, gone: Any, call: Any) -> bool:
        held = list(own.acc) if self._buffers else []
        dropped = right(self, own, gone, call)
        if self._buffers:
            own.acc = held
        return dropped

    return replaced(TriggeredMachine, "_drop_kept", wrong)


@mistake(within=40, features="window_join_of_changes join_again", variants="reference")
def a_join_that_fires_again_leaves_the_pairs_of_what_has_gone() -> Context:
    """Of records that were taken back since a window fired nothing is said. (A trigger, behind a
    window with ``accumulation: retracting``.)"""
    right = record_joins.Joined.change

    def wrong(self: Any, ctx: CallContext, key: Any, window: Window, sides: Any) -> None:
        right(self, ctx, key, window, [joins.WindowSide((), e.stay, e.come) for e in sides])

    return replaced(record_joins.Joined, "change", wrong)


@mistake(within=40, features="join_again session_window", variants="reference", first=4)
def a_session_that_grows_leaves_its_pairs_as_they_were() -> Context:
    """Those with its earlier bounds are not taken back. (A join in sessions, and an early
    result.)"""
    return replaced(record_joins.Joined, "take_back", lambda self, ctx, key, window, records: None)


@mistake(within=20, features="join_again session_window", variants="reference", first=40)
def a_session_takes_back_the_first_records_of_what_it_has_become() -> Context:
    """As many as it had, wherever they lie. (A join in sessions that become one, and early
    results.)"""

    def wrong(before: Pane, now: Pane) -> Pane:
        count = before.result
        return structs.replace(before, result=now.result[:count]) if type(count) is int else before

    return replaced(join, "_whole", wrong)


@mistake(within=10, features="enrich_of_changes", variants="reference", first=59)
def what_was_enriched_stays_when_its_record_is_taken_back() -> Context:
    """Nothing is said of it."""
    return replaced(
        record_joins.EnrichedChanges, "_take_back", lambda self, ctx, fields, name: None
    )


@mistake(within=10, features="enrich", variants="reference", first=179)
def a_record_is_enriched_by_an_older_version_that_came_later() -> Context:
    """The version that came last counts, whatever its time."""
    return replaced(record_joins, "newer", lambda at, version, position: True)


@mistake(within=4, features="kept_join", variants="reference", first=12)
def equal_rows_of_a_join_without_a_window_are_one() -> Context:
    """A row that is there already is not kept once more. (Two equal records, then a partner.)"""
    right = RegularJoined._keep

    def wrong(self: Any, ctx: CallContext, side: int, identity: bytes, row: Any, at: int) -> None:
        if not row.times:
            right(self, ctx, side, identity, row, at)

    return replaced(RegularJoined, "_keep", wrong)


@mistake(within=2, features="kept_join", variants="reference", first=175)
def a_row_that_has_found_a_partner_stands_alone_as_before() -> Context:
    """Whether rows are alone is looked at when they come, and not again. (``left``, and a record
    before its partner.)"""
    return replaced(RegularJoined, "_recount", lambda self, side, change: False)


@mistake(within=10, features="join_of_three", variants="reference")
def a_join_of_three_combines_a_row_with_the_first_row_of_each_other_stream() -> Context:
    """The others are passed over. (Two records of one stream, then a third stream's.)"""
    right = SeveralJoined._factors
    return replaced(SeveralJoined, "_factors", lambda self, side: islice(right(self, side), 1))


@mistake(within=10, features="join_of_three", variants="reference")
def a_join_of_three_leaves_a_null_where_a_row_has_come() -> Context:
    """What stood with a null is not taken back. (``left``, and a record before its partner.)"""
    right = SeveralJoined._produce_combination

    def wrong(self: Any, ctx: CallContext, parts: Any) -> None:
        if prod(part.weight for part in parts) > 0:
            right(self, ctx, parts)

    return replaced(SeveralJoined, "_produce_combination", wrong)


@mistake(within=4, features="named_bounds", variants="reference")
def a_join_within_an_interval_looks_only_at_the_bounds_of_what_comes() -> Context:
    """The times that a kept row names do not count. (``until`` of a record that is there.)"""

    right = IntervalJoined._meet

    def wrong(self: Any, ctx: CallContext, side: int, new: list[NearRow], kept: Any) -> None:
        lists = list(kept)
        for row in chain(*lists):
            row.first, row.last = MIN_TIME, MAX_TIME
        right(self, ctx, side, new, lists)

    return replaced(IntervalJoined, "_meet", wrong)


@mistake(within=4, features="interval_join", variants="reference")
def a_record_that_has_found_a_partner_is_said_alone_as_it_goes() -> Context:
    """That a kept row has met is not remembered. (``left``, and the partner comes later.)"""
    right = IntervalJoined._part

    def wrong(self: Any, ctx: CallContext, side: int, rows: list[NearRow]) -> None:
        for row in rows:
            row.met = False
        right(self, ctx, side, rows)

    return replaced(IntervalJoined, "_part", wrong)


@mistake(within=40, features="interval_join", variants="reference")
def a_join_within_an_interval_lets_go_of_what_no_timer_is_set_for() -> Context:
    """The timer of a key stays where the first row has set it. (A later row that ends before the
    first.)"""
    right = IntervalJoined._put

    def wrong(self: Any, ctx: CallContext, side: int, own: NearSide) -> None:
        right(self, ctx, side, own) if own.wakes_us == MAX_TIME else self._set(side, own)

    return replaced(IntervalJoined, "_put", wrong)


@mistake(within=120, features="deduplicate", variants="reference", first=42)
def copies_prolong_the_memory_of_the_first() -> Context:
    """What is equal to a record is dropped until it was silent for ``within``."""
    right = Deduplicated.process_record

    def wrong(self: Any, ctx: CallContext, record: Record) -> None:
        known = self._identity(record.value) in self.seen
        right(self, ctx, record)
        if known:
            self.seen[self._identity(record.value)] = record.timestamp

    return replaced(Deduplicated, "process_record", wrong)


@mistake(within=4, features="null_key windowed", variants="reference", first=3)
def nulls_are_of_the_group_of_empty_texts() -> Context:
    """A null in a key is an empty text there, also in results."""
    return replaced(key_extractors, "NULL", "")


@mistake(within=20, features="key_expressions columns", variants="together", first=5)
def keys_in_columns_are_those_of_other_records() -> Context:
    """The last record of a batch gets the key of the first one, and so on."""
    right = KeyColumns.parts

    def wrong(self: KeyColumns, frame: Any) -> Any:
        parts = right(self, frame)
        return None if parts is None else [part.reverse() for part in parts]

    return replaced(KeyColumns, "parts", wrong)


@mistake(within=10, features="tumbling_window aggregate", variants="edited", first=399)
def whoever_takes_copies_takes_no_groups() -> Context:
    """An aggregation whose delivery is changed does not know the groups that are on their way to
    it."""

    def wrong(spec: Any, windowing: Any, aggregation: Any) -> str:
        why = choice.why_not_combined(spec, windowing, aggregation)
        return why or ("sent at least once" if spec.delivery is Delivery.AT_LEAST_ONCE else "")

    return replaced(grouping, "why_not_combined", wrong)


@mistake(within=10, features="steps_in_columns windowed aggregate", variants="edited edited-often")
def windows_go_on_whatever_type_is_made_before_them() -> Context:
    """That a changed step makes another type does not keep open windows in columns from going
    on."""
    return replaced(blueprint, "follows_types", lambda stream, pipeline: False)


@mistake(within=20, features="times", variants="reference")
def clocks_of_all_texts_are_those_of_utc() -> Context:
    """The offset that a text says is not taken off."""
    right = instants.texts_us  # type: ignore[attr-defined]

    def wrong(texts: Sequence[str]) -> Any:
        return right([text[:-6] if text[-6:-5] in ("+", "-") else text for text in texts])

    return replaced(instants, "texts_us", wrong)


@mistake(within=30, features="decimals", variants="reference")
def a_decimal_loses_the_digits_that_have_no_room() -> Context:
    """It is cut, and no dead letter says so."""

    def wrong(self: DecimalForm, number: Any, value: Any) -> int:
        return int(number.scaleb(self.scale)) if number.is_finite() else right(self, number, value)

    right = DecimalForm._units
    return replaced(DecimalForm, "_units", wrong)


@mistake(within=20, features="decimals slices", variants="reference")
def answers_have_decimals_as_whole_units() -> Context:
    """600 is told for 6.00."""
    return replaced(questions, "shown_answer", lambda answer, scales: answer)
