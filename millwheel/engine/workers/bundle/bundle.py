"""One bundle of a shard: its input and its output, all committed together."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from millwheel.adapters.secret_values import masked
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.formats.codec import (
    MOST_NESTING,
    encode_value,
    nests_too_deeply,
    stream_decoder,
)
from millwheel.core.model.failures import (
    KINDS,
    CallKind,
    First,
    chained_counter,
    encodable,
    kind_of,
    printable,
    shown,
)
from millwheel.core.model.keys import Key
from millwheel.core.model.names import whole_of
from millwheel.core.model.records import DeadLetter, Domain
from millwheel.core.model.timers import Due, TimerQueue
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.engine.workers.delivery.inbox import Arrival, parted
from millwheel.engine.workers.delivery.outbox import OutputChunk
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.tracing.traced_bundle import TracedBundle
from millwheel.errors import InvariantError

UNCARRIABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""The errors of encoders for values that no bytes can carry."""
_COUNTED = "\0counted"
_decoded = stream_decoder({})
_LETTER_STATE_BYTES = 1 << 20
"""State of at most this size goes into a dead letter whole."""
_BEGINNING = 10_000  # characters of a value that a dead letter shows
_MOST_TIMERS = 100_000
"""The most event-time timers that fire before the records of a bundle, even if each sets the
next."""
ALL = sys.maxsize  # Fixed: more records than there are
_MOST_SHARE = 0.5  # else the first records, if they are the heavy ones, would be tried many times
_WORDS = 300  # characters of a failure that the log shows
RECORD, TIMER, WINDOW, LINE = "record", "timer", "window", "line"
"""The subjects of calls."""


def keys_of(stream: str) -> str:
    """The subject of computing the key of a stream's record."""
    return f"key of {stream}"


def records_of(stream: str) -> str:
    """The subject of a call about a stream's record in the shards of the computation that made
    it."""
    return f"record of {stream}"


class Outputs:
    """The productions of a bundle, by stream, in order. Values are encoded immediately, so a later
    change of an object does not change productions."""

    def __init__(self) -> None:
        self.streams: dict[str, Produced] = {}
        self.columns: list[ColumnBatch] = []
        self.groups: list[AnyBatch] = []
        self.counted: list[tuple[str, int]] = []
        self.count = 0
        self.makers: dict[str, str] = {}
        """The chained computation that has filled each stream, if one has."""
        self.label: int | None = None
        """The label of the call whose productions come next (None: productions of this node have no
        labels)."""

    def produce(
        self, stream: str, key: Key, value: Any, timestamp: int, identity: bytes = b""
    ) -> None:
        """Add one production. ``identity`` is the id of a weak one; without it, duplicates are not
        noticed. Raises one of UNCARRIABLE for a value that cannot be sent."""
        produced = self.streams.get(stream)
        if produced is None:
            produced = self.streams[stream] = Produced()
        data = encode_value(value)
        if len(data) > MOST_NESTING and stream != DEAD_LETTERS and nests_too_deeply(data):
            raise ValueError(f"it nests more than {MOST_NESTING} levels deep")
        produced.raws.append(msgspec.Raw(data))
        produced.keys.append(key)
        produced.timestamps.append(timestamp)
        produced.ids.append(identity)
        if self.label is not None:
            produced.labels.append(self.label)
        self.count += 1

    def produce_columns(self, batch: ColumnBatch) -> None:
        """Add productions in columns; they are not numbered yet."""
        if len(batch):
            self.columns.append(batch)
            self.count += len(batch)

    def produce_groups(self, batch: AnyBatch) -> None:
        """Add groups that go to a consumer in place of records; they are not numbered yet."""
        if len(batch):
            self.groups.append(batch)
            self.count += len(batch)

    def add(self, other: Outputs) -> None:
        """Add the productions of another part of the same bundle, behind those that are here."""
        for stream, more in other.streams.items():
            produced = self.streams.setdefault(stream, Produced())
            for own, added in zip(produced.columns(), more.columns(), strict=True):
                own += added
            # Of columns of different lengths, a value goes out under the key of another one.
            if len(produced.raws) != len(produced.timestamps):
                raise InvariantError(f"{stream}: values and times of productions differ in number")
        self.columns += other.columns
        self.makers |= other.makers
        self.count += other.count

    def lengths(self) -> dict[str, int]:
        """The number of productions, by stream."""
        return {stream: len(produced.raws) for stream, produced in self.streams.items()}

    def mark(self) -> dict[str, int]:
        """The mark that :meth:`cut_to` can return to."""
        return {**self.lengths(), _COUNTED: len(self.counted)}

    def cut_to(self, mark: dict[str, int]) -> None:
        """Undo the productions and counts since the mark."""
        del self.counted[mark.get(_COUNTED, 0) :]
        for stream, produced in self.streams.items():
            length = mark.get(stream, 0)
            # A mark beyond these productions was made of another bundle.
            if length > len(produced.raws):
                raise InvariantError(f"{stream}: {length} productions are kept of fewer")
            self.count -= len(produced.raws) - length
            for column in produced.columns():
                del column[length:]


