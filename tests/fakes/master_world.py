"""A small world around the master's pure machine: store, journals, snapshots, workers and any
number of masters.

Everything that passes between them waits in queues, so a test decides the order of all there is to
order. Workers commit, recover as the lineage says, and compare what they recovered with what was
ever acked.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import takewhile

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
    SealFailed,
    ShardReleased,
    TableSeen,
    TablesLoaded,
    Tick,
    WorkerUnreachable,
    WriteConflicted,
    WriteFailed,
)
from millwheel.control.master.state import MasterState
from millwheel.core.model.range_table import RangeTable, ShardEntry


@dataclass
class Journal:
    """Entries (shard, token, number); ``sealed`` is its length at the seal."""

    entries: list[tuple[str, int, int]] = field(default_factory=list)
    sealed: int | None = None
    collected: bool = False


@dataclass
class Worker:
    """One incarnation. ``open`` maps a shard to (token, commits so far)."""

    name: str
    alive: bool = True
    open: dict[str, tuple[int, int]] = field(default_factory=dict)
    given_up: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Master:
    """One elected master, or one that believes it is."""

    state: MasterState
    inbox: deque[Event] = field(default_factory=deque)
    todo: deque[Effect] = field(default_factory=deque)
    lines: set[str] = field(default_factory=set)
    answers: list[AnswerMove] = field(default_factory=list)


class World:
    def __init__(self, config: MasterConfig) -> None:
        self.config = config
        self.now_us = 0
        self.workers: dict[str, Worker] = {}
        self.members: set[str] = set()
        self.tables: dict[str, RangeTable] = {}
        self.journals: dict[str, Journal] = {}
        self.manifests: dict[str, tuple[int, int]] = {}
        self.acked: dict[str, int] = {}
        self.masters: list[Master] = []
        self.store_down = False
        self._tickets = 0

    # --- masters

    def start_master(self) -> Master:
        master = Master(MasterState(self.config))
        self.masters.append(master)
        self._feed(master, Tick(now_us=self.now_us))
        self._feed(master, TablesLoaded(tables=tuple(self.tables.values())))
        self._feed(master, self._membership())
        return master

    def crash_master(self, master: Master) -> None:
        self.masters.remove(master)

    def deliver(self, master: Master) -> bool:
        if not master.inbox:
            return False
        self._feed(master, master.inbox.popleft())
        return True

    def perform(self, master: Master, pick: int = 0) -> bool:
        """The next effect, or any of several writes of tables that come next: they are made side by
        side."""
        if not master.todo:
            return False
        writes = sum(
            1 for _ in takewhile(lambda effect: isinstance(effect, WriteRangeTable), master.todo)
        )
        at = pick % max(1, writes)
        effect = master.todo[at]
        del master.todo[at]
        self._perform(master, effect)
        return True

    def tick(self, master: Master) -> None:
        master.inbox.append(Tick(now_us=self.now_us))

    def scan(self, master: Master) -> None:
        for shard in master.state.shards_with_lineage():
            if shard in self.manifests:
                token, last = self.manifests[shard]
                master.inbox.append(ManifestSeen(shard=shard, token=token, last_commit=last))
        master.inbox.append(JournalsFound(incarnations=tuple(self.journals)))

    def ask_move(self, master: Master, node: str, shard: str, worker: str) -> int:
        self._tickets += 1
        master.inbox.append(
            MoveRequested(ticket=self._tickets, node=node, shard=shard, worker=worker)
        )
        return self._tickets

    def _feed(self, master: Master, event: Event) -> None:
        master.todo.extend(master.state.handle(event))

    def _perform(self, master: Master, effect: Effect) -> None:
        match effect:
            case SealJournal(incarnation=name):
                if self.store_down:
                    master.inbox.append(SealFailed(incarnation=name))
                    return
                journal = self.journals.setdefault(name, Journal())
                if journal.sealed is None:
                    journal.sealed = len(journal.entries)
                master.inbox.append(JournalSealed(incarnation=name, end=journal.sealed))
            case WriteRangeTable(table=table):
                self._write(master, table)
            case RemoveMember(incarnation=name):
                assert self.journals[name].sealed is not None
                self._leave(name)
            case CollectJournal(incarnation=name):
                journal = self.journals.setdefault(name, Journal())
                assert journal.sealed is not None, f"{name} was collected before it was sealed"
                # The shell reads the tables again: this master may have been replaced.
                if name not in self._mentioned():
                    journal.collected = True
            case AttachWorker(incarnation=name):
                master.lines.add(name)
                if not self.workers[name].alive:
                    master.inbox.append(WorkerUnreachable(incarnation=name, reason="refused"))
                self._repeat_releases(master, self.workers[name])
            case DetachWorker(incarnation=name):
                master.lines.discard(name)
            case AnswerMove():
                master.answers.append(effect)

    def _write(self, master: Master, table: RangeTable) -> None:
        if self.store_down:
            master.inbox.append(WriteFailed(node=table.computation))
            return
        stored = self.tables.get(table.computation)
        if (stored.version if stored else -1) != table.version:
            master.inbox.append(WriteConflicted(node=table.computation, stored=stored))
            return
        if stored is not None:
            self._check_step(stored, table)
        written = self.tables[table.computation] = replace(table, version=table.version + 1)
        for other in self.masters:
            other.inbox.append(TableSeen(table=written))

    def _check_step(self, before: RangeTable, after: RangeTable) -> None:
        """What must hold between two versions of a table; the tiling is checked by the table
        itself."""
        for old in before.shards:
            new = after.entry(old.shard)
            assert new is not None
            assert new.token >= old.token, f"the token of {old.shard} went back"
            if new.owner and (new.owner, new.token) != (old.owner, old.token):
                assert new.token > old.token, f"{old.shard} has a new owner under an old token"
            if old.owner and (new.owner != old.owner or new.token != old.token):
                self._check_succession(old, new)
            for gone in set(old.lineage) - set(new.lineage):
                assert gone.token < self.manifests[old.shard][0], (
                    f"{old.shard} lost an ancestor it needs"
                )

    def _check_succession(self, old: ShardEntry, new: ShardEntry) -> None:
        ancestor = next((a for a in new.lineage if a.token == old.token), None)
        if ancestor is None:  # pruned in the same step
            assert old.token < self.manifests[old.shard][0]
            return
        assert ancestor.incarnation == old.owner
        if ancestor.last_commit >= 0:
            assert self.workers[old.owner].given_up[old.shard] == (old.token, ancestor.last_commit)
        else:
            sealed = self.journals[old.owner].sealed
            assert sealed is not None, f"{old.shard} was taken from {old.owner} without a seal"
            assert sealed == ancestor.sealed_end

    # --- workers

    def join(self) -> Worker:
        worker = Worker(f"w.{len(self.workers)}")
        self.workers[worker.name] = worker
        self.journals[worker.name] = Journal()
        self.members.add(worker.name)
        self._tell_members()
        return worker

    def kill(self, worker: Worker) -> None:
        """The process dies; every line to it breaks, and its session lingers."""
        worker.alive = False
        for master in self.masters:
            if worker.name in master.lines:
                master.inbox.append(
                    WorkerUnreachable(incarnation=worker.name, reason="the line broke")
                )

    def cut_off(self, worker: Worker) -> None:
        """The session of a worker ends although it lives; so a zombie is born."""
        self._leave(worker.name)

    def false_alarm(self, worker: Worker) -> None:
        for master in self.masters:
            master.inbox.append(WorkerUnreachable(incarnation=worker.name, reason="a false alarm"))

    def see_tables(self, worker: Worker) -> None:
        """The worker follows the tables as they stand now: opens, stops and releases shards."""
        if not worker.alive:
            return
        for table in self.tables.values():
            for entry in table.shards:
                given_up = worker.given_up.get(entry.shard, (-1, 0))[0] == entry.token
                if entry.owner == worker.name and entry.shard not in worker.open and not given_up:
                    self._open(worker, entry)
                held = worker.open.get(entry.shard)
                if held is not None and (entry.owner, entry.token) != (worker.name, held[0]):
                    del worker.open[entry.shard]
                elif held is not None and entry.next_owner:
                    worker.given_up[entry.shard] = worker.open.pop(entry.shard)
                    for master in self.masters:
                        self._repeat_releases(master, worker)

    def commit(self, worker: Worker, shard: str) -> None:
        """One commit, acked unless the journal is sealed by then."""
        if not worker.alive or shard not in worker.open:
            return
        journal = self.journals[worker.name]
        if journal.sealed is not None:
            worker.alive = False  # fenced
            return
        token, count = worker.open[shard]
        journal.entries.append((shard, token, count + 1))
        worker.open[shard] = token, count + 1
        self.acked[shard] = count + 1

    def snapshot(self, worker: Worker, shard: str) -> None:
        """Publish a manifest, unless fenced or overtaken."""
        if (
            not worker.alive
            or shard not in worker.open
            or self.journals[worker.name].sealed is not None
        ):
            return
        self.manifests[shard] = max(self.manifests.get(shard, (0, 0)), worker.open[shard])

    def _open(self, worker: Worker, entry: ShardEntry) -> None:
        recovered = self._recover(entry)
        if self.journals[worker.name].sealed is None:
            assert recovered == self.acked.get(entry.shard, 0), f"{entry.shard} lost acked commits"
        worker.open[entry.shard] = entry.token, recovered

    def _recover(self, entry: ShardEntry) -> int:
        _, count = self.manifests.get(entry.shard, (0, 0))
        for ancestor in entry.lineage:
            journal = self.journals[ancestor.incarnation]
            upto = ancestor.sealed_end if ancestor.sealed_end >= 0 else len(journal.entries)
            for shard, token, number in journal.entries[:upto]:
                bounded = ancestor.last_commit < 0 or number <= ancestor.last_commit
                if shard == entry.shard and token == ancestor.token and number > count and bounded:
                    assert not journal.collected, (
                        f"{entry.shard} needs the journal of {ancestor.incarnation}"
                    )
                    assert number == count + 1, f"{entry.shard} has a gap before commit {number}"
                    count = number
        return count

    def _repeat_releases(self, master: Master, worker: Worker) -> None:
        if worker.name not in master.lines or not worker.alive:
            return
        for shard, (token, last) in worker.given_up.items():
            master.inbox.append(
                ShardReleased(incarnation=worker.name, shard=shard, token=token, last_commit=last)
            )

    # --- membership

    def _leave(self, name: str) -> None:
        if name in self.members:
            self.members.discard(name)
            self._tell_members()

    def expire_dead(self) -> None:
        for worker in self.workers.values():
            if not worker.alive:
                self._leave(worker.name)

    def _membership(self) -> MembersChanged:
        return MembersChanged(
            members=tuple(Member(incarnation=n, address=f"{n}:1") for n in sorted(self.members))
        )

    def _tell_members(self) -> None:
        for master in self.masters:
            master.inbox.append(self._membership())

    def _mentioned(self) -> set[str]:
        entries = [entry for table in self.tables.values() for entry in table.shards]
        return {e.owner for e in entries} | {a.incarnation for e in entries for a in e.lineage}

    # --- everything at once

    def settle(self, rounds: int = 200) -> None:
        """Deliver, perform and follow until nothing is left to do, with time passing."""
        for _ in range(rounds):
            self.now_us += 200_000
            for master in self.masters:
                self.tick(master)
                while self.deliver(master) or self.perform(master):
                    pass
            for worker in list(self.workers.values()):
                self.see_tables(worker)
