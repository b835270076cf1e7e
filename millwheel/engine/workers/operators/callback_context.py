"""The Context of the API: the data and actions that a callback has during a call, in one shard."""

from __future__ import annotations

from operator import index
from typing import Any

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.formats.store_layout import STATE, key_prefix
from millwheel.core.model.failures import KINDS
from millwheel.core.model.keys import Key, fitting_key, key_hash
from millwheel.core.model.limits import Limits, over
from millwheel.core.model.records import DeadLetter, Domain
from millwheel.core.model.timers import Due, TimerQueue
from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME, instant
from millwheel.core.pipeline.production_ids import Cause, production_id, remembered
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.core.windows.lateness import is_behind
from millwheel.core.windows.panes import RETRACTION_FIELD, Pane, Retraction
from millwheel.engine.workers.bundle.bundle import UNCARRIABLE, Bundle, kind_in, plain_letter
from millwheel.engine.workers.bundle.record_order import ASIDE_TAG, label_bytes
from millwheel.engine.workers.operators.suspension import Suspension
from millwheel.engine.workers.state.keyed_state import KeyedState
from millwheel.errors import EndlessTimerError, RecordError

_NAME = "\U0010ffffn".encode()  # Fixed: no state of a callback has such a name


class TimerChains:
    """The number of timers that timers have set after the end of the input, for each key of one
    shard: at most ``most``.

    The count is stored with the key's state. So it is that of all owners of the shard, and to undo
    a call undoes its share.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bundle: Bundle | None = None
        self._counted = False
        self.firing: Due | None = None
        """The timer whose call is running."""

    def call(self, due: Due) -> TimerChains:
        """The call of a timer, or another attempt of it, lasts as long as this context."""
        self.firing, self._counted = due, False
        return self

    def __enter__(self) -> None:
        return

    def __exit__(self, *error: object) -> None:
        self.firing = None

    def begin(self, bundle: Bundle) -> None:
        """Start of a bundle, or of another try of it."""
        self.firing, self._bundle = None, bundle

    def add(self, key: Key, tag: str) -> None:
        """Count a timer that a call of a timer sets, perhaps not its first. Raises
        EndlessTimerError."""
        assert self._bundle is not None
        if self._bundle.watermark < MAX_TIME or self.firing is None or self._counted:
            return
        self._counted = True
        overlay, kept_at = self._bundle.overlay, key_prefix(STATE, key, key_hash(key)) + _NAME
        count = int.from_bytes(overlay.get(kept_at) or b"", "big") + 1
        if count > self._most:
            raise EndlessTimerError(
                f"set_timer {tag!r}: timers have set timers {self._most:,} times for this key since"
                f" the input ended (limits.timers_after_end), up to {self.firing.at} µs; let them"
                " stop, or the run never ends"
            )
        overlay.put(kept_at, count.to_bytes(8, "big"))


_LONGEST_COUNTER = 200  # characters of a counter's name
_MOST = 2**63 - 1  # Fixed: of a number of 64 bits
_SYSTEM_COUNTERS = frozenset(("records_in", "records_out", "late", "dead_letters", "duplicates"))


def timer_tag(call: str, tag: Any, most: int, systems: tuple[str, ...] = ("\0",)) -> str:
    """The tag of a timer as plain text of at most ``most`` bytes. ``systems``: how those of the
    system begin."""
    if not isinstance(tag, str):
        raise RecordError(
            f"{call}: the tag of a timer is text, not {type(tag).__name__} {tag!r:.80}"
        )
    text: str = str.__str__(tag)  # a member of an Enum would come back as its text
    if text.startswith(systems):
        raise RecordError(f"{call} {text!r:.80}: the system's own tags begin so; use another text")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as ex:
            raise RecordError(
                f"{call} {text!r:.80}: the tag is not a Unicode text ({ex.reason})"
            ) from ex
    if len(text) * 4 > most and (size := len(text.encode())) > most:
        raise RecordError(over("key", f"{call}: a tag", size, most))
    return text


def timer_domain(call: str, domain: Any) -> Domain:
    """The clock of a timer."""
    if not isinstance(domain, Domain):
        raise RecordError(
            f"{call}: the domain is Domain.EVENT or Domain.PROCESSING, not {domain!r:.80}"
        )
    return domain


def moment(call: str, at: Any) -> int:
    """A time in µs; beyond the first or the last instant, that instant."""
    if type(at) is int and MIN_TIME <= at <= LAST_TIME:
        return at
    try:
        if isinstance(at, bool):
            raise TypeError
        return instant(at)
    except TypeError:
        raise RecordError(
            f"{call}: a time is a whole number of µs since 1970, not {type(at).__name__}"
            f" {at!r:.80}; round(seconds * 1_000_000) makes one"
        ) from None


def counted(name: Any, by: Any) -> tuple[str, int]:
    """The name of a counter, and a whole number of at most 64 bits."""
    if not isinstance(name, str) or name in _SYSTEM_COUNTERS or not name.isidentifier():
        raise RecordError(
            f"count: {name!r:.80} cannot name a counter; use a word of your own, such as 'retries'"
        )
    if len(name) > _LONGEST_COUNTER:
        raise RecordError(
            f"count: a name of {len(name)} characters is too long for a counter; use a word"
        )
    try:
        number = index(by)
    except TypeError:
        raise RecordError(
            f"count {name!r}: a counter counts in whole numbers, not by {type(by).__name__}"
            f" {by!r:.80}; keep sums of other numbers in a ValueState"
        ) from None
    if not -_MOST <= number <= _MOST:
        raise RecordError(f"count {name!r}: {number:.3e} does not fit into 64 bits")
    return str.__str__(name), number


_SYSTEM_TAGS = ("\0", ASIDE_TAG)
"""The beginnings of the tags of the system's own timers."""