@dataclass(slots=True)
class Produced:
    """The productions of one stream as parallel columns."""

    raws: list[Any] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    """As long as the others, or empty."""

    def columns(self) -> Iterator[list[Any]]:
        """All of its columns."""
        yield from (self.raws, self.keys, self.timestamps, self.ids)
        if self.labels:
            yield self.labels

    def leave_out(self, indexes: Sequence[int]) -> None:
        """Take back some of them."""
        for column in self.columns():
            for index in reversed(indexes):
                del column[index]

    @property
    def decoded(self) -> list[Any]:
        """The values as they were produced, for the extraction of keys: the objects may have
        changed since."""
        return _decoded("", self.raws)


@dataclass(slots=True)
class Bundle:
    """The input of an operator, and its output.

    ``number`` is the number of its commit. ``chunks`` are reads of a source, which need no
    checkpoint. ``commit_before_sending`` makes the chunks wait for this bundle's commit, because
    the read depended on something that a second reading may not repeat; otherwise nothing waits for
    a commit of ``positions_only``. ``due`` are the timers that have fired, at most about
    ``most_timers`` of each domain; ``fired_more`` counts the windows that fired with them beyond
    one each, which are as much work. ``floor`` is the earliest timestamp of productions without an
    input record (from a processing-time timer). ``tried`` counts calls by subject, ``failures``
    those that failed by kind, and ``firsts`` has the first failure of each kind in words.
    ``traced`` are its traced records, if it has any. ``most`` is how many of its records are taken
    (None: all; ALL: and it must not be fewer), see :meth:`shorten`.
    """

    number: int
    now_us: int
    watermark: int
    arrivals: list[Arrival]
    overlay: Overlay
    timers: dict[Domain, TimerQueue]
    outputs: Outputs = field(default_factory=Outputs)
    counters: dict[str, int] = field(default_factory=dict)
    chunks: list[OutputChunk] = field(default_factory=list)
    due: list[Due] = field(default_factory=list)
    most_timers: int = _MOST_TIMERS
    fired_more: int = 0
    clock: int = MIN_TIME
    floor: int = 0
    commit_before_sending: bool = False
    positions_only: bool = False
    tried: dict[str, int] = field(default_factory=dict)
    failures: dict[CallKind, int] = field(default_factory=dict)
    firsts: dict[str, First] = field(default_factory=dict)
    replayed: dict[bytes, list[Any]] = field(default_factory=dict)
    traced: TracedBundle | None = None
    most: int | None = None

    def shorten(self, share: float) -> bool:
        """Take only the first of the records, about this share of them; the others wait for the
        next bundle. False where that cannot be done. Nothing must have been made of them."""
        count = sum(len(arrival.batch) for arrival in self.arrivals)
        # earlier notes about a record must not be made again
        noted = any(not each.channel or each.batch.ids is not None for each in self.arrivals)
        if self.most == ALL or noted or count < 2:
            return False
        self.most = max(int(count * min(share, _MOST_SHARE)), 1)
        self.arrivals, _ = parted(self.arrivals, self.most)
        if self.traced is not None:
            self.traced.shorten([len(arrival.batch) for arrival in self.arrivals])
        self.try_(RECORD, self.most - count)
        return True

    @property
    def passed(self) -> int:
        """The time that the input watermark has passed: at least the floor, and below the end of
        time."""
        return max(self.floor, self.watermark) if self.watermark < MAX_TIME else self.floor

    def fires(self, domain: Domain) -> Iterator[Due]:
        """The timers that the clock of a domain has passed, in their order, each removed just
        before it fires: its call may move or cancel the next."""
        return self._event_timers() if domain is Domain.EVENT else self._processing_timers()

    def _event_timers(self) -> Iterator[Due]:
        """The timers by event time, with those that are set meanwhile for a time that the watermark
        has passed already. Had it risen in smaller steps they would have fired, too, before the
        records that are here now."""
        queue = self.timers[Domain.EVENT]
        while self.room and (timer := queue.pop_due(max(self.watermark, self.clock))) is not None:
            self.due.append(timer)
            yield timer

    @property
    def room(self) -> int:
        """The number of timers that may still fire before the records of the bundle."""
        most = max(self.most_timers, _MOST_TIMERS) if self.arrivals else self.most_timers
        return max(most - len(self.due) - self.fired_more, 0)

    def _processing_timers(self) -> Iterator[Due]:
        """Timers that are set meanwhile wait for the next bundle, so that one that always sets
        itself blocks nothing."""
        queue = self.timers[Domain.PROCESSING]
        due: list[Due] = []
        clock = MAX_TIME if self.watermark == MAX_TIME else self.now_us
        # Of this domain alone: event timers that wait for a suspended record fill their part of
        # each bundle, until the timer here has let it go on.
        while len(due) < self.most_timers and (timer := queue.pop_due(clock)) is not None:
            due.append(timer)
        for timer in due:
            queue.set(timer.key, timer.tag, timer.at, timer.cause)
        for timer in due:
            if queue.get(timer.key, timer.tag) == timer.at:
                queue.cancel(timer.key, timer.tag)
                self.due.append(timer)
                yield timer

    def count(self, name: str, by: int = 1) -> None:
        """Add to a durable counter of the shard."""
        self.counters[name] = self.counters.get(name, 0) + by

    def take_counts(self) -> None:
        """Make the callbacks' counters part of the commit, and count all timers as tried. The
        bundle has run."""
        for name, by in self.outputs.counted:
            self.count(name, by)
        self.outputs.counted.clear()
        self.try_(TIMER, len(self.due))

    def try_records(self) -> None:
        """Count all records as tried. Operators take them out of ``arrivals``, so this comes before
        the bundle runs; an operator that takes groups adds the records that they stand for."""
        self.try_(RECORD, sum([len(arrival.batch) for arrival in self.arrivals]))

    def remember(self, key: Any, value: Any, timestamp: int, history: list[Any]) -> None:
        """Note a record of this step that was a dead letter before."""
        self.replayed[_likeness(key, value, timestamp)] = history

    def try_(self, what: str, count: int = 1) -> None:
        """Count tried calls with this subject."""
        self.tried[what] = self.tried.get(what, 0) + count

    def fail(self, letter: DeadLetter, what: str) -> str:
        """Count a failed call with this subject; returns the kind of the failure."""
        call = CallKind(letter.computation, what)
        self.failures[call] = self.failures.get(call, 0) + 1
        kind = kind_in(letter)
        if kind not in self.firsts:
            self.firsts[kind] = First(letter.computation, kind, in_words(letter))
        return kind

    def add(self, part: Bundle, node: str = "", taken: str = "") -> None:
        """Take over the results of a part of it. The calls of a chained ``node`` for records of the
        stream ``taken`` are counted under the name of that node, and as calls about these."""
        for stream in (*part.outputs.streams, *(each.stream for each in part.outputs.columns)):
            if node:
                part.outputs.makers[whole_of(stream)] = node
        self.outputs.add(part.outputs)
        for name, by in part.counters.items():
            self.count(chained_counter(node, name) if node else name, by)
        for what, count in part.tried.items():
            self.try_(records_of(taken) if taken and what == RECORD else what, count)
        for call, count in part.failures.items():
            what = records_of(taken) if taken and call.what == RECORD else call.what
            kind = CallKind(call.judged, what)
            self.failures[kind] = self.failures.get(kind, 0) + count
        for name, first in part.firsts.items():
            self.firsts.setdefault(name, first)

    def dead_letter(
        self,
        letter: DeadLetter,
        timestamp: int,
        identity: object = None,
        what: str = RECORD,
        maker: str = "",
    ) -> None:
        """Send a record to the dead-letter stream, with the commit, and count it: a call about
        ``what`` failed. ``identity`` is the basis of a weak production's id. ``maker``: the chained
        node whose record it is ("": that of the shard)."""
        for name in ("dead_letters", KINDS + self.fail(letter, what)):
            self.count(chained_counter(maker, name) if maker else name)
        letter.what = letter.what or what
        if self.replayed:
            letter.history = self.replayed.pop(
                _likeness(letter.key, letter.value, letter.timestamp), []
            )
        key = b"" if identity is None else encode_value(("dead", identity))
        self.outputs.produce(DEAD_LETTERS, letter.computation, plain_letter(letter), timestamp, key)


