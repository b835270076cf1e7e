"""A search over what may happen to followed files: they grow, are rotated in every way, and their reader dies.

    python -m tests.search.rotated --seed 1 --runs 1000

A story is a list of steps, drawn from a seed: lines that are written whole, half or broken, files that are renamed,
copied and truncated, deleted, compressed; turns of the source's shard, commits and applications; crashes, stops, and
few allowed open files. The shard and its source are the real ones, the disk is the real one, the consumer is an inbox.
Each line has a number, and must come once: as a row, or in a dead letter. It may be missing only if one of the losses
that docs/pipeline.md names could have met it. A story that fails is cut down to the steps that matter.
"""

from __future__ import annotations

import argparse
import errno
import gzip
import logging
import os
import random
import re
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.records import Batch
from millwheel.core.model.times import SECOND
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    KeyKind,
    KeySpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.sources import build_source
from millwheel.sources.files import followed
from millwheel.workers.delivery.inbox import Inbox
from millwheel.workers.delivery.routing import TableRouter
from millwheel.workers.host.assembly import Assembly, Outside
from millwheel.workers.shard.bundle_sizes import ShardLimits
from millwheel.workers.shard.shard import Shard
from tests.fakes.plain_storage import SimStore

FAR = 400 * 86_400 * SECOND
NODE, CONSUMERS = "source.hits", ("passed", "sink.dead_letters")
Step = tuple[Any, ...]
_NUMBER = re.compile(r"#(\d+)#")


def spec() -> PipelineSpec:
    """One followed folder, one consumer of its records, one of its dead letters."""
    source = SourceSpec("files", {"path": "*.log", "format": "jsonl", "follow": True})
    stream = StreamSpec("hits", source, timestamp="at", max_delay_us=FAR)
    passed = ComputationSpec("passed", (InputSpec("hits", KeySpec(KeyKind.FIELD, ("n",))),), ("out",), callback="x:X")
    return PipelineSpec("p", (stream,), (passed,), (SinkSpec("dead_letters", "none"),), "/nowhere")


class FewFiles:
    """Stands for ``os`` in the module that opens followed files: so many may be open, and calls are counted."""

    def __init__(self) -> None:
        self.most = 10**6
        self.opened: dict[int, tuple[int, int]] = {}
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if not callable(found) or name == "fspath":
            return found
        self.calls[name] += 1
        return found

    def open(self, path: str, flags: int) -> int:
        self.calls["open"] += 1
        if len(self.opened) >= self.most:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        fd = os.open(path, flags)
        found = os.fstat(fd)
        self.opened[fd] = (found.st_dev, found.st_ino)
        return fd

    def close(self, fd: int) -> None:
        self.calls["close"] += 1
        del self.opened[fd]
        os.close(fd)


@dataclass
class Content:
    """What is in one file, from one truncation to the next: the numbers of its lines."""

    numbers: list[int] = field(default_factory=list)
    half: bool = False
    unseen: bool = False
    """It began with a truncation."""


