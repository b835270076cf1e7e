"""The master's loop as a step: take events, ask the pure machine, perform its effects. One thread.

A step writes tables itself, in the order in which the machine gave them, and feeds the outcome back
before it returns. Journals for which shards wait are sealed beside it, several at once: a lost host
takes several workers with it. Slow work that nothing waits for (looking at snapshots, deleting
journals, sealing those of workers that owned nothing) goes to ``background``, one thing after the
other.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol

from millwheel.adapters.ports import Clock, Coordination, Journals, Snapshots
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
    TableSeen,
    TablesLoaded,
    Tick,
    WriteConflicted,
    WriteFailed,
)
from millwheel.control.master.loads import Load
from millwheel.control.master.state import MasterState, WorkerState
from millwheel.control.master.tables.resharding import Resharding, outlived
from millwheel.control.master.tables.spares import HostLoss
from millwheel.core.model.names import NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import ConflictError, MillwheelError, UnavailableError

log = logging.getLogger("millwheel.master")

WORKERS = "workers"
LEAVING = "leaving"
"""The master moves the shards of workers that are also members of this role to others."""
SEATS = "seats"
"""The name of its one member is the requested number of serving workers, if it differs from the
number at the start."""


class Lines(Protocol):
    """The master's connections to its workers."""

    def attach(self, incarnation: WorkerName, address: str) -> None: ...

    def detach(self, incarnation: WorkerName) -> None: ...


@dataclass(frozen=True, slots=True)
class MasterPorts:
    """The outside world. ``post`` enqueues an event from any thread; ``background`` runs a function
    on another thread, and ``at_once`` without waiting for others that do (None: journals for which
    shards wait are sealed within the step)."""

    clock: Clock
    coordination: Coordination
    journals: Journals
    snapshots: Snapshots
    lines: Lines
    post: Callable[[Event], None]
    background: Callable[[Callable[[], None]], None]
    at_once: Callable[[Callable[[], None]], None] | None = None


@dataclass(frozen=True, slots=True)
class MasterPace:
    """Intervals of periodic work (µs). ``scan_us`` is the one between scans of snapshots and
    journals."""

    tick_us: int = 200_000
    scan_us: int = 10_000_000


@dataclass(frozen=True, slots=True)
class MasterView:
    """The master's view, for status requests: live workers, stored tables, the loads of shards, the
    state of each worker, and the hosts whose loss would leave seats empty."""

    workers: tuple[WorkerName, ...] = ()
    tables: tuple[RangeTable, ...] = ()
    loads: Mapping[ShardName, Load] = field(default_factory=dict)
    members: Mapping[WorkerName, WorkerState] = field(default_factory=dict)
    exposures: tuple[HostLoss, ...] = ()


