"""Callbacks that did not return, and records that end their worker: a note is kept of each, and it
is not repeated.

The note about a call is durable before its worker ends, so the next owner of the shard finds it.
That about a death is written by the process that started the worker, once it has seen how the
worker ended (``work_note.py``): two deaths make the records of the shard run one by one, and a
record that was alone in progress at two further ones is put aside.

A record is identified by its number in its channel (or by its id), a timer by key, tag and time, a
window by key and bounds. Once the call's input is processed, its number is below the channel's mark
or its timer is gone, so a note about it, from any incarnation, has no further effect.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
from xxhash import xxh3_128_hexdigest

from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.names import ChannelName, NodeName, ShardName, Token
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.records import Batch
from millwheel.core.model.timers import Due
from millwheel.engine.workers.bundle.bundle import RECORD, Bundle
from millwheel.engine.workers.bundle.work_note import DoingNote, InProgress, cut
from millwheel.errors import CorruptionError

_log = logging.getLogger(__name__)
T = TypeVar("T")


_FAST = 2
"""Deaths with several records of a shard in progress, after which its records run one by one."""
_ALONE = 2
"""Deaths with a record alone in progress, after which it becomes a dead letter."""
_LEAST_LONE = 1_000
"""The least number of records that run one by one; twice those in progress, if more: they may come
in another order."""

TOGETHER_MARK = encode_value(("b",))
"""The mark of a call that has several records. It identifies none of them: from then on each record
has its own call."""


class Hang(msgspec.Struct, frozen=True):
    """A call that did not return, or a death: then ``ended`` describes how the worker ended.
    ``mark`` identifies its input (b"": it cannot be recognized again, or more than one was in
    progress), ``where`` is the line of the user's code. A death concerns ``records`` of the shards
    that have keys from ``lo`` to ``hi`` (hexadecimal)."""

    node: NodeName
    shard: ShardName
    token: Token
    what: str
    key: str
    mark: bytes
    where: str
    timeout: str = ""
    ended: str = ""
    records: int = 0
    lo: str = "0"
    hi: str = "0"

    @property
    def reason(self) -> str:
        """The text about it, behind the name of the code."""
        if self.ended:
            return (
                f"the worker {self.ended} each time this {self.what} was processed, {_ALONE} times"
                " alone"
            )
        return f"did not return within {self.timeout} on this {self.what} (callback_timeout)"


class _Sealed(msgspec.Struct, frozen=True):
    checksum: str
    hang: msgspec.Raw


def encode_hang(hang: Hang) -> bytes:
    """A note, as JSON with a checksum: a damaged mark would meet another record."""
    body = msgspec.json.encode(hang)
    return msgspec.json.encode(_Sealed(xxh3_128_hexdigest(body), msgspec.Raw(body)))


def decode_hang(data: bytes) -> Hang:
    """The inverse of :func:`encode_hang`; CorruptionError when the bytes are not a note."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        body = bytes(sealed.hang)
        if xxh3_128_hexdigest(body) != sealed.checksum:
            raise CorruptionError("a note about a callback that did not return fails its checksum")
        return msgspec.json.decode(body, type=Hang)
    except DAMAGE as ex:
        raise CorruptionError(
            f"{len(data)} bytes are not a note about a callback that did not return: {ex}"
        ) from ex