def kind_in(letter: DeadLetter) -> str:
    """The kind under which a letter is counted."""
    return kind_of(letter.error, letter.location, masked(letter.reason))


def in_words(letter: DeadLetter) -> str:
    """The text about a failure for the user."""
    where = (
        f"{letter.location}; "
        if letter.location
        else f"{letter.position}; "
        if letter.position
        else ""
    )
    about = (
        f"key {shown(letter.key, _WORDS)}"
        if letter.key is not None
        else f"record {shown(letter.value, _WORDS)}"
    )
    return printable(f"{masked(letter.reason)[:_WORDS]} ({where}{masked(about)[:_WORDS]})")


def _likeness(key: Any, value: Any, timestamp: int | None) -> bytes:
    """The identity of a record in a letter."""
    try:
        return encode_value([key, value, timestamp])
    except UNCARRIABLE:
        return b""


def _raw(letter: DeadLetter) -> str:
    """Key and value as they are, where JSON would change them; "" where it does not, or nothing can
    carry them."""
    try:
        data = encode_value([letter.key, letter.value])
        plain = msgspec.msgpack.decode(data)
        same = msgspec.json.decode(msgspec.json.encode(plain)) == plain
    except UNCARRIABLE:
        return ""
    return "" if same else b64encode(data).decode()