class Folder:
    """The followed files and what became of them. ``living`` and ``old`` are paths with their contents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.living: dict[str, Content] = {}
        self.old: dict[str, list[tuple[str, Content]]] = {}
        self.written = 0
        self.rotations = 0
        self.freed: set[int] = set()
        """Inodes that were free since: a file that has one may be taken for another by the oracle."""

    def write(self, name: str, kind: str, count: int) -> None:
        content = self.living.setdefault(name, Content())
        self._append(self.path / f"{name}.log", content, kind, count)

    def _append(self, path: Path, content: Content, kind: str, count: int) -> None:
        text = ""
        for _ in range(count):
            self.written += 1
            number = self.written
            text += {
                "line": f'{{"n":{number},"at":{number}}}',
                "far": f'{{"n":{number},"at":{FAR * 9}}}',
                "bad": f"bad #{number}#",
                "half": f"half #{number}#",
            }[kind]
            text += "" if kind == "half" else "\n"
            content.numbers.append(number)
        with path.open("a") as out:
            out.write((" and\n" if content.half else "") + text)
        content.half = kind == "half"

    def write_old(self, name: str) -> list[int]:
        """A writer that has not noticed the rotation."""
        if not self.old.get(name):
            return []
        path, content = self.old[name][-1]
        before = len(content.numbers)
        self._append(Path(path), content, "line", 1)
        return content.numbers[before:]

    def rename(self, name: str) -> Content | None:
        if name not in self.living:
            return None
        self.rotations += 1
        target = f"{self.path}/{name}.log.{self.rotations}"
        os.rename(self.path / f"{name}.log", target)
        content = self.living.pop(name)
        self.old.setdefault(name, []).append((target, content))
        return content

    def truncate(self, name: str) -> Content | None:
        if name not in self.living:
            return None
        os.truncate(self.path / f"{name}.log", 0)
        content, self.living[name] = self.living[name], Content()
        return content

    def delete(self, name: str) -> Content | None:
        if name not in self.living:
            return None
        self._unlink(f"{self.path}/{name}.log")
        return self.living.pop(name)

    def compress(self, name: str) -> Content | None:
        """The oldest renamed file becomes another one."""
        if not self.old.get(name):
            return None
        path, content = self.old[name].pop(0)
        Path(path + ".gz").write_bytes(gzip.compress(Path(path).read_bytes()))
        self._unlink(path)
        return content

    def _unlink(self, path: str) -> None:
        self.freed.add(os.stat(path).st_ino)
        os.unlink(path)


class World:
    """A folder, the shard that follows it, and its consumers. ``may_miss``: numbers that a named loss has met."""

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
            self._router.update(RangeTable(node, (ShardEntry(node, tile(1)[0], "w", token=1),), version=1))
        outside = Outside(lambda given, *_: build_source(given, str(path)), lambda *_: None, lambda *_: None)
        self._assembly = Assembly(spec(), str(path), self, outside, limits)

    def now_us(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        return self.now

    # --- the runtime -------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.shard is None:
            self._token += 1
            entry = ShardEntry(NODE, tile(1)[0], "w", token=self._token)
            self.shard = self._assembly.make_shard(NODE, entry, SimStore(dict(self.stored)), self._router)

    def turn(self) -> None:
        if self.shard is None:
            return
        if self.shard.runnable(self.now):
            prepared = self.shard.run(self.now)
            if prepared is not None:
                self.pending.append(prepared)
        self.send()

    def send(self) -> None:
        assert self.shard is not None
        for send in self.shard.outbox.sends():
            self.inboxes[send.target].offer(send.channel, send.epoch, send.index, send.batch, None)

    def durable(self) -> None:
        if self.shard is not None and self.pending:
            prepared = self.pending.popleft()
            if prepared.commit is not None:
                self.stored.update(prepared.commit.puts)
                for place in prepared.commit.deletes:
                    self.stored.pop(place, None)
            self.shard.durable(prepared, self.now)
            self.send()

    def apply(self) -> None:
        for target, inbox in self.inboxes.items():
            for arrival in inbox.take(10**9) if len(inbox) else ():
                self.came.update(numbers_of(arrival.batch))
                if self.shard is not None:
                    self.shard.outbox.ack(arrival.channel, target, arrival.epoch, arrival.index)

    def crash(self) -> None:
        """What was read and is not applied may be gone from the folder; so may what only the dead one had seen."""
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

    # --- what may be lost --------------------------------------------------------------------------------

    def on_its_way(self) -> set[int]:
        """Numbers that the living source has read, and that no consumer has applied."""
        chunks = [] if self.shard is None else list(self.shard.outbox._open.values())
        return {number for chunk in chunks for _, batch in chunk.batches for number in numbers_of(batch)}

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
        """Whether a file has been seen under its name: the reader or, if there is none, what is stored says so."""
        found = os.stat(path)
        who = (found.st_dev, found.st_ino)
        if found.st_ino in self.folder.freed:
            return False
        notes = list(self.stored.values())
        if self.shard is not None:
            partitions = self.shard.operator._partitions  # type: ignore[attr-defined]
            for part in [*partitions.awake.values(), *partitions._asleep.values()]:
                notes += [part.note, *part.decided.values()]
                inner = getattr(part.reader, "_followed", None)
                if inner is not None:
                    marks = [mark for mark in (inner._file, *inner._next) if mark is not None]
                    if who in [mark.who for mark in (*marks, *inner._followers)]:
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


# --- stories -----------------------------------------------------------------------------------------------


def story(seed: int) -> list[Step]:
    """A run's steps."""
    rng = random.Random(seed)
    names = rng.choice([["a"], ["a", "b"], ["a", "b", "c"]])
    habits = rng.sample(["rename", "truncate", "delete", "compress", "write_old"], rng.randint(1, 3))
    dangers = rng.sample(["crash", "stop", "few", "sleep"], rng.randint(0, 2))
    steps: list[Step] = [("limits", rng.choice([1, 3, 50]), rng.choice([0, 20_000, 200_000]))]
    steps += [("write", name, "line", 2) for name in names] + [("look", 3)]
    for _ in range(rng.randint(10, 60)):
        name, dice = rng.choice(names), rng.random()
        if dice < 0.35:
            kind = rng.choice(["line", "line", "line", "half", "bad", "far"])
            steps.append(("write", name, kind, 1 if kind == "half" else rng.choice([1, 2, 4, 12])))
        elif dice < 0.55:
            steps.append((rng.choice(habits), name))
        elif dice < 0.62 and dangers:
            steps.append((rng.choice(dangers),))
        else:
            word = rng.choice(["turn", "turn", "turn", "durable", "apply", "clock", "settle", "look", "look"])
            steps.append((word, rng.randint(1, 6)))
    return steps