class Notes(Protocol):
    """The durable store of notes."""

    def write(self, node: NodeName, data: bytes) -> None: ...

    def read(self, node: NodeName) -> Mapping[str, bytes]:
        """Contents by name."""

    def remove(self, node: NodeName, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Doing:
    """The subject of a call of user code."""

    what: str
    key: Any
    mark: bytes


class Watched(Protocol):
    """An operator whose calls are watched."""

    def busy(self) -> bool:
        """True while user code may be running."""

    def progress(self) -> tuple[int, int]:
        """Changes with every call."""

    def doing(self) -> Doing | None:
        """The subject of the running call. Any thread, as long as the call does not return."""

    def avoid(self, avoided: Avoided) -> None:
        """Do not repeat the calls in these notes."""


def record_mark(batch: Batch, channel: ChannelName, index: int) -> bytes:
    """The identity of a record; b"" if it has neither number nor id."""
    if batch.seqs:
        return encode_value(("r", channel, batch.seqs[index]))
    record_id = None if batch.ids is None else batch.ids[index]
    return b"" if record_id is None else encode_value(("i", record_id))


def timer_mark(due: Due) -> bytes:
    """The identity of a timer."""
    return encode_value(("t", due.domain.value, due.key, due.tag, due.at))


@dataclass(slots=True)
class Avoided:
    """The calls that one shard must not repeat. ``settled`` gets the marks whose dead letters are
    durable. ``apart``: a call with several records did not return. ``lone``: the number of records
    still to run one by one, because their workers died on their own; ``doing`` is where each of
    them is noted, and ``deaths`` are the names of the notes that have made it so, which ``passed``
    gets once that is over."""

    hangs: dict[bytes, Hang] = field(default_factory=dict)
    settled: queue.SimpleQueue[tuple[NodeName, bytes]] = field(default_factory=queue.SimpleQueue)
    apart: bool = False
    lone: int = 0
    deaths: tuple[str, ...] = ()
    passed: queue.SimpleQueue[tuple[NodeName, tuple[str, ...]]] = field(
        default_factory=queue.SimpleQueue
    )
    doing: DoingNote | None = None
    about: InProgress | None = None
    _channels: dict[str, list[int]] = field(default_factory=dict)
    _others: bool = False
    _waiting: list[tuple[int, Hang]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.apart = self.hangs.pop(TOGETHER_MARK, None) is not None or self.apart
        for mark in self.hangs:
            kind, *rest = decode_value(mark)
            if kind == "r":
                self._channels.setdefault(rest[0], []).append(rest[1])
            else:
                self._others = True

    def may_meet(self, batches: Sequence[tuple[str, Batch]]) -> bool:
        """Whether a bundle with these arrivals, by channel, must look at each call."""
        if not self.hangs:
            return False
        return self._others or any(
            batch.seqs and batch.seqs[0] <= seq <= batch.seqs[-1]
            for channel, batch in batches
            for seq in self._channels.get(channel, ())
        )

    def meet(self, mark: bytes, number: int) -> Hang | None:
        """The note about the next call, which becomes a dead letter of the bundle of commit
        ``number``."""
        hang = self.hangs.pop(mark, None)
        if hang is not None:
            self._waiting.append((number, hang))
            self._others = any(decode_value(mark)[0] != "r" for mark in self.hangs)
        return hang

    def alone(self, mark: bytes, what: str, key: object) -> bytes:
        """Note, before it runs, that this alone is in progress. Returns what :meth:`over` needs."""
        if self.doing is None or self.about is None:
            return b""
        return self.doing.put(
            msgspec.structs.replace(self.about, mark=mark, what=what, key=cut(key))
        )

    def begin(self, bundle: Bundle) -> bytes:
        """Note that a bundle is in progress. Returns what :meth:`over` needs."""
        if self.doing is None:
            return b""
        arrivals = bundle.arrivals
        if self.lone and len(arrivals) == 1 and len(arrivals[0].batch) == 1:
            batch = arrivals[0].batch.rows()
            return self.alone(record_mark(batch, arrivals[0].channel, 0), RECORD, batch.keys[0])
        return self.together(sum([len(arrival.batch) for arrival in arrivals]))

    def together(self, records: int) -> bytes:
        """Note that a bundle of ``records`` records is in progress. Returns what :meth:`over`
        needs."""
        if self.doing is None or self.about is None:
            return b""
        return self.doing.put(msgspec.structs.replace(self.about, records=records))

    def over(self, before: bytes) -> None:
        """Note that it has run."""
        if self.doing is not None:
            self.doing.back(before)

    def ran_alone(self, records: int) -> None:
        """Count records that have run one by one, and whose commits are durable."""
        if 0 < self.lone <= records:
            assert self.about is not None
            self.passed.put((self.about.node, self.deaths))
            self.deaths = ()
        self.lone = max(self.lone - records, 0)

    def durable(self, number: int) -> None:
        """Note that the commit is durable, so that notes about its dead letters are no longer
        needed."""
        while self._waiting and self._waiting[0][0] <= number:
            _, hang = self._waiting.pop(0)
            self.settled.put((hang.node, hang.mark))


@dataclass(frozen=True, slots=True)
class LeasedShard:
    """A shard of a node, under a token."""

    node: NodeName
    shard: ShardName
    token: Token


@dataclass(frozen=True, slots=True)
class NotedHangs:
    """The hangs and deaths of one shard, by the notes about its node."""

    hangs: dict[bytes, Hang] = field(default_factory=dict)
    apart: bool = False
    lone: int = 0
    deaths: tuple[str, ...] = ()


def noted_hangs(notes: Mapping[str, Hang], entry: ShardEntry, after: int) -> NotedHangs:
    """The hangs and deaths that follow from notes, by their names. A call that hung ``after`` times
    is avoided."""
    marks: dict[bytes, list[Hang]] = {}
    for hang in notes.values():
        marks.setdefault(hang.mark, []).append(hang)
    marks.pop(b"", None)
    avoided = {mark: hangs[-1] for mark, hangs in marks.items() if _is_enough(hangs, after)}
    # By keys and not by the name of the shard: it may have been split or merged since.
    deaths = {
        name: hang
        for name, hang in notes.items()
        if hang.ended and int(hang.lo, 16) < entry.range.hi and entry.range.lo < int(hang.hi, 16)
    }
    if len(deaths) < _FAST:
        return NotedHangs(avoided)
    lone = max(_LEAST_LONE, *(2 * hang.records for hang in deaths.values()))
    return NotedHangs(avoided, True, lone, tuple(deaths))


def _is_enough(hangs: Sequence[Hang], after: int) -> bool:
    deaths = sum(bool(hang.ended) for hang in hangs)
    return deaths >= _ALONE or len(hangs) - deaths >= after or hangs[-1].mark == TOGETHER_MARK


class Hangs:
    """All notes that concern the shards of one worker, and the operators that are watched. A call
    that hung ``after`` times is avoided."""

    def __init__(self, notes: Notes, after: int, doing: DoingNote | None = None) -> None:
        self._doing = doing
        self._passed: queue.SimpleQueue[tuple[NodeName, tuple[str, ...]]] = queue.SimpleQueue()
        self._notes = notes
        self._after = after
        self._noted_hangs: dict[tuple[str, int], NotedHangs] = {}
        self._settled: queue.SimpleQueue[tuple[NodeName, bytes]] = queue.SimpleQueue()
        self._watched: WeakValueDictionary[LeasedShard, Any] = WeakValueDictionary()

    def read_notes(self, node: NodeName, entry: ShardEntry) -> None:
        """Read the notes of earlier owners, before the shard is opened (any thread)."""
        self._noted_hangs[entry.shard, entry.token] = noted_hangs(
            dict(self._read(node)), entry, self._after
        )

    def watch(self, watched: Watched | None, node: NodeName, entry: ShardEntry) -> Avoided:
        """Watch an opening shard if its operator calls user code, and give it the calls to
        avoid."""
        noted = self._noted_hangs.pop((entry.shard, entry.token), NotedHangs())
        lo, hi = f"{entry.range.lo:x}", f"{entry.range.hi:x}"
        about = InProgress(node, entry.shard, entry.token, lo, hi)
        parts = (
            noted.apart,
            noted.lone,
            noted.deaths,
            self._passed,
            self._doing,
            about,
        )
        avoided = Avoided(noted.hangs, self._settled, *parts)
        if watched is not None:
            watched.avoid(avoided)
            self._watched[LeasedShard(node, entry.shard, entry.token)] = watched
        return avoided

    def watched(self) -> Iterator[tuple[LeasedShard, Watched]]:
        """The operators of open shards."""
        return iter(list(self._watched.items()))

    def write(self, hang: Hang) -> None:
        """Note that a call did not return; durable."""
        self._notes.write(hang.node, encode_hang(hang))

    def tidy(self) -> None:
        """Remove the notes that have served. May block. Removals that the root fails to do are done
        by a later call."""
        _each(self._passed, self._remove_passed)
        _each(self._settled, self._remove_settled)

    def _remove_passed(self, passed: tuple[NodeName, tuple[str, ...]]) -> None:
        node, names = passed
        for name in names:
            self._notes.remove(node, name)

    def _remove_settled(self, settled: tuple[NodeName, bytes]) -> None:
        node, mark = settled
        for name, hang in self._read(node):
            if hang.mark == mark:
                self._notes.remove(node, name)

    def _read(self, node: NodeName) -> Iterator[tuple[str, Hang]]:
        """The notes about a computation. Unreadable notes are logged and ignored, so that no shard
        waits for them."""
        for name, data in self._notes.read(node).items():
            try:
                hang = decode_hang(data)
                if hang.mark:
                    decode_value(hang.mark)
            except (CorruptionError, *DAMAGE) as ex:
                _log.warning("the note %s of %s is ignored: %s", name, node, ex)
            else:
                yield name, hang


def _each(waiting: queue.SimpleQueue[T], remove: Callable[[T], None]) -> None:
    while not waiting.empty():
        one = waiting.get()
        try:
            remove(one)
        except BaseException:
            waiting.put(one)
            raise