def plain_letter(letter: DeadLetter) -> Any:
    """The letter as plain data; a value that msgpack cannot carry becomes its repr: a dead letter
    must never fail. It is kept, so no secret is in the words of an error."""
    letter.raw = _raw(letter)
    for name in ("reason", "exception", "location", "position", "error"):
        setattr(letter, name, encodable(masked(getattr(letter, name))))
    for name in ("key", "value", "state"):
        try:
            data = encode_value(getattr(letter, name))
            if nests_too_deeply(data):
                raise ValueError
            setattr(letter, name, msgspec.to_builtins(getattr(letter, name)))
            if name == "state" and len(data) > _LETTER_STATE_BYTES:
                letter.state = {"size": len(data), "begins": beginning(letter.state)}
        except UNCARRIABLE:
            value = beginning(getattr(letter, name))
            setattr(letter, name, {"repr": value} if name == "state" else value)
    return msgspec.to_builtins(letter)


def beginning(value: Any) -> str:
    """The beginning of a value that is too large to be kept whole."""
    return shown(value, _BEGINNING)


class Hold(NamedTuple):
    """A hold on a shard's watermark: no output before ``at`` can come (MAX_TIME: nothing holds it).
    A source that is silent holds nothing (IDLE_TIME); ``idle_us`` is how far its silence may move
    the watermark while all other sources are silent, too."""

    at: int = MAX_TIME
    holder: str = ""
    idle_us: int = MIN_TIME
