"""The master as a pure machine: an event in, effects out. It owns the range tables; ``moves.py``
plans the moves in them.

The machine decides from levels, not from edges: every event first updates the state, and then all
decisions are derived anew from this state, for the nodes about which something has changed.
Therefore each step is idempotent. A newly elected master reads tables and members and continues
whatever was in progress: an owner that is not a member is dead, so its journal is sealed, and then
its shards get new owners.

No change may shorten the order of steps after a death: seal the journal; only then write tables
with new owners, higher tokens and the sealed end in the lineage; only when no table names the dead
worker as owner, remove it from the membership; only when no lineage names it, delete its journal
(never the seal).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from millwheel.control.master.config import MasterConfig
from millwheel.control.master.effects import Effect, WriteRangeTable
from millwheel.control.master.events import (
    Event,
    JournalSealed,
    JournalsFound,
    LoadReported,
    ManifestSeen,
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
from millwheel.control.master.loads import Load
from millwheel.control.master.membership import Membership
from millwheel.control.master.moves import Rebalancing
from millwheel.control.master.tables.holdings import Holdings
from millwheel.control.master.tables.open_nodes import OpenNodes
from millwheel.control.master.tables.planner import Census, NodeDemand, first_table
from millwheel.control.master.tables.spares import HostLoss, losses, seated
from millwheel.control.master.tables.standbys import chosen, followers
from millwheel.control.master.tables.succession import Situation, successor
from millwheel.core.model.names import NO_TOKEN, NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import invariant

_FULL_WEIGHT = 0.001
"""The factor of the weight of a worker whose memory is full, when shards are dealt: it gets some
only where no other can."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A living worker: the weight it states, how many times the time of the others it takes (1: as
    quick), and the used share of its memory (0: unknown)."""

    weight: int
    slowness: float
    memory: float


class MasterState:
    """The state of one elected master."""

    def __init__(self, config: MasterConfig) -> None:
        self._config = config
        self._now_us = 0
        self._loaded = False
        self._membership = Membership()
        self._holdings = Holdings()
        self._rebalancing = Rebalancing(config)
        self._released: dict[tuple[WorkerName, ShardName, Token], int] = {}
        self._manifest_tokens: dict[ShardName, Token] = {}
        self._members_since_us = 0
        self._eligible_since_us: int | None = None
        self._seats = config.expected_workers
        self._followed = {node.name for node in config.nodes if node.standby}
        self._standbys: dict[tuple[NodeName, ShardName], WorkerName] = {}
        self._open = OpenNodes(node.name for node in config.nodes)

    @property
    def tables(self) -> tuple[RangeTable, ...]:
        """The tables as stored."""
        return tuple(self._holdings.stored.values())

    @property
    def live_workers(self) -> tuple[WorkerName, ...]:
        """The members that have not been found dead."""
        return tuple(sorted(self._membership.live()))

    @property
    def loads(self) -> Mapping[ShardName, Load]:
        """The reported loads of shards."""
        return self._rebalancing.loads

    @property
    def workers(self) -> Mapping[WorkerName, WorkerState]:
        """The weight, slowness and memory of each living worker."""
        measured = self._rebalancing
        return {
            name: WorkerState(weight, measured.slowness(name), measured.memory(name))
            for name, weight in self._membership.weights().items()
        }

    def exposures(self) -> tuple[HostLoss, ...]:
        """The hosts whose loss would leave seats empty, the worst first. Without spares there are
        none: then no loss has to be covered."""
        if not self._config.spares or not self._membership.received:
            return ()
        hosts, serving = self._membership.hosts_of_eligible(), self._serving()
        return tuple(
            loss for loss in losses(hosts, serving, hosts.keys() - serving) if loss.missing > 0
        )

    def shards_with_lineage(self) -> tuple[ShardName, ...]:
        """The shards with a lineage, which a newer snapshot would shorten."""
        return tuple(
            entry.shard for _, entry in self._holdings.entries() if entry.lineage or entry.parents
        )

    def validate(self) -> None:
        """Raise InvariantError unless tables and members hold together. For tests: it looks at all
        shards."""
        self._holdings.validate()
        self._membership.validate()
        if self._loaded and self._membership.received:
            lost = (
                self._holdings.owners()
                - self._membership.live().keys()
                - self._membership.dead.keys()
            )
            invariant(
                not lost,
                f"shards are owned by workers that neither live nor are dead: {sorted(lost)}",
            )

    def handle(self, event: Event) -> list[Effect]:
        """The effects of ``event``, to be performed in this order."""
        self._take(event)
        if not self._loaded or not self._membership.received or isinstance(event, LoadReported):
            return []  # loads are weighed at the next tick
        self._membership.declare_absent_dead(self._holdings.mentioned())
        if self._membership.dead and not self._membership.dead.keys().isdisjoint(
            self._holdings.owners()
        ):
            self._rebalancing.lost(self._now_us)
        self._forget_old_news()
        # Chosen for the tables as they stand now; effects of another event may be about others.
        self._standbys = {}
        if isinstance(event, Tick):
            if self._settled(self._config.settle_us):
                nodes = self._rebalancing.plan(
                    self._holdings, self._membership, self._serving(), self._now_us
                )
                self._open.open(*nodes)
            self._choose_standbys()
        return [
            *self._membership.lines(),
            *self._membership.seals(self._holdings.owners()),
            *self._writes(),
            *self._membership.removals(self._holdings.owners()),
            *self._membership.collections(self._holdings.mentioned()),
            *self._rebalancing.answers(self._holdings, self._serving()),
        ]

    def _take(self, event: Event) -> None:
        """Update the state; decide nothing."""
        match event:
            case Tick():
                self._now_us = max(self._now_us, event.now_us)
                self._open.tick(self._now_us)
                self._holdings.try_again()
                self._membership.try_again()
            case TablesLoaded():
                self._loaded = True
                for table in event.tables:
                    self._holdings.take(table)
                if self._holdings.owners():
                    # The last master may have died just after a worker, and was moving shards one
                    # after the other: all of them would go at once now.
                    self._rebalancing.lost(self._now_us)
                self._open.open_all()
            case TableSeen():
                self._holdings.take(event.table)
                self._open.open(event.table.computation)
            case WriteConflicted():
                self._holdings.lost(event.node, event.stored)
                self._open.open(event.node)
            case WriteFailed():
                self._holdings.failed(event.node)
            case ShardReleased():
                self._released[event.incarnation, event.shard, event.token] = event.last_commit
                self._open.open_of(event.shard)
            case LoadReported():
                self._rebalancing.take(event, self._now_us)
            case ManifestSeen():
                token = self._manifest_tokens.get(event.shard, NO_TOKEN)
                self._manifest_tokens[event.shard] = max(token, event.token)
                self._open.open_of(event.shard)
            case MoveRequested():
                self._rebalancing.moves.ask(event)
                self._open.open(event.node)
            case ReshardRequested():
                self._rebalancing.reshardings.ask(event)
                self._open.open(event.resharding.node)
            case _:
                self._take_about_workers(event)

    def _take_about_workers(self, event: Event) -> None:
        match event:
            case MembersChanged():
                if self._membership.take(event.members):
                    self._unsettle()
            case SeatsChanged():
                self._seats = event.seats or self._config.expected_workers
                self._unsettle()
            case WorkerUnreachable():
                self._membership.declare_dead(event.incarnation, event.reason)
            case JournalSealed():
                self._membership.sealed(event.incarnation, event.end)
            case SealFailed():
                self._membership.seal_failed(event.incarnation)
            case JournalsFound():
                self._membership.journals_found(event.incarnations)

    def _unsettle(self) -> None:
        """The set of serving workers may have changed: balance again once the set has been stable
        for a while."""
        self._members_since_us = self._now_us
        self._rebalancing.unsettle()

    def _serving(self) -> set[WorkerName]:
        """The workers that own shards or may be given some: all eligible workers except spares."""
        if not self._config.spares:
            return self._membership.eligible()
        followed = (entry for facts in self._holdings.every() for entry in facts.followed)
        following = followers(followed, self._membership.dead)
        hosts, suspects = self._membership.hosts_of_eligible(), self._membership.suspects()
        return seated(hosts, self._holdings.burdens(), self._seats, suspects, following)

    def _forget_old_news(self) -> None:
        """Drop requests that stored tables have made obsolete, and note when the first worker could
        take shards."""
        if self._released:
            held = {
                (entry.owner, entry.shard, entry.token) for _, entry in self._holdings.entries()
            }
            self._released = {key: commit for key, commit in self._released.items() if key in held}
        eligible = self._membership.eligible()
        self._rebalancing.forget(self._holdings, self._serving())
        if not eligible:
            self._eligible_since_us = None
        elif self._eligible_since_us is None:
            self._eligible_since_us = self._now_us

    def _giving(self) -> bool:
        """Whether shards may be assigned: always while something is served, else once enough
        workers have joined."""
        eligible = self._membership.eligible()
        if not eligible or self._eligible_since_us is None:
            return False
        if (
            self._holdings.owners() & self._membership.live().keys()
            or len(eligible) >= self._config.expected_workers
        ):
            return True
        return self._now_us - self._eligible_since_us >= self._config.grace_us

    def _writes(self) -> Iterator[WriteRangeTable]:
        """Each table of the graph that should change and is not being written."""
        situation = Situation(
            eligible=self._serving() if self._giving() else (),
            dead=self._membership.dead,
            released=self._released,
            moves=self._rebalancing.moves.targets,
            manifest_tokens=self._manifest_tokens,
            reshardings=tuple(self._rebalancing.reshardings.requested),
            standbys=self._standbys,
        )
        open_nodes = self._open.under(frozenset(situation.eligible), dict(situation.dead))
        nodes = [
            node
            for node in self._config.nodes
            if node.name in open_nodes and node.name not in self._holdings.writing
        ]
        if not nodes:
            return
        full = self._rebalancing.full()
        weights = {
            name: weight * _FULL_WEIGHT if name in full else weight
            for name, weight in self._rebalancing.weights(self._membership).items()
        }
        census = Census(
            situation.eligible, self._holdings.expected().values(), self._membership.hosts, weights
        )
        for demand in nodes:
            table = self._next_table(demand, situation, census)
            if table is not None:
                self._holdings.writing[demand.name] = table
                yield WriteRangeTable(table=table)
            elif demand.name in self._holdings.stored:
                self._open.close(demand.name)

    def _next_table(
        self, demand: NodeDemand, situation: Situation, census: Census
    ) -> RangeTable | None:
        """The table to store next; None when the stored one is right."""
        stored = self._holdings.stored.get(demand.name)
        if stored is None:
            return (
                first_table(demand, self._config.expected_workers, census)
                if situation.eligible
                else None
            )
        table = successor(stored, situation, census)
        return None if table == stored else table

    def _choose_standbys(self) -> None:
        """Choose the standbys, when membership has settled and every shard is served."""
        if self._followed and self._settled(self._config.standby_settle_us):
            tables = [self._holdings.stored[node] for node in sorted(self._followed)]
            self._standbys = chosen(tables, self._membership.hosts_of_eligible(), self._serving())
            self._open.open(*self._followed)

    def _settled(self, after_us: int) -> bool:
        """Whether membership has not changed for so long, every node has a table that is not being
        written, and every shard of it has a living owner."""
        if self._now_us - self._members_since_us < after_us:
            return False
        stored, live = self._holdings.stored, self._membership.live()
        if self._holdings.writing or any(
            demand.name not in stored for demand in self._config.nodes
        ):
            return False
        return all(
            self._holdings.facts(demand.name).owners <= live.keys() for demand in self._config.nodes
        )
