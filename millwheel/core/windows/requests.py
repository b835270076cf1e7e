"""The requests of a window to the runtime: one timer per clock, and a hold on the output watermark.

Each request is remembered in the window's state and repeated only when it changes. An event-time
timer that is too early is left alone: when it fires, it is set again.
"""

from __future__ import annotations

from millwheel.core.model.records import Domain
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.calls import Call
from millwheel.core.windows.contract import HoldEffect, Slot, TimerEffect, Times, Windowing
from millwheel.core.windows.lateness import final_at_us, is_behind, is_complete
from millwheel.core.windows.state import PAST_ON_TIME, WindowState, share_of, share_tag, tag_of
from millwheel.core.windows.triggers import Default
from millwheel.core.windows.windows import Window


class Requests:
    """The requests of all windows of a machine."""

    def __init__(self, windowing: Windowing) -> None:
        self._trigger = windowing.trigger
        self._clocked = not isinstance(windowing.trigger, Default)
        self._shares = windowing.trigger.shares()
        self._lateness_us = windowing.allowed_lateness

    def collect_at(self, window: Window) -> int:
        """The time after which the state of a window is deleted, once the watermark has passed
        it."""
        return final_at_us(window.end, self._lateness_us)

    def renew(self, slot: Slot, own: WindowState, window: Window, call: Call) -> None:
        """Make the requests that the window needs from here on."""
        complete = is_complete(window.end, call.times.watermark)
        at = self.collect_at(window) if complete else window.end - 1
        if own.timer_at_us is None or own.timer_at_us > at:
            own.timer_at_us = at
            call.effects.timers.append(TimerEffect(call.key, tag_of(slot), Domain.EVENT, at))
        if self._clocked:
            self.renew_clock(slot, own, call)
        if self._shares and not complete:
            self._renew_shares(slot, at, call)
        self._hold(slot, own, self._hold_at(own, window, complete), call)

    def drop(self, slot: Slot, own: WindowState, call: Call) -> None:
        """Withdraw every request."""
        for at, domain in ((own.timer_at_us, Domain.EVENT), (own.clock_at_us, Domain.PROCESSING)):
            if at is not None:
                call.effects.timers.append(TimerEffect(call.key, tag_of(slot), domain, None))
        for share in self._shares:
            call.effects.timers.append(
                TimerEffect(call.key, share_tag(slot, share), Domain.EVENT, None, share)
            )
        self._hold(slot, own, None, call)

    def clocks_of(self, own: WindowState, tag: str, domain: Domain, at: int, times: Times) -> Times:
        """The clocks of a timer call: the timer's own clock has passed its time."""
        if share_of(tag) is not None:
            return times
        if domain is Domain.EVENT:
            own.timer_at_us = (
                None if own.timer_at_us is not None and own.timer_at_us <= at else own.timer_at_us
            )
            return Times(max(times.watermark, at + 1), times.now_us, times.percentiles)
        own.clock_at_us = None
        return Times(times.watermark, max(times.now_us, at + 1), times.percentiles)

    def renew_clock(self, slot: Slot, own: WindowState, call: Call) -> None:
        wake = (
            MAX_TIME if own.trigger is None else self._trigger.wake(own.trigger, call.times.now_us)
        )
        at = None if wake >= MAX_TIME else wake - 1
        if at != own.clock_at_us:
            own.clock_at_us = at
            call.effects.timers.append(TimerEffect(call.key, tag_of(slot), Domain.PROCESSING, at))

    def _renew_shares(self, slot: Slot, at: int, call: Call) -> None:
        """Set timers for the percentile watermarks that have not passed the end yet. They are
        computed each time, because they have no state."""
        for share in self._shares:
            passed = call.times.percentiles.get(share)
            if passed is None or not is_behind(at, passed):
                call.effects.timers.append(
                    TimerEffect(call.key, share_tag(slot, share), Domain.EVENT, at, share)
                )

    def _hold_at(self, own: WindowState, window: Window, complete: bool) -> int | None:
        """The time to hold for a pane that is not emitted yet: it must not fall behind the output
        watermark. Until the end of the window, the timer prevents it."""
        if not own.fresh:
            return None
        if own.output_at_us is not None:
            return min(own.output_at_us, window.end - 1)
        return window.end - 1 if complete and not own.flags & PAST_ON_TIME else None

    def _hold(self, slot: Slot, own: WindowState, at: int | None, call: Call) -> None:
        if at != own.held_at_us:
            own.held_at_us = at
            call.effects.holds.append(HoldEffect(call.key, tag_of(slot), at))
