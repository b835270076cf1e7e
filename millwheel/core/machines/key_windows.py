"""Key windows: a sliding window's result, computed and emitted only where it changes.

A native sliding window of size p and slide k costs p/k windows per record. But a key's result can
only change where a record enters the window (a *left* key window) or leaves it (a *right* one): at
most 2n times for n records. On the grid of window ends e, a record of time t enters at the first e
> t and leaves at that e + p; so

    R(e) = result of the records that have entered and not left at e

is a step function, and its steps are emitted: the native results with consecutive equal ones
removed, starting from the result of no records. When the last record leaves, the result of no
records is emitted.

R is kept up with two stacks (key_window_queue.py): a record is added once, to the bucket of
the point at which it enters, and a bucket is merged about three times in its life, however many
windows it lies in; nothing is subtracted, and no raw records are kept.

The watermark drives it: buckets wait until it has passed the point at which they enter. A record
behind the watermark (still in windows that are open) is inserted at its position and the stacks are
rebuilt, in time proportional to the number of the key's buckets. With an allowed lateness, buckets
stay that much longer, and the steps that a late record changes are emitted again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.machines.key_window_queue import BucketQueue, Steps, steps_of
from millwheel.core.machines.slices import Rows, SlicedMachine
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.calls import Call, Group
from millwheel.core.windows.contract import Effects, KeyState, Slot, Times, Windowing
from millwheel.core.windows.lateness import is_final
from millwheel.core.windows.panes import Accumulation, Timing
from millwheel.core.windows.windows import Sliding, Window, within_time

SLOT = "steps"


class KeyWindowMachine(SlicedMachine[int]):
    """See the head of this file. A slice is identified by the point at which it enters."""

    last_window = "last window"

    def __init__(self, windowing: Windowing, aggregation: Aggregation, window: Sliding) -> None:
        super().__init__(windowing, aggregation)
        self._size = window.size
        self._every = window.every
        self._offset = window.offset
        self._queue = BucketQueue(aggregation, window.size, windowing.allowed_lateness > 0)

    # --- records ----------------------------------------------------------------------------------

    def _slice(self, timestamp: int, watermark: int) -> int | None:
        point = self._enters(timestamp)
        last = point + self._size - self._every
        return None if is_final(last, watermark, self._lateness_us) else point

    def _take_rows(self, slices: Mapping[int, Rows], call: Call) -> None:
        own = self._steps(call.state.get(SLOT))
        self._advance(own, call)
        self._take(own, slices, self._add_rows, call)
        self._store(own, call)

    def on_groups(
        self, state: KeyState, key: Key, groups: Sequence[Group], times: Times, effects: Effects
    ) -> None:
        """The column path: a bundle's records of one key, already aggregated by step of the slide.
        The window of a group is its step, which ends where the records enter. The watermark has
        passed none of these ends (the caller has left out the records behind it)."""
        call = Call(state, key, times, effects)
        own = self._steps(state.get(SLOT))
        self._advance(own, call)
        entering = {min(group.window.end, MAX_TIME): group.acc for group in groups}
        self._take(own, entering, self._add_acc, call)
        self._store(own, call)

    def take_over(
        self,
        state: KeyState,
        key: Key,
        groups: Sequence[Group],
        closed: int,
        times: Times,
        effects: Effects,
    ) -> None:
        """Take over the groups of a key from columns; it has no state here. The window of each
        group is the points at which it enters and leaves. The steps up to ``closed`` were
        emitted."""
        call = Call(state, key, Times(closed, times.now_us), effects)
        own = self._steps(None)
        entering: dict[int, Any] = {}
        for group in groups:
            point = group.window.end - self._size
            if group.window.start > closed:
                entering[point] = self._add_acc(entering.get(point), group.acc)
            else:
                bucket = state.get(point) or [None, None, None]
                if bucket[0] is None:
                    self._queue.link(own, point, bucket, state)
                bucket[0] = self._add_acc(bucket[0], group.acc)
                state[point] = bucket
        self._queue.rebuild(own, closed, state)
        own.last = self._queue.result(own, state)
        self._take(own, entering, self._add_acc, call)
        call = Call(state, key, times, effects)
        self._advance(own, call)
        self._store(own, call)

    def _enters(self, timestamp: int) -> int:
        """The first window end after a time: the last of them is the end of time."""
        return min(timestamp + self._every - (timestamp - self._offset) % self._every, MAX_TIME)

    def _take(
        self, own: Steps, groups: Mapping[int, Any], add: Callable[[Any, Any], Any], call: Call
    ) -> None:
        """Add the records of each point at which some enter; ``add`` also gets None, for a bucket
        without any."""
        watermark = call.times.watermark
        new = []
        for point, records in groups.items():
            bucket = call.state.get(point)
            if bucket is None:
                bucket = [None, None, None]
                if point > watermark:
                    new.append(point)
                else:
                    self._queue.link(own, point, bucket, call.state)
            bucket[0] = add(bucket[0], records)
            call.state[point] = bucket
        if new:
            own.pending = sorted([*own.pending, *new])
        if any(point <= watermark for point in groups):
            self._restack(own, call)

    # --- time -------------------------------------------------------------------------------------

    def _slot(self, tag: str) -> str | None:
        return SLOT if tag == SLOT else None

    def _due(self, slot: Slot, stored: Any, call: Call) -> None:
        own = self._steps(stored)
        own.timer_at_us = None
        self._advance(own, call)
        self._store(own, call)

    def _next_point(self, own: Steps) -> int:
        """The next point at which the result may change (MAX_TIME: there is none)."""
        entering = own.pending[0] if own.pending else MAX_TIME
        return min(entering, self._next_leave(own), own.extra[0] if own.extra else MAX_TIME)

    def _next_leave(self, own: Steps) -> int:
        return MAX_TIME if own.first is None else own.first + self._size

    def _leaves_by(self, own: Steps, point: int) -> bool:
        """True when a bucket is inside and leaves at ``point`` or before, which may be the end of
        time."""
        return own.first is not None and self._next_leave(own) <= point

    def _advance(self, own: Steps, call: Call) -> None:
        """Emit every step that the watermark has passed."""
        watermark = call.times.watermark
        entering = [point for point in own.pending if point <= watermark]
        ahead = deque(sorted({*entering, *(point for point in own.extra if point <= watermark)}))
        own.pending = own.pending[len(entering) :]
        own.extra = [point for point in own.extra if point > watermark]
        new = set(entering)
        while ahead or self._leaves_by(own, watermark):
            point = min(self._next_leave(own), ahead[0] if ahead else MAX_TIME)
            while self._leaves_by(own, point):
                self._queue.leave(own, call.state)
            if ahead and ahead[0] == point:
                ahead.popleft()
            if point in new:
                self._queue.enter(own, point, call.state)
            self._step(own, point, call)

    def _step(self, own: Steps, point: int, call: Call) -> None:
        """Emit the result at a point, if it differs from the one before."""
        result = self._queue.result(own, call.state)
        if result != own.last:
            own.last = result
            self._emit_step(own, point, result, Timing.ON_TIME, call)

    def open_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        own = self._steps(state.get(SLOT))
        inside = [*self._queue.chain(own.first, state), *own.pending]
        points = {*own.pending, *own.extra, *(point + self._size for point in inside)}
        return [Window(point - self._size, point) for point in sorted(points)]

    # --- emitting ---------------------------------------------------------------------------------

    def _emit_step(
        self, own: Steps, point: int, result: Any, timing: Timing, call: Call, index: int = 0
    ) -> None:
        self._emit(call, self._window(point), result, timing, index)
        if self._lateness_us:
            own.emitted.append([point, result, index + 1, timing is Timing.ON_TIME])

    def _window(self, point: int) -> Window:
        return within_time(point - self._size, point)

    # --- late records -----------------------------------------------------------------------------

    def _restack(self, own: Steps, call: Call) -> None:
        """Buckets behind the watermark have changed: build the stacks anew, and correct emitted
        steps."""
        watermark = call.times.watermark
        self._queue.rebuild(own, watermark, call.state)
        opened = self._enters(watermark - self._lateness_us)
        if opened <= watermark:
            self._correct(own, opened, call)
        else:
            own.extra = sorted({*own.extra, opened})

    def _correct(self, own: Steps, opened: int, call: Call) -> None:
        """Compare the present steps with the emitted ones from ``opened`` on: before that all is
        final."""
        watermark = call.times.watermark
        self._trim(own, call)
        chain = self._queue.chain(own.kept, call.state)
        buckets = [(point, call.state.get(point)[0]) for point in chain]
        points = {opened, *chain, *(point + self._size for point in chain)}
        current = (point for point in points if opened <= point <= watermark)
        steps = dict(steps_of(buckets, self._size, current, own.base, self._aggregation))
        emitted = {entry[0]: entry for entry in own.emitted}
        own.emitted, result = [], own.base
        for point in sorted({*emitted, *steps}):
            result = steps.get(point, result)
            self._correct_one(own, emitted.get(point), point, result, point in steps, call)
        own.last = result

    def _correct_one(
        self,
        own: Steps,
        emitted: list[Any] | None,
        point: int,
        result: Any,
        stands: bool,
        call: Call,
    ) -> None:
        """``emitted`` is the emitted result at a point, ``result`` the valid one; ``stands``: the
        point is a step now."""
        retracting = self._accumulation is Accumulation.RETRACTING
        if emitted is not None and emitted[1] == result and (stands or not retracting):
            own.emitted.append(emitted)
            return
        count, on_time = (emitted[2], emitted[3]) if emitted is not None else (0, False)
        if emitted is not None and retracting:
            self._take_back(call, self._window(point), emitted[1], count, on_time)
        if stands or not retracting:
            self._emit_step(own, point, result, Timing.LATE, call, count)
            own.emitted[-1][3] = on_time

    # --- state ------------------------------------------------------------------------------------

    def _steps(self, stored: Any) -> Steps:
        if stored is None:
            nothing = self._aggregation.result(self._aggregation.create())
            return Steps(nothing, nothing, self._aggregation.create())
        return stored if type(stored) is Steps else Steps(*stored)

    def _trim(self, own: Steps, call: Call) -> None:
        """Forget buckets and steps that late records cannot change any more."""
        watermark = call.times.watermark
        final = 0
        while final < len(own.emitted) and is_final(
            own.emitted[final][0], watermark, self._lateness_us
        ):
            final += 1
        if final:
            own.base = own.emitted[final - 1][1]
            del own.emitted[:final]
        while own.kept is not None and own.kept != own.first:
            if not is_final(own.kept + self._size, watermark, self._lateness_us):
                return
            self._queue.drop(own, call.state)

    def _store(self, own: Steps, call: Call) -> None:
        if self._lateness_us:
            self._trim(own, call)
        ahead = bool(own.pending or own.extra) or own.first is not None
        if call.times.watermark == MAX_TIME or not (ahead or own.emitted or own.kept is not None):
            self._forget(own, call)
            return
        last = max(
            own.emitted[-1][0] if own.emitted else 0,
            0 if own.kept is None else own.kept + self._size,
        )
        at = min(self._next_point(own) if ahead else last + self._lateness_us, MAX_TIME) - 1
        self._wake(call, own, SLOT, at)
        call.state[SLOT] = own

    def _forget(self, own: Steps, call: Call) -> None:
        """Delete the state of a key: no open window contains a record of it."""
        for point in self._queue.chain(own.kept, call.state):
            del call.state[point]
        self._end(call, own, SLOT, SLOT)
