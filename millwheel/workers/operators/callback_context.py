"""The Context of the API: the data and actions that a callback has during a call, in one shard."""

from __future__ import annotations

from typing import Any

from millwheel.core.model.keys import Key, fitting_key
from millwheel.core.model.limits import Limits
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.production_ids import Cause, production_id, remembered
from millwheel.core.windows.lateness import is_behind
from millwheel.core.windows.panes import RETRACTION_FIELD, Pane, Retraction
from millwheel.errors import RecordError
from millwheel.workers.bundle.bundle import UNCARRIABLE, Bundle
from millwheel.workers.bundle.call_checks import counted, moment, timer_domain, timer_tag
from millwheel.workers.operators.timer_chains import TimerChains
from millwheel.workers.order.positions import ASIDE_TAG, label_bytes
from millwheel.workers.state.keyed_state import KeyedState

_SYSTEM_TAGS = ("\0", ASIDE_TAG)
"""How the tags of the system's own timers begin."""


class CallbackContext:
    """The Context of one shard, pointed at the current record or timer. ``identified``: productions have ids, made of
    the cause that each call is. ``passes_retractions``: it serves steps and the like, not a class of the user's."""

    __slots__ = (
        "_bundle",
        "_cause",
        "_limits",
        "_made",
        "_outputs",
        "_refuses",
        "_state",
        "calls",
        "chains",
        "floor",
        "identified",
        "key",
        "label",
        "now",
        "pane",
        "passed",
        "timestamp",
        "together",
        "watermark",
    )

    def __init__(
        self,
        outputs: frozenset[str],
        state: KeyedState,
        limits: Limits,
        identified: bool = False,
        passes_retractions: bool = False,
    ) -> None:
        self._refuses = not passes_retractions
        self._outputs = outputs
        self._limits = limits
        self._state = state
        self._bundle: Bundle
        self.identified = identified
        self._cause: Cause = None
        self._made = 0
        self.calls = 0
        self.chains = TimerChains(limits.chain)
        self.passed = False
        """A timer was set for a time that the watermark has passed already."""
        self.pane: Pane | None = None
        self.together = False
        """The call may have several records, so a production has no timestamp of its own."""
        self.key: Key = None
        self.label = MIN_TIME
        """Of the call, where its productions have it, too."""
        self.timestamp = 0
        self.watermark = 0
        self.now = 0
        self.floor = 0

    def begin(self, bundle: Bundle) -> None:
        """Start of a bundle, or of another try of it."""
        self._state.begin(bundle.timers[Domain.EVENT])
        self.chains.begin(bundle)
        self.passed = self.together = False
        self._bundle, self.watermark, self.now, self.floor = bundle, bundle.watermark, bundle.now_us, bundle.floor

    def point(self, key: Key, timestamp: int, cause: Cause = None) -> None:
        """The next call is about this key; nothing may be produced before ``timestamp``."""
        self._state.point(key, timestamp)
        self.key, self.timestamp = key, timestamp
        self._cause, self._made = cause, 0
        self.calls += 1

    def label_as(self, label: int) -> None:
        """The next call has this label, and so have its productions."""
        self.label = self._bundle.outputs.label = label

    def produce(self, stream: str, value: Any, timestamp: int | None = None, key: Any = None) -> None:
        if stream not in self._outputs:
            raise RecordError(
                f"produce: {stream!r} is no output of this computation; its outputs: {_names(self._outputs)}"
            )
        if timestamp is None:
            if self.together:
                raise RecordError(
                    f"produce to {stream!r} in process_batch needs a timestamp, because records that come together may "
                    f"differ in theirs: ctx.produce({stream!r}, value, timestamp=record.timestamp)"
                )
            timestamp = self.timestamp
        elif (timestamp := moment(f"produce to {stream!r}", timestamp)) < self.timestamp:
            raise RecordError(
                f"produce to {stream!r}: timestamp {timestamp} lies {self.timestamp - timestamp} µs before the record "
                f"or timer being processed ({self.timestamp}); a production may not be earlier than its cause"
            )
        if self._refuses and (type(value) is Retraction or (type(value) is dict and RETRACTION_FIELD in value)):
            raise RecordError(
                f"produce to {stream!r}: a callback cannot take back what it produced before, because its consumers "
                f"take each record as one more ({RETRACTION_FIELD} and Retraction are for results of windows). Produce "
                "the new row and let a sink with mode: upsert replace the old one, or make the change log with a "
                "window of accumulation: retracting"
            )
        identity = b""
        if self._cause is not None:
            identity = production_id(self._cause, self._made)
            self._made += 1
        key = self.key if key is None else fitting_key(key, self._limits.key)
        try:
            self._bundle.outputs.produce(stream, key, value, timestamp, identity)
        except UNCARRIABLE as ex:
            raise RecordError(f"produce to {stream!r}: the value cannot be sent: {ex}") from ex

    def set_timer(self, tag: str, at: int, domain: Domain = Domain.EVENT) -> None:
        queue = self._bundle.timers[timer_domain("set_timer", domain)]
        stored, at = self._named("set_timer", tag), moment("set_timer", at)
        if len(queue) >= self._limits.timers:
            self._check_timers(queue, tag, stored)
        if self.chains.firing is not None:
            self.chains.add(self.key, tag)
        cause = label_bytes(self.label) if at < self.label else b""
        queue.set(self.key, stored, at, remembered(self._cause) if self.identified else cause)
        if is_behind(at, self.watermark) and domain is Domain.EVENT:
            self.passed = self._state.unsettled = True

    def owns(self, tag: str) -> bool:
        """Whether a timer of this tag was set by the callback, and not by the system."""
        return not tag.startswith(_SYSTEM_TAGS)

    def _named(self, call: str, tag: Any) -> str:
        """The tag of a callback's timer as it is stored."""
        return timer_tag(call, tag, self._limits.key, _SYSTEM_TAGS)

    def _check_timers(self, queue: TimerQueue, tag: str, stored: str) -> None:
        most = self._limits.timers
        if queue.waiting(self.key, self.owns) >= most and queue.get(self.key, stored) is None:
            raise RecordError(
                f"set_timer {tag!r}: {most} timers of this key wait already, which is "
                "limits.timers_per_key; use fewer tags: setting a timer again moves it"
            )

    def cancel_timer(self, tag: str, domain: Domain = Domain.EVENT) -> None:
        queue = self._bundle.timers[timer_domain("cancel_timer", domain)]
        queue.cancel(self.key, self._named("cancel_timer", tag))

    def count(self, name: str, by: int = 1) -> None:
        self._bundle.outputs.counted.append(counted(name, by))


def _names(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"
