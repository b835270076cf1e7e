"""The shard that follows a folder, its consumers, and the account of what may be lost."""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from pathlib import Path
from typing import Any

import msgspec

from millwheel.connect.kinds import build_source
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec, PipelineSpec, SinkSpec, SourceSpec, StreamSpec
from millwheel.engine.workers.delivery.inbox import Inbox
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.shard.shard import Shard
from tests.computations import computation_spec
from tests.fakes.plain_storage import SimStore
from tests.search.rotated.folder import FAR, Content, FewFiles, Folder

NODE, CONSUMERS = "source.hits", ("passed", "sink.dead_letters")
_NUMBER = re.compile(r"#(\d+)#")


def spec() -> PipelineSpec:
    """One followed folder, one consumer of its records, one of its dead letters."""
    source = SourceSpec("files", {"path": "*.log", "format": "jsonl", "follow": True})
    stream = StreamSpec("hits", source, timestamp="at", max_delay_us=FAR)
    passed = computation_spec(
        "passed", (InputSpec("hits", KeySpec(KeyKind.FIELD, ("n",))),), ("out",), callback="x:X"
    )
    return PipelineSpec("p", (stream,), (passed,), (SinkSpec("dead_letters", "none"),), "/nowhere")


class World:
    """A folder, the shard that follows it, and its consumers. ``may_miss``: numbers that a named
    loss has met."""

    def __init__(self, path: Path, system: FewFiles, limits: ShardLimits) -> None:
        self.folder = Folder(path)
        self.system = system
        self.now = 0
        self.stored: dict[bytes, bytes] = {}
        self.inboxes = {target: Inbox({}) for target in CONSUMERS}
        self.came: Counter[int] = Counter()
        self.may_miss: set[int] = set()
        self.fragile: set[int] = set()
        self.pending: deque[Any] = deque()
        self.shard: Shard | None = None
        self._token = 0
        self._limits = limits
        self._router = TableRouter()
        for node in (NODE, *CONSUMERS):
            self._router.update(
                RangeTable(node, (ShardEntry(node, tile(1)[0], "w", token=1),), version=1)
            )
        outside = Factories(
            lambda given, *_: build_source(given, str(path)), lambda *_: None, lambda *_: None
        )
        self._assembly = Assembly(spec(), str(path), self, outside, limits)

    def now_us(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        return self.now

    # --- the runtime ------------------------------------------------------------------------------

    def start(self) -> None:
        if self.shard is None:
            self._token += 1
            entry = ShardEntry(NODE, tile(1)[0], "w", token=self._token)
            self.shard = self._assembly.make_shard(
                NODE, entry, SimStore(dict(self.stored)), self._router
            )

    def turn(self) -> None:
        if self.shard is None:
            return
        if self.shard.admission.runnable(self.now):
            pending = self.shard.run(self.now)
            if pending is not None:
                self.pending.append(pending)
        self.send()

    def send(self) -> None:
        assert self.shard is not None
        for send in self.shard.outbox.sends():
            self.inboxes[send.target].offer(send.channel, send.epoch, send.index, send.batch, None)

    def durable(self) -> None:
        if self.shard is not None and self.pending:
            list(self.shard.commits.submittable(self.now))
            pending = self.pending.popleft()
            if pending.commit is not None:
                self.stored.update(pending.commit.puts)
                for store_key in pending.commit.deletes:
                    self.stored.pop(store_key, None)
            self.shard.durable(pending, self.now)
            self.send()

    def apply(self) -> None:
        for target, inbox in self.inboxes.items():
            for arrival in inbox.take(10**9) if inbox.waiting else ():
                self.came.update(numbers_of(arrival.batch))
                if self.shard is not None:
                    self.shard.outbox.ack(arrival.channel, target, arrival.epoch, arrival.index)

    def crash(self) -> None:
        """What was read and is not applied may be gone from the folder; so may what only the dead
        one had seen."""
        if self.shard is not None:
            self.shard.close()
            self.shard = None
            self.pending.clear()
            self.may_miss |= self.fragile - set(self.came)
            self._unseen_is_lost()

    def settle(self, turns: int = 40) -> None:
        for _ in range(turns):
            self.now += 25_000
            self.turn()
            self.durable()
            self.apply()

    # --- what may be lost -------------------------------------------------------------------------

    def on_its_way(self) -> set[int]:
        """Numbers that the living source has read, and that no consumer has applied."""
        chunks = [] if self.shard is None else list(self.shard.outbox.open.values())
        return {
            number for chunk in chunks for _, batch in chunk.batches for number in numbers_of(batch)
        }

    def at_risk(self, content: Content | None, is_open: bool) -> None:
        """The folder has this no longer."""
        if content is not None:
            read = self.on_its_way()
            if self.shard is None:
                read = set()
            missing = set(content.numbers) - set(self.came)
            kept = missing if is_open and self.system.most > 1 else missing & read
            if content.half:
                kept = kept - {content.numbers[-1]}
            self.fragile |= kept
            self.may_miss |= missing - kept

    def is_open(self, path: Path | str) -> bool:
        if self.shard is None or not os.path.exists(path):
            return False
        found = os.stat(path)
        return (found.st_dev, found.st_ino) in self.system.opened.values()

    def known(self, path: str) -> bool:
        """Whether a file has been seen under its name: the reader or, if there is none, what is
        stored says so."""
        found = os.stat(path)
        who = (found.st_dev, found.st_ino)
        if found.st_ino in self.folder.freed:
            return False
        notes = list(self.stored.values())
        if self.shard is not None:
            partitions = self.shard.operator.partitions  # type: ignore[attr-defined]
            for part in [*partitions.awake.values(), *partitions._asleep.values()]:
                notes += [part.note, *part.decided.values()]
                inner = getattr(part.reader, "_followed", None)
                if inner is not None:
                    marks = [mark for mark in (inner._file, *inner._next) if mark is not None]
                    if who in [mark.identity for mark in (*marks, *inner._followers)]:
                        return True
        return any(_names(note, who) for note in notes)

    def _unseen_is_lost(self) -> None:
        for files in self.folder.old.values():
            for path, content in files:
                if not self.known(path):
                    self.may_miss |= set(content.numbers) - set(self.came)


def _names(note: bytes, who: tuple[int, int]) -> bool:
    """Whether a stored value is, or holds, a note that names a file."""
    try:
        value = msgspec.msgpack.decode(note)
    except (msgspec.DecodeError, ValueError):
        return False
    if type(value) is list and len(value) == 4 and type(value[3]) is bytes:
        return _names(value[3], who)
    if type(value) is not list or len(value) != 6:
        return False
    return who in [(value[1], value[2]), *((follower[1], follower[2]) for follower in value[5])]


def numbers_of(batch: Any) -> list[int]:
    """The numbers of the lines that a batch holds, as rows or in dead letters."""
    found = []
    assert isinstance(batch, Batch)
    for value in batch.values:
        plain = msgspec.msgpack.decode(value) if isinstance(value, msgspec.Raw) else value
        inner = plain.get("value", plain) if "reason" in plain else plain
        if isinstance(inner, dict):
            found.append(inner["n"])
        else:
            found += [int(number) for number in _NUMBER.findall(str(inner))]
    return found
