"""A shard among those that a worker serves, and the two kinds of answers that need no wire."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby

from millwheel.core.columns.batch import key_list
from millwheel.core.model.keys import KeyHash, key_hash
from millwheel.core.model.lease import Lease
from millwheel.core.model.names import ChannelName, NodeName, ShardName
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.model.watermark import Watermarks
from millwheel.core.pipeline.graph import Graph
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.ports import ShardWork
from millwheel.engine.workers.shard.shard import Shard
from millwheel.errors import InvariantError

_SAMPLE = 256  # keys of a shard by which it could be split
_OF_A_BUNDLE, _ONE_OF = 4, 8
"""About this many keys are sampled per bundle, pseudo-randomly, and at most one in eight. The
master gets the latest ones."""


@dataclass(frozen=True, slots=True)
class LocalReply:
    """A delivery from a shard of this worker: its ack needs no wire."""

    sender: ShardName


@dataclass(slots=True)
class InjectionReply:
    """Answers a client once its records are durable. The operator fills in the figures."""

    answer: Callable[[bool, int, int, int], None]
    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0

    def __call__(self) -> None:
        self.answer(False, self.accepted, self.duplicates, self.rejected)


@dataclass(slots=True)
class WorkMeter:
    """The load of a shard in this worker, and the hashes of a few of its recent keys. ``watcher``
    gets the records of a bundle while rows are being requested."""

    records: int = 0
    busy_us: int = 0
    sample: deque[int] = field(default_factory=lambda: deque(maxlen=_SAMPLE))
    watcher: Callable[[Sequence[Arrival]], None] | None = None

    def count(self, arrivals: Sequence[Arrival], hashed: KeyHash = key_hash) -> None:
        """Count processed records, and remember where a few of their keys lie."""
        if self.watcher is not None:
            self.watcher(arrivals)
        records = sum(len(arrival.batch) for arrival in arrivals)
        self.records += records
        every = max(_ONE_OF, records // _OF_A_BUNDLE)
        index = self.records % every
        if index >= records:
            return
        for arrival in arrivals:
            keys, count = arrival.batch.keys, len(arrival.batch)
            if index < count:
                # Of a column only these become keys: an entry of it may be encoded, or have parts
                # under names.
                some = (
                    keys[index::every]
                    if isinstance(keys, list)
                    else key_list(keys.gather_every(every, index))
                )
                self.sample += map(hashed, some)
                index += len(some) * every
            index -= count


class Life(Enum):
    """Where a shard is between its opening here and its leaving. Only a LIVE one works, sends, and
    takes deliveries."""

    OPENED = "opened"  # its store is open
    KNOWN = "known"  # the injector has its token: reports of earlier owners no longer count
    LIVE = "live"
    LEAVING = "leaving"  # a move is planned
    RELEASED = "released"  # its release was reported to the master


class LifeChange(Enum):
    """Events in the life of a shard."""

    TOKEN_KNOWN = "its token is known"
    BEGINS = "it begins"
    MUST_LEAVE = "it must leave"
    IS_RELEASED = "its release is reported to the master"
    NEW_MASTER = "a new master attaches, without reports"


TRANSITIONS: dict[Life, dict[LifeChange, Life]] = {
    Life.OPENED: {
        LifeChange.TOKEN_KNOWN: Life.KNOWN,
        LifeChange.MUST_LEAVE: Life.LEAVING,
        LifeChange.NEW_MASTER: Life.OPENED,
    },
    Life.KNOWN: {
        LifeChange.TOKEN_KNOWN: Life.KNOWN,
        LifeChange.BEGINS: Life.LIVE,
        LifeChange.MUST_LEAVE: Life.LEAVING,
        LifeChange.NEW_MASTER: Life.KNOWN,
    },
    Life.LIVE: {
        LifeChange.TOKEN_KNOWN: Life.LIVE,
        LifeChange.MUST_LEAVE: Life.LEAVING,
        LifeChange.NEW_MASTER: Life.LIVE,
    },
    # There is no way back to LIVE: the master may have a successor in mind, and a commit made after
    # the release would be missing in the reported one (the simulator's checker TablesAreSound).
    Life.LEAVING: {
        LifeChange.TOKEN_KNOWN: Life.LEAVING,
        LifeChange.MUST_LEAVE: Life.LEAVING,
        LifeChange.IS_RELEASED: Life.RELEASED,
        LifeChange.NEW_MASTER: Life.LEAVING,
    },
    Life.RELEASED: {
        LifeChange.TOKEN_KNOWN: Life.RELEASED,
        LifeChange.MUST_LEAVE: Life.RELEASED,
        LifeChange.NEW_MASTER: Life.LEAVING,
    },
}

LIVE = Life.LIVE
BEGINNING = (Life.OPENED, Life.KNOWN)
LEAVING = (Life.LEAVING, Life.RELEASED)
# By these names, because members of an enum are looked up slowly, and the loop asks in every step
# of every shard.


@dataclass(slots=True)
class LastReport:
    """The last report of a shard, and whether something has happened to it since (``news``).
    ``read``: it reported that it has read all."""

    state: tuple[int, ...] = (MIN_TIME, MIN_TIME, -1)
    read: bool = False
    news: bool = True


@dataclass(slots=True)
class Served:
    """A shard in this worker. It has ``ended`` when all sources before it, the ``roots``, were
    published as read to their end. ``depth``: how far below them it is. It is ``changed`` when
    something happened to it since it had nothing to do; otherwise it need not be looked at before
    ``wakes_at`` (wall clock). ``published_us`` is the watermark of its feeders that was published
    in the life of this worker. ``stalled`` are lanes that wait until they are tried again, and when
    (wall clock). A source ``goes_with_others`` if its silence goes as far as other streams, and
    with the clock alone once these have ended."""

    shard: Shard
    node: NodeName
    roots: frozenset[str] = frozenset()
    depth: int = 0
    goes_with_others: bool = False
    life: Life = Life.OPENED
    ended: bool = False
    changed: bool = True
    wakes_at_us: int = 0
    last: LastReport = field(default_factory=LastReport)
    published_us: int = MIN_TIME
    stalled: dict[tuple[ChannelName, ShardName], int] = field(default_factory=dict)
    done: WorkMeter = field(default_factory=WorkMeter)

    def change(self, change: LifeChange) -> None:
        """Change the state of its life. Raises InvariantError for an event that is impossible
        now."""
        after = TRANSITIONS[self.life].get(change)
        if after is None:
            raise InvariantError(
                f"{self.shard.identity.shard} is {self.life.value}, and {change.value}"
            )
        self.life = after

    def mark_changed(self) -> None:
        """Note that something happened to it: it may have work, and something to report."""
        self.changed = self.last.news = True

    @property
    def lease(self) -> Lease:
        """The token that fences the shard's former owners."""
        return self.shard.identity.lease

    @property
    def works(self) -> bool:
        """True when it may act."""
        return self.life is LIVE

    @property
    def answers(self) -> bool:
        """True while no other worker can have changed what it holds."""
        return self.life is not Life.RELEASED

    @property
    def leaving(self) -> bool:
        """True when it is to go to another worker."""
        return self.life in LEAVING

    def begin(self) -> None:
        """Let it act from now on."""
        self.change(LifeChange.BEGINS)
        self.mark_changed()
        self.shard.start()

    @property
    def reads(self) -> bool:
        """True for a source: it has no sources before it."""
        return not self.roots

    def has_read(self, now_us: int) -> bool:
        """Whether a source with a chain has read all. Its productions may be on their way, and hold
        the watermark as long."""
        operator = self.shard.operator
        return operator.has_chain and operator.hold(now_us).at == MAX_TIME

    def has_ended(self, now_us: int) -> bool:
        """True if it has come to its final end, or has read all, and has not reported it. All
        sources before it ended before that."""
        if not (self.reads or self.ended) or self.last.state[0] == MAX_TIME:
            return False
        if not (self.roots or self.last.read) and self.has_read(now_us):
            return True
        return self.shard.watermark.held(now_us).at == MAX_TIME

    def has_news(self, now_us: int) -> bool:
        """After a bundle without a commit: a source that found nothing has news only when its
        silence moves a watermark."""
        if not self.reads or self.shard.commits.waiting is not None:
            return True
        hold = self.shard.watermark.held(now_us)
        return (hold.at, hold.idle_us) != self.last.state[:2]

    def work(self) -> ShardWork:
        """The load so far."""
        identity, done = self.shard.identity, self.done
        state_bytes = self.shard.store.size_bytes()
        return ShardWork(
            identity.shard,
            identity.token,
            done.records,
            done.busy_us,
            tuple(done.sample),
            state_bytes,
        )

    def follow(self, watermarks: Watermarks, graph: Graph, now_us: int) -> bool:
        """Pass published watermarks to the shard; True if its own may have risen with them."""
        shard, feeders = self.shard, graph.feeders[self.node]
        rose = news = False
        if shard.operator.fellows is not None:
            # A silent source that is polled seldom, or never, runs no bundle that would notice it.
            rose = shard.operator.fellows.update(watermarks, now_us)
        if shard.operator.first is not None:
            news = shard.operator.first.update(watermarks)
        if (fresh := watermarks.lowest_of(feeders)) > self.published_us:
            # Also where its store had that already: its report may rise with the published
            # watermark.
            self.published_us, rose = fresh, True
        if fresh > shard.watermark.input:
            shard.watermark.input, rose = fresh, True
            shard.forget_old_ids()
        if watermarks.raise_shares(shard.input_shares, graph.shares.get(self.node, ()), feeders):
            rose = True
        if not self.ended and self.roots and watermarks.are_read(self.roots):
            self.ended = news = True
            shard.operator.sources_ended()
        # Most broadcasts are about other nodes. They do not wake the shards that they do not
        # concern: a worker has hundreds, and would look at each of them many times a second.
        if rose or news:
            self.mark_changed()
        return rose

    def retry(self, now_us: int) -> None:
        """Send again on the lanes whose time has come."""
        for lane in [lane for lane, at in self.stalled.items() if at <= now_us]:
            del self.stalled[lane]
            self.shard.outbox.restart(*lane)


def sources_and_levels(
    served: Mapping[ShardName, Served],
) -> tuple[list[ShardName], list[tuple[int, list[ShardName]]]]:
    """The shards that read, and (depth below the sources, shards) from the top down."""
    below = [name for name, each in served.items() if not each.reads]
    below.sort(key=lambda name: served[name].depth)
    levels = [
        (depth, list(level)) for depth, level in groupby(below, lambda name: served[name].depth)
    ]
    return [name for name, each in served.items() if each.reads], levels
