"""Deliberate mistakes in joins whose results span several commits."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from msgspec import structs

from millwheel.core.pipeline.joins import WindowSide
from millwheel.engine.workers.delivery.inbox import Inbox, parted
from millwheel.engine.workers.operators import suspension
from millwheel.engine.workers.operators.keyed_joins.interval import IntervalJoined
from millwheel.engine.workers.operators.keyed_joins.regular import RegularJoined
from millwheel.engine.workers.operators.record_joins import Firing, Joined
from millwheel.engine.workers.operators.suspension import Suspending, Suspension
from millwheel.engine.workers.operators.windows.join_columns import JoinOperator
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=4, features="all_in_columns", variants="little little-crashes", first=16)
def what_comes_for_a_suspended_record_does_not_wait() -> Context:
    """It is joined at once, with rows that have not been met by all before it."""
    right = Suspending.process_record

    def wrong(self: Suspending, ctx: Any, record: Any) -> None:
        if type(record) is suspension.Resumed or not ctx.suspension.has(ctx.key):
            right(self, ctx, record)
            return
        ctx.suspension.room = 1 << 40
        self.go_on(ctx, record, suspension.Cursor())

    return replaced(Suspending, "process_record", wrong)


@mistake(within=4, features="all_in_columns", variants="little little-crashes", first=4)
def a_suspended_record_goes_on_behind_the_next_row() -> Context:
    """It leaves out one of its partners."""
    right = RegularJoined._from

    def wrong(self: RegularJoined, side: int, cursor: suspension.Cursor) -> Iterator[Any]:
        rows = right(self, side, cursor)
        if cursor.few or cursor.entry is not None:
            next(rows, None)
        yield from rows

    return replaced(RegularJoined, "_from", wrong)


@mistake(within=4, features="all_in_columns", variants="little little-crashes", first=16)
def records_of_suspended_keys_are_taken_in_columns() -> Context:
    """Those that wait in rows never meet them."""
    return replaced(Suspension, "keys", lambda self: set())


@mistake(within=4, features="all_in_columns", variants="little little-crashes")
def what_a_shortened_bundle_leaves_is_gone() -> Context:
    """It does not wait again in the inbox. (So many pairs that a bundle takes less.)"""
    return replaced(Inbox, "put_back", lambda self, arrivals, count: parted(arrivals, count)[0])


@mistake(within=4, features="near_in_columns", variants="little little-crashes", first=32)
def a_suspended_record_leaves_out_a_partner_that_is_near() -> Context:
    """It goes on behind the next."""
    right = IntervalJoined.go_on

    def wrong(self: IntervalJoined, ctx: Any, record: Any, cursor: suspension.Cursor) -> bool:
        cursor.times += type(record) is suspension.Resumed
        return right(self, ctx, record, cursor)

    return replaced(IntervalJoined, "go_on", wrong)


@mistake(within=4, features="join", variants="little little-crashes", first=18)
def a_window_that_waits_begins_again() -> Context:
    """Its cursor is not stored: what it said before the commit is said once more."""
    right = Joined.go_on

    def wrong(self: Joined, ctx: Any, record: Any, cursor: suspension.Cursor) -> bool:
        start = structs.replace(cursor)
        if right(self, ctx, record, cursor):
            return True
        if not start.few:  # else it would do so for ever
            cursor.few, cursor.step, cursor.times = 1, start.step, start.times
        return False

    return replaced(Joined, "go_on", wrong)


@mistake(within=4, features="join", variants="little little-crashes", first=18)
def a_window_that_waits_forgets_its_records() -> Context:
    """They are freed with the window, which has closed, before all results are emitted."""
    right = Joined.decode_waiting

    def wrong(self: Joined, number: int, data: bytes) -> Firing:
        firing = right(self, number, data)
        return structs.replace(
            firing, sides=[WindowSide((), (), side.come[:1]) for side in firing.sides]
        )

    return replaced(Joined, "decode_waiting", wrong)


@mistake(within=8, features="join_again", variants="little little-crashes", first=16)
def a_window_that_fires_again_does_not_wait() -> Context:
    """A late record, or an early result, while its key waits: nothing is emitted."""
    right = Joined._process_firing

    def wrong(self: Joined, ctx: Any, window: Any, sides: Any) -> None:
        if not ctx.suspension.has(ctx.key):
            right(self, ctx, window, sides)

    return replaced(Joined, "_process_firing", wrong)


@mistake(within=4, features="join columns", variants="little little-crashes", first=16)
def pairs_in_columns_leave_out_the_first_of_each_part() -> Context:
    """It goes on behind the next. (A window that has so many that it goes on in columns.)"""
    right = JoinOperator._produce_pairs

    def wrong(self: JoinOperator, ctx: Any, firing: Firing, pairs: Any, start: int) -> int | None:
        count = right(self, ctx, firing, pairs, start)
        left = prod(map(len, pairs)) - start
        return min(count + 1, left) if count else count

    return replaced(JoinOperator, "_produce_pairs", wrong)