class CallbackContext:
    """The Context of one shard, pointed at the current record or timer. ``identified``: productions
    have ids, made of the cause that each call is. ``passes_retractions``: it serves steps and the
    like, not a user's class."""

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
        "suspension",
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
        self.suspension = Suspension()
        """The state of calls that may go on in the next bundle."""
        self.together = False
        """The call may have several records, so a production has no timestamp of its own."""
        self.key: Key = None
        self.label = MIN_TIME
        """The label of the call, where its productions have it, too."""
        self.timestamp = 0
        self.watermark = 0
        self.now = 0
        self.floor = 0

    def begin(self, bundle: Bundle) -> None:
        """Start of a bundle, or of another try of it."""
        self._state.begin(bundle.timers[Domain.EVENT])
        self.chains.begin(bundle)
        self.passed = self.together = False
        self.suspension.begin(bundle.timers)
        self._bundle, self.watermark, self.now, self.floor = (
            bundle,
            bundle.watermark,
            bundle.now_us,
            bundle.floor,
        )

    def point(self, key: Key, timestamp: int, cause: Cause = None) -> None:
        """Begin a call about this key; nothing may be produced before ``timestamp``."""
        self._state.point(key, timestamp)
        self.key, self.timestamp = key, timestamp
        self._cause, self._made = cause, 0
        self.calls += 1

    def as_of(self, watermark: int) -> None:
        """Run the current call as if the watermark (µs) were still there."""
        self.watermark = watermark
        self._state.timestamp = max(self.timestamp, watermark)

    def label_as(self, label: int) -> None:
        """Give the next call this label, and its productions, too."""
        self.label = self._bundle.outputs.label = label

    def produce(
        self, stream: str, value: Any, timestamp: int | None = None, key: Any = None
    ) -> None:
        if stream not in self._outputs:
            raise RecordError(
                f"produce: {stream!r} is not an output of this computation; its outputs:"
                f" {_names(self._outputs)}"
            )
        if timestamp is None:
            if self.together:
                raise RecordError(
                    f"produce to {stream!r} in process_batch needs a timestamp, because records"
                    f" that come together may differ in theirs: ctx.produce({stream!r}, value,"
                    " timestamp=record.timestamp)"
                )
            timestamp = self.timestamp
        elif (timestamp := moment(f"produce to {stream!r}", timestamp)) < self.timestamp:
            raise RecordError(
                f"produce to {stream!r}: timestamp {timestamp} lies {self.timestamp - timestamp} µs"
                f" before the record or timer being processed ({self.timestamp}); a production may"
                " not be earlier than its cause"
            )
        if self._refuses and (
            type(value) is Retraction or (type(value) is dict and RETRACTION_FIELD in value)
        ):
            raise RecordError(
                f"produce to {stream!r}: a callback cannot take back what it produced before,"
                f" because its consumers take each record as one more ({RETRACTION_FIELD} and"
                " Retraction are for results of windows). Produce the new row and let a sink with"
                " mode: upsert replace the old one, or make the change log with a window of"
                " accumulation: retracting"
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

    def produce_columns(self, batch: ColumnBatch) -> None:
        """Add the engine's own results in columns: an attempt that fails does not take them
        back."""
        self._bundle.outputs.produce_columns(batch)

    def refuse(self, letter: DeadLetter) -> None:
        """Send a record that has waited, and for which the engine's own call has no result, to the
        dead letters. An attempt that fails takes it back, as it does the productions of the
        call."""
        outputs = self._bundle.outputs
        outputs.counted += [("dead_letters", 1), (KINDS + kind_in(letter), 1)]
        at = max(letter.timestamp or self.floor, self.floor)
        outputs.produce(DEAD_LETTERS, letter.computation, plain_letter(letter), at)

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