class MasterRuntime:
    """One elected master."""

    def __init__(self, state: MasterState, ports: MasterPorts, pace: MasterPace) -> None:
        self._state = state
        self._ports = ports
        self._pace = pace
        self._next_tick_us = 0
        self._next_scan_us = 0
        self._workers: Mapping[str, bytes] | None = None
        self._leaving: Mapping[str, bytes] = {}
        self._answers: dict[int, Callable[[str], None]] = {}
        self._tickets = 0
        self._dropped: set[ShardName] = set()
        self.view = MasterView()

    def begin(self) -> None:
        """Read the tables, then follow members and tables. Call it once, on the thread that steps.

        Raises UnavailableError when ZooKeeper does not answer.
        """
        # In this order: an owner that is missing among members older than the table would be taken
        # for dead.
        tables = tuple(self._ports.coordination.tables().values())
        self._ports.post(Tick(now_us=self._ports.clock.monotonic_us()))
        self._ports.post(TablesLoaded(tables=tables))
        self._ports.coordination.watch_members(LEAVING, self._leaving_changed)
        self._ports.coordination.watch_members(SEATS, self._seats_changed)
        self._ports.coordination.watch_members(WORKERS, self._workers_changed)
        self._ports.coordination.watch_tables(
            lambda table: self._ports.post(TableSeen(table=table))
        )

    def ask_move(
        self, node: NodeName, shard: ShardName, worker: WorkerName, answer: Callable[[str], None]
    ) -> None:
        """Request a move; call it on the thread that steps. ``answer`` is called with a refusal, or
        with "" once the stored table contains the move."""
        self._tickets += 1
        self._answers[self._tickets] = answer
        self._ports.post(MoveRequested(ticket=self._tickets, node=node, shard=shard, worker=worker))

    def ask_reshard(self, requested: Resharding, answer: Callable[[str], None]) -> None:
        """Request a split or merge. ``answer`` is called with a refusal, or with "" once the stored
        table contains it."""
        self._tickets += 1
        self._answers[self._tickets] = answer
        self._ports.post(ReshardRequested(ticket=self._tickets, resharding=requested))

    def step(self, events: Sequence[Event]) -> int:
        """Handle ``events`` and all their consequences. Returns the monotonic time (µs) of the next
        step."""
        now_us = self._ports.clock.monotonic_us()
        pending = deque(events)
        # Of the last tick: to copy them all at each report would cost more than the reports.
        loads, members, exposures = self.view.loads, self.view.members, self.view.exposures
        if ticks := now_us >= self._next_tick_us:
            self._next_tick_us = now_us + self._pace.tick_us
            pending.append(Tick(now_us=now_us))
        while pending:
            for kind, effects in groupby(self._state.handle(pending.popleft()), type):
                if kind is WriteRangeTable:
                    pending += self._write(
                        [effect.table for effect in effects if isinstance(effect, WriteRangeTable)]
                    )
                else:
                    pending += [
                        outcome for outcome in map(self._perform, effects) if outcome is not None
                    ]
        self._scan_when_due(now_us)
        if ticks:
            loads, members, exposures = (
                self._state.loads,
                self._state.workers,
                self._state.exposures(),
            )
        self.view = MasterView(
            self._state.live_workers, self._state.tables, loads, members, exposures
        )
        return self._next_tick_us

    # --- effects

    def _perform(self, effect: Effect) -> Event | None:
        match effect:
            # tens of milliseconds of disk, while the shards of another dead worker may wait
            case SealJournal():
                elsewhere = self._ports.at_once if effect.urgent else self._ports.background
                if elsewhere is None:
                    return self._seal(effect)
                elsewhere(lambda: self._seal_aside(effect))
            case RemoveMember():
                self._remove(effect.incarnation)
            case AttachWorker():
                self._ports.lines.attach(effect.incarnation, effect.address)
            case DetachWorker():
                self._ports.lines.detach(effect.incarnation)
            case CollectJournal():
                self._ports.background(lambda: self._collect(effect.incarnation))
            case AnswerMove():
                self._answers.pop(effect.ticket)(effect.refusal)
        return None

    def _seal_aside(self, effect: SealJournal) -> None:
        outcome: Event = SealFailed(incarnation=effect.incarnation)
        try:
            outcome = self._seal(effect)
        finally:  # any failure is tried again: shards wait
            self._ports.post(outcome)

    def _seal(self, effect: SealJournal) -> Event:
        began_us = self._ports.clock.monotonic_us()
        try:
            end = self._ports.journals.seal(effect.incarnation)
        except MillwheelError as error:
            log.error(
                "The journal of %s cannot be sealed, its shards wait: %s", effect.incarnation, error
            )
            return SealFailed(incarnation=effect.incarnation)
        took_ms = (self._ports.clock.monotonic_us() - began_us) / 1000
        log.info(
            "Worker %s counts as dead (%s); its journal was sealed at %d in %.1f ms.",
            *(effect.incarnation, effect.reason, end, took_ms),
        )
        return JournalSealed(incarnation=effect.incarnation, end=end)

    def _write(self, tables: Sequence[RangeTable]) -> list[Event]:
        outcomes = self._ports.coordination.write_tables(tables)
        return [
            self._wrote(table, outcome) for table, outcome in zip(tables, outcomes, strict=True)
        ]

    def _wrote(self, table: RangeTable, outcome: int | MillwheelError) -> Event:
        match outcome:
            case ConflictError():
                return self._reread(table.computation)
            case UnavailableError():
                log.warning("The range table of %s was not written: %s", table.computation, outcome)
                return WriteFailed(node=table.computation)
            case MillwheelError():
                raise outcome
        log.info(
            "The range table of %s is written, version %d: %s.",
            table.computation,
            outcome,
            _owners(table),
        )
        return TableSeen(table=replace(table, version=outcome))

    def _reread(self, node: NodeName) -> Event:
        log.warning("Another master wrote the range table of %s; deciding again.", node)
        try:
            return WriteConflicted(node=node, stored=self._ports.coordination.tables().get(node))
        except UnavailableError:
            return WriteFailed(node=node)

    def _remove(self, incarnation: WorkerName) -> None:
        try:
            self._ports.coordination.leave(WORKERS, incarnation)
        except UnavailableError as error:
            # Its membership ends with its session in any case.
            log.warning("The dead worker %s stays a member for now: %s", incarnation, error)

    # --- in the background

    def _collect(self, incarnation: WorkerName) -> None:
        """Delete a dead worker's journal. Reads the tables again first: if this master has been
        replaced without having noticed, its successor may have assigned shards to a worker that
        owns none in our tables."""
        try:
            if any(
                _mentions(table, incarnation)
                for table in self._ports.coordination.tables().values()
            ):
                return
            self._ports.journals.collect(incarnation)
            log.info("The journal of %s is no longer needed and was deleted.", incarnation)
        except MillwheelError as error:
            log.warning("The journal of %s was not deleted: %s", incarnation, error)

    def _scan_when_due(self, now_us: int) -> None:
        if now_us >= self._next_scan_us:
            self._next_scan_us = now_us + self._pace.scan_us
            shards = self._state.shards_with_lineage()
            self._ports.background(lambda: self._scan(shards))

    def _scan(self, shards: Sequence[ShardName]) -> None:
        """Look for snapshots that shorten lineages, and for journals that belong to no member and
        that no table names."""
        try:
            for shard in shards:
                manifest = self._ports.snapshots.latest(shard)
                if manifest is not None:
                    self._ports.post(
                        ManifestSeen(
                            shard=shard, token=manifest.token, last_commit=manifest.last_commit
                        )
                    )
            self._ports.post(JournalsFound(incarnations=tuple(self._ports.journals.incarnations())))
            self._drop_outlived()
        except MillwheelError as error:
            log.error("Nothing was deleted, because looking for deletable files failed: %s", error)

    def _drop_outlived(self) -> None:
        """Delete the snapshots of shards that were split or merged, and whose children have
        snapshots of their own."""
        shards = self._ports.snapshots.shards()
        for shard in outlived(shards, self._ports.coordination.tables()):
            if shard not in self._dropped and self._ports.snapshots.drop(shard):
                log.info(
                    "The snapshots of %s, which is no more, are no longer needed and were deleted.",
                    shard,
                )
            self._dropped.add(shard)

    # --- membership

    def _workers_changed(self, members: Mapping[str, bytes]) -> None:
        self._workers = members
        self._post_members()

    def _leaving_changed(self, members: Mapping[str, bytes]) -> None:
        self._leaving = members
        self._post_members()

    def _seats_changed(self, members: Mapping[str, bytes]) -> None:
        # While the number changes there may be two members; the larger one does no harm.
        self._ports.post(SeatsChanged(seats=max((int(name) for name in members), default=None)))

    def _post_members(self) -> None:
        if self._workers is None:  # not received yet, which must not read as "there are none"
            return
        members = (
            _member(WorkerName(name), data, name in self._leaving)
            for name, data in self._workers.items()
        )
        self._ports.post(MembersChanged(members=tuple(members)))


def _member(incarnation: WorkerName, data: bytes, leaving: bool) -> Member:
    facts = json.loads(data)
    return Member(
        incarnation=incarnation,
        address=facts["address"],
        host=facts.get("host", ""),
        leaving=leaving,
        weight=facts.get("weight", 1),
    )


def _mentions(table: RangeTable, incarnation: WorkerName) -> bool:
    return any(
        entry.owner == incarnation
        or any(ancestor.incarnation == incarnation for ancestor in entry.lineage)
        for entry in table.shards
    )


def _owners(table: RangeTable) -> str:
    """ "w1 has 2 shards, nobody has 1", the most laden first."""
    counts: dict[str, int] = {}
    for entry in table.shards:
        counts[entry.owner or "nobody"] = counts.get(entry.owner or "nobody", 0) + 1
    return ", ".join(
        f"{owner} has {n}"
        for owner, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
