"""The master as its transcripts command it: tests/transcripts/machines/master*.txt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millwheel.control.master.config import MasterConfig
from millwheel.control.master.effects import (
    AnswerMove,
    AttachWorker,
    CollectJournal,
    DetachWorker,
    Effect,
    RemoveMember,
    SealJournal,
    WriteRangeTable,
)
from millwheel.control.master.events import (
    Event,
    JournalSealed,
    JournalsFound,
    ManifestSeen,
    Member,
    MembersChanged,
    MoveRequested,
    ReshardRequested,
    SealFailed,
    SeatsChanged,
    ShardReleased,
    TableSeen,
    TablesLoaded,
    Tick,
    WorkerUnreachable,
    WriteConflicted,
    WriteFailed,
)
from millwheel.control.master.state import MasterState
from millwheel.control.master.tables.planner import NodeDemand
from millwheel.control.master.tables.resharding import Merge, Split
from millwheel.core.model.names import NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE

_SECOND = 1_000_000
_NODE = NodeName("n")


class Master:
    """``start workers=2 shards=2 spares=0`` elects one on an empty root, ``restart`` another one,
    who reads the stored tables. ``tick SECONDS``; ``members NAME...`` (``NAME!`` is leaving),
    ``seats N``, ``gone NAME``, ``sealed NAME END``, ``unsealed NAME``, ``released NAME SHARD/TOKEN
    COMMIT``, ``snapshot SHARD/TOKEN``, ``journals NAME...``. The last write is ``stored``, has
    ``failed`` or was ``beaten NAME`` by a table that gives all shards to one worker. ``move SHARD
    NAME``, ``split SHARD EIGHTH`` and ``merge SHARD SHARD`` are asked for. ``table`` shows what is
    stored."""

    def __init__(self) -> None:
        self._config = MasterConfig(nodes=(), expected_workers=1)
        self._state = MasterState(self._config)
        self._stored: RangeTable | None = None
        self._write: RangeTable | None = None
        self._tickets = 0

    def do(self, command: str, words: list[str]) -> list[str]:
        if command == "table":
            assert self._stored is not None
            return _rows(None, self._stored)
        if command == "start":
            self._start(**{name: int(n) for name, n in (word.split("=") for word in words)})
        if command in ("start", "restart"):
            self._state, self._write = MasterState(self._config), None
            self._state.handle(Tick(now_us=0))
            tables = () if self._stored is None else (self._stored,)
            events: Sequence[Event] = [TablesLoaded(tables=tables)]
        else:
            events = [self._event(command, words)]
        effects = [effect for event in events for effect in self._state.handle(event)]
        self._state.validate()
        return [line for effect in effects for line in self._told(effect)]

    def _start(self, workers: int = 2, shards: int = 2, spares: int = 0) -> None:
        self._config = MasterConfig(
            nodes=(NodeDemand(_NODE, shards),), expected_workers=workers, spares=spares
        )

    def _event(self, command: str, words: list[str]) -> Event:
        match command:
            case "tick":
                return Tick(now_us=int(float(words[0]) * _SECOND))
            case "seats":
                return SeatsChanged(seats=int(words[0]))
            case "stored":
                assert self._write is not None
                self._stored = replace(self._write, version=self._write.version + 1)
                return TableSeen(table=self._stored)
            case "failed":
                return WriteFailed(node=_NODE)
            case "beaten":
                return WriteConflicted(node=_NODE, stored=self._rival(WorkerName(words[0])))
            case "move":
                self._tickets += 1
                return MoveRequested(
                    ticket=self._tickets,
                    node=_NODE,
                    shard=ShardName(words[0]),
                    worker=WorkerName(words[1]),
                )
            case "split" | "merge":
                self._tickets += 1
                wanted = (
                    Split(_NODE, ShardName(words[0]), int(words[1]) * SPACE // 8)
                    if command == "split"
                    else Merge(_NODE, ShardName(words[0]), ShardName(words[1]))
                )
                return ReshardRequested(ticket=self._tickets, resharding=wanted)
        return _about_workers(command, words)

    def _rival(self, owner: WorkerName) -> RangeTable:
        assert self._stored is not None
        shards = tuple(entry.assigned(owner) for entry in self._stored.shards)
        self._stored = replace(self._stored, shards=shards, version=self._stored.version + 4)
        return self._stored

    def _told(self, effect: Effect) -> list[str]:
        match effect:
            case WriteRangeTable():
                before, self._write = self._stored, effect.table
                return ["write", *_rows(before, effect.table)]
            case SealJournal():
                urgent = "" if effect.urgent else ", at leisure"
                return [f"seal {effect.incarnation}: {effect.reason}{urgent}"]
            case AnswerMove():
                return [f"answer {effect.ticket}: {effect.refusal or 'done'}"]
            case AttachWorker():
                return [f"attach {effect.incarnation}"]
            case DetachWorker():
                return [f"detach {effect.incarnation}"]
            case RemoveMember():
                return [f"remove {effect.incarnation} from the members"]
            case CollectJournal():
                return [f"collect the journal of {effect.incarnation}"]


def _about_workers(command: str, words: list[str]) -> Event:
    first = WorkerName(words[0]) if words else WorkerName("")
    match command:
        case "members":
            return MembersChanged(members=tuple(map(_member, words)))
        case "gone":
            return WorkerUnreachable(incarnation=first, reason="nobody listens")
        case "sealed":
            return JournalSealed(incarnation=first, end=int(words[1]))
        case "unsealed":
            return SealFailed(incarnation=first)
        case "journals":
            return JournalsFound(incarnations=tuple(map(WorkerName, words)))
        case "snapshot":
            shard, _, token = words[0].partition("/")
            return ManifestSeen(shard=ShardName(shard), token=Token(int(token)), last_commit=1)
        case "released":
            shard, _, token = words[1].partition("/")
            return ShardReleased(
                incarnation=first,
                shard=ShardName(shard),
                token=Token(int(token)),
                last_commit=int(words[2]),
            )
    raise ValueError(f"{command} is not a command of the master")


def _member(word: str) -> Member:
    name = word.rstrip("!")
    return Member(incarnation=WorkerName(name), address=f"{name}:1", leaving=word.endswith("!"))


def _rows(before: RangeTable | None, table: RangeTable) -> list[str]:
    """The entries that differ from those before."""
    known = set(before.shards) if before is not None else set()
    rows = [f"  {_row(entry)}" for entry in table.shards if entry not in known]
    left = {entry.shard for entry in table.shards}
    gone = sorted(entry.shard for entry in known if entry.shard not in left)
    return [*rows, *(f"  {shard} is no more" for shard in gone)]


def _row(entry: ShardEntry) -> str:
    edges = f"{entry.range.lo * 8 // SPACE}-{entry.range.hi * 8 // SPACE}"
    text = f"{entry.shard}/{entry.token}:{edges} of {entry.owner or 'nobody'}"
    text += f", to {entry.next_owner}" if entry.next_owner else ""
    text += f", to be split at {entry.split_at * 8 // SPACE}" if entry.split_at else ""
    text += f", to become {entry.merges_as}" if entry.merges_as else ""
    for name, token, end, last in entry.lineage:
        text += f", before {name}/{token} " + (f"sealed at {end}" if end >= 0 else f"to #{last}")
    for parent in entry.parents:
        text += f", from {parent.shard}/{parent.token} to #{parent.last_commit}"
    return text