def play(steps: list[Step], world: World) -> None:
    for step in steps:
        _play(step, world)
    world.system.most = 10**6
    world.start()
    world.settle(60)
    for name in [*world.folder.living, *world.folder.old]:  # a name that nobody writes to any more is not looked at
        world.folder.write(name, "line", 1)
    for _ in range(4):
        world.now += SECOND
        world.settle(60)


def _play(step: Step, world: World) -> None:
    folder, word = world.folder, step[0]
    path = folder.path / f"{step[1] if len(step) > 1 else ''}.log"
    match word:
        case "write":
            folder.write(*step[1:])
        case "rename":
            known, is_open = path.exists() and world.known(str(path)), world.is_open(path)
            content = folder.rename(step[1])
            if content is not None and content.unseen and not world.came.keys() & content.numbers:
                world.at_risk(content, is_open)
            elif content is not None and not known:
                world.may_miss |= set(content.numbers) - set(world.came)
        case "truncate":
            content = folder.truncate(step[1])
            world.at_risk(content, False)
            if content is not None:
                folder.living[step[1]].unseen = True
        case "delete":
            is_open = world.is_open(path)
            world.at_risk(folder.delete(step[1]), is_open)
        case "compress":
            old = folder.old.get(step[1])
            is_open = bool(old) and world.is_open(old[0][0])
            world.at_risk(folder.compress(step[1]), is_open)
        case "write_old":
            world.may_miss |= set(folder.write_old(step[1]))
        case "turn":
            for _ in range(step[1]):
                world.turn()
        case "durable":
            for _ in range(step[1]):
                world.durable()
        case "apply":
            world.apply()
        case "clock":
            world.now += step[1] * 25_000
        case "settle":
            world.settle(step[1])
        case "look":
            world.now += SECOND
            world.settle(2 * step[1])
        case "sleep":
            for _ in range(13):
                world.now += SECOND
                world.settle(4)
        case "few":
            world.system.most = 1 if world.system.most > 1 else 10**6
            world.may_miss |= world.fragile - set(world.came)
        case "crash":
            world.crash() if world.shard is not None else world.start()
        case "stop":
            world.settle(20)
            world.crash()


@contextmanager
def world_of(steps: list[Step]) -> Iterator[World]:
    """A folder of its own, which is removed again."""
    system, right = FewFiles(), followed.os
    bundle, settle = next((step[1:] for step in steps if step[0] == "limits"), (3, 0))
    followed.os = system  # type: ignore[assignment]
    try:
        with tempfile.TemporaryDirectory() as place:
            world = World(Path(os.path.realpath(place)), system, ShardLimits(bundle=bundle, settle_us=settle))
            world.start()
            yield world
            if world.shard is not None:
                world.shard.close()
    finally:
        followed.os = right  # type: ignore[assignment]


def failure(steps: list[Step]) -> str:
    """What is wrong after these steps ("": nothing)."""
    with world_of(steps) as world:
        try:
            play(steps, world)
        except Exception as ex:  # whatever ends the worker is the finding
            return f"{type(ex).__name__}: {ex}"
        twice = sorted(number for number, times in world.came.items() if times > 1)
        lost = sorted(set(range(1, world.folder.written + 1)) - set(world.came) - world.may_miss)
        gone = sum(os.fstat(fd).st_nlink == 0 for fd in world.system.opened)
    if twice:
        return f"lines that came more than once: {twice}"
    if lost:
        return f"lines that never came, though nothing that docs/pipeline.md names has met them: {lost}"
    return f"{gone} files are open that were deleted" if gone else ""


def shrunk(steps: list[Step]) -> list[Step]:
    """The steps that matter."""
    size = len(steps) // 2
    while size:
        place = 0
        while place < len(steps):
            fewer = steps[:place] + steps[place + size :]
            if failure(fewer):
                steps = fewer
            else:
                place += size
        size //= 2
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.search.rotated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger("millwheel").addHandler(logging.NullHandler())
    for seed in range(given.seed, given.seed + given.runs):
        if failure(story(seed)):
            steps = shrunk(story(seed))
            print(f"seed {seed}: {failure(steps)}", *steps, sep="\n  ")
            return 1
    print(f"{given.runs} seeds, none failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
