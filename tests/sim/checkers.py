"""The invariants, one class each. Its name is what it promises; it is told what happens, and raises
Failure. docs/simulation.md sums them up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from millwheel.adapters.ports import Manifest
from millwheel.core.columns.batch import AnyBatch
from millwheel.core.formats.codec import FULL_STOP, Commit, decode_commit
from millwheel.core.formats.store_layout import CHANNEL
from millwheel.core.model.names import producer_of
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import check_tiling
from millwheel.core.model.records import Domain
from millwheel.core.model.times import IDLE_TIME, MIN_TIME
from millwheel.core.pipeline.graph import Graph, Node, NodeKind
from millwheel.core.pipeline.spec import DEAD_LETTERS, ComputationSpec
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.core.windows.panes import RETRACTION_FIELD, Accumulation
from millwheel.engine.workers.delivery.high_water_marks import (
    HighWaterMarks,
    decode_high_water_marks,
)
from millwheel.engine.workers.delivery.outbox import Send, split_epoch
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.shard.shard import Shard
from millwheel.errors import InvariantError, MillwheelError
from tests.sim.asking import AnswersAreOfTheirCommit
from tests.sim.kernel import Failure
from tests.sim.lateness import InjectedRecordsAreLateByThoseBeforeThem
from tests.sim.model import CommitModel
from tests.sim.storage import Storage

_PUTS = 10
"""A record, or timer, of a bundle makes fewer entries of a commit."""
_ANY_PUTS = 200
"""The smallest bundle may make so many: an arrival is taken whole, and what was sent and not acked
is stored."""

_LOOKS = 32
"""One step in so many is followed by a look at the whole state of what took it."""


class AcksFollowCommits:
    """A delivery is acked only when the mark of its channel is durable at the consumer."""

    def __init__(self, model: CommitModel) -> None:
        self._model = model
        self._sent: dict[tuple[str, str, int, int], int] = {}

    def sent(self, send: Send) -> None:
        last = send.batch.last_seq
        if last:
            self._sent[send.channel, send.target, send.epoch, send.index] = last

    def acked(self, worker: str, channel: str, target: str, epoch: int, index: int) -> None:
        last = self._sent.get((channel, target, epoch, index), 0)
        if last > self._model.mark(target, channel):
            raise Failure(
                f"acks follow commits: {worker} acks {channel} to {target} up to {last}, but"
                f" durable is {self._model.mark(target, channel)}",
                (channel, target, worker),
            )


class EpochsAreTheirOwners:
    """Every delivery is in an epoch of its sender's token, however often the sender restarted its
    lanes. So the epochs of the next owner, whose token is higher, are newer."""

    def observe(self, shard: Shard) -> None:
        identity = shard.identity
        outbox: Any = shard.outbox
        right = outbox.sends

        def sends(*given: Any) -> Iterator[Send]:
            for send in right(*given):
                if split_epoch(send.epoch)[0] != identity.token:
                    raise Failure(
                        f"epochs are their owner's: {identity.shard} sends under token"
                        f" {identity.token} to {send.target}, in epoch {split_epoch(send.epoch)}",
                        (identity.shard, send.target),
                    )
                yield send

        outbox.sends = sends


class NothingIsSentBeforeItIsDurable:
    """Strong productions leave a worker after their commit; weak ones and reads of sources need not
    wait. A shard of the same worker may have them earlier, but what it makes of them is durable no
    earlier."""

    def __init__(self, model: CommitModel, graph: Graph) -> None:
        self._model, self._graph = model, graph

    def sent(self, worker: str, send: Send) -> None:
        model = self._model.shards.get(send.channel)
        if model is None or not send.batch.last_seq:
            return
        if send.batch.last_seq >= model.meta.next_seq:
            raise Failure(
                f"nothing is sent before it is durable: {worker} sends"
                f" {send.channel}#{send.batch.last_seq}, the durable commits end before"
                f" {model.meta.next_seq}",
                (send.channel, send.target, worker),
            )

    def applied(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            for store_key, data in commit.puts:
                if store_key.startswith(CHANNEL):
                    self._applied(
                        commit.shard, store_key[1:].decode(), decode_high_water_marks(data)
                    )

    def _applied(self, shard: str, channel: str, known: HighWaterMarks | int) -> None:
        model, last = (
            self._model.shards.get(channel),
            known if isinstance(known, int) else known.highest,
        )
        if model is not None and last >= model.meta.next_seq:
            raise Failure(
                f"nothing is sent before it is durable: {shard} has applied {channel} up to {last},"
                f" whose durable commits end before {model.meta.next_seq}",
                (shard, channel),
            )


class WatermarksNeverPassPendingWork:
    """What was published of a node is behind every record of it that a consumer has yet to apply.

    Whether a bundle counts is known when its commit is durable: a zombie's bundles do not count.

    A source that was silent has let the watermark pass, and takes what comes then
    (docs/guarantees.md: windows judge it, callbacks get it). What is made of such a record may be
    as early as the record, and no earlier. Change logs count late records of any source.

    So it is with a timer that a callback sets for a time that has passed (docs/pipeline.md): what
    its call makes may be as early as the timer. Not so where the watermark has passed timers that
    waited before.

    A record that takes back a version of a change log has that version's time (docs/pipeline.md),
    and what is made of it may be as early. The new version may not.
    """

    def __init__(self, model: CommitModel, graph: Graph) -> None:
        self._model, self._graph = model, graph
        self._held = frozenset(name for name, node in graph.nodes.items() if _is_held(graph, node))
        self._takes_late = frozenset(
            name
            for name, node in graph.nodes.items()
            if node.computation is not None and node.computation.is_change_log
        )
        self._takes_back = frozenset(
            name for name in self._takes_late if _takes_back(graph.nodes[name])
        )
        self.published: dict[str, int] = {}
        self._silent: set[str] = set()
        self._overtaken: dict[str, int] = {}
        self._pending: set[tuple[Any, str, int]] = set()
        """The event timers behind the watermark of their node that waited as the bundle began."""

    def broadcast(self, watermarks: dict[str, int]) -> None:
        for node, watermark in watermarks.items():
            self.published[node] = max(watermark, self.published.get(node, watermark))

    def begins(self, shard: Shard, bundle: Any) -> None:
        identity = shard.identity
        store_key = (identity.shard, identity.token, bundle.number)
        self._pending = self._behind(shard, bundle)
        for arrival in bundle.arrivals:
            if not len(arrival.batch) or arrival.batch.stream == DEAD_LETTERS:
                continue
            feeder, earliest = producer_of(arrival.channel), arrival.batch.earliest
            if (
                feeder not in self._held
                and identity.node in self._takes_late
                and earliest < bundle.watermark
            ):
                self._overtake(identity.node, earliest)
                continue
            published = self.published.get(feeder or "")
            if published is None or published == IDLE_TIME or earliest >= published:
                continue
            if feeder in self._silent or earliest >= self._overtaken.get(feeder, IDLE_TIME):
                self._overtake(identity.node, earliest)
                continue
            if feeder not in self._held:  # no watermark of it is promised
                continue
            if feeder in self._takes_back and _earliest_version(arrival.batch) >= published:
                self._overtake(identity.node, earliest)
                continue
            self._model.doubtful[store_key] = (
                f"watermarks never pass pending work: {feeder} is at {published}, but"
                f" {identity.shard} applies a record of it at {earliest}"
            )

    def _overtake(self, node: str, earliest: int) -> None:
        self._overtaken[node] = min(earliest, self._overtaken.get(node, earliest))

    def ended(self, shard: Shard, bundle: Any) -> None:
        """A bundle has run: whether its source is silent, and what timers it set behind."""
        node = shard.identity.node
        if (
            self._graph.nodes[node].kind is NodeKind.SOURCE
            and shard.operator.hold(bundle.now_us).at == IDLE_TIME
        ):
            self._silent.add(node)
        passed = self._overtaken.get(node, IDLE_TIME)
        if any(at < passed for _, _, at in self._pending):  # it should have waited for these
            return
        owns = getattr(getattr(shard.operator, "_context", None), "owns", None)
        for _, tag, at in self._behind(shard, bundle) - self._pending:
            if owns is not None and owns(tag):
                self._overtake(node, at)

    def _behind(self, shard: Shard, bundle: Any) -> set[tuple[Any, str, int]]:
        """The event timers behind the watermark of their node that wait, or have fired."""
        published = self.published.get(shard.identity.node, MIN_TIME)
        fired = [(due.key, due.tag, due.at) for due in bundle.due if due.domain is Domain.EVENT]
        waiting = bundle.timers[Domain.EVENT].items() if Domain.EVENT in bundle.timers else ()
        return {timer for timer in (*fired, *waiting) if timer[2] < published}


def _is_held(graph: Graph, node: Node) -> bool:
    """False for sources, which may send late records, for what consumes its own output, since what
    goes round comes late, and for windows that fire for late records (docs/windows.md: such a pane
    is late itself); and for all that comes behind one of the last two."""
    above = {node.name}
    while more := {feeder for name in above for feeder in graph.feeders[name]} - above:
        above |= more
    late = any(graph.circle(name) or _fires_late(graph.nodes[name]) for name in above)
    return node.kind is NodeKind.COMPUTATION and not late


def _fires_late(node: Node) -> bool:
    own = node.computation
    work = None if own is None else own.windowed
    return work is not None and (
        work.firing.allowed_lateness_us > 0 or work.firing.late == "refire"
    )


def _takes_back(node: Node) -> bool:
    own = node.computation
    return own is not None and own.firing.accumulation == Accumulation.RETRACTING.value


def _earliest_version(batch: AnyBatch) -> int:
    """The earliest time of the records that take nothing back."""
    rows = batch.rows()
    return min(
        (
            at
            for at, value in zip(rows.timestamps, rows.values, strict=True)
            if RETRACTION_FIELD.encode() not in msgspec.msgpack.encode(value)
        ),
        default=IDLE_TIME,
    )


class TimersAreNeverEarly:
    """An event timer fires when the watermark has passed it, and the watermark was published."""

    def __init__(
        self, watermarks: WatermarksNeverPassPendingWork, model: CommitModel, graph: Graph
    ) -> None:
        self._watermarks, self._model, self._graph = watermarks, model, graph

    def begins(self, shard: Shard, bundle: Any) -> None:
        published = min(
            (
                self._watermarks.published.get(node, -(2**63))
                for node in self._graph.feeders[shard.identity.node]
            ),
            default=2**63,
        )
        for due in bundle.due:
            if due.domain is Domain.EVENT and not due.at < min(bundle.watermark, published):
                store_key = (shard.identity.shard, shard.identity.token, bundle.number)
                self._model.doubtful[store_key] = (
                    f"timers are never early: {due.tag} of {due.key} at {due.at} fires at watermark"
                    f" {bundle.watermark}, published is {published}"
                )


@dataclass(slots=True)
class Ledger:
    """What is known of the store: who is sealed, which snapshots stand, what lies in which
    segment."""

    sealed: dict[str, int] = field(default_factory=dict)
    covered: dict[str, int] = field(default_factory=dict)
    released: dict[tuple[str, int], int] = field(default_factory=dict)
    segments: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)

    def published(self, shard: str, last_commit: int) -> None:
        self.covered[shard] = max(last_commit, self.covered.get(shard, 0))


class TablesAreSound:
    """Ranges tile the key space at every version; tokens never fall; an owner changes only after
    its seal or its release; an ancestor leaves a lineage only when a snapshot of a later owner
    stands; no slot is cut."""

    def __init__(
        self, ledger: Ledger, latest: Callable[[str], Manifest | None], graph: Graph
    ) -> None:
        self._ledger, self._latest, self._graph = ledger, latest, graph
        self._names: set[str] = set()

    def written(self, stored: RangeTable | None, table: RangeTable) -> None:
        try:
            check_tiling((entry.range for entry in table.shards), table.computation)
        except (InvariantError, ValueError) as ex:
            raise Failure(f"ranges tile the key space: {ex}", (table.computation,)) from ex
        grain = self._graph.grain(table.computation)
        for entry in table.shards:
            if entry.range.lo % grain:
                raise Failure(f"no slot is in two shards: {entry}", (entry.shard,))
            before = stored.entry(entry.shard) if stored is not None else None
            if before is not None:
                self._compare(before, entry)
        if stored is not None:
            self._heirs(stored, table)

    def _heirs(self, stored: RangeTable, table: RangeTable) -> None:
        """Shards come and go by splits and merges: those that go were released, those that come
        name them as parents, and get higher tokens."""
        after = {entry.shard for entry in table.shards}
        gone = {entry.shard: entry for entry in stored.shards if entry.shard not in after}
        for before in gone.values():
            if before.owner and (before.shard, before.token) not in self._ledger.released:
                raise Failure(
                    f"an owner changes only after its seal or release: {before} is no more",
                    (before.shard, before.owner),
                )
        for entry in table.shards:
            if stored.entry(entry.shard) is not None:
                continue
            about = (entry.shard, *(parent.shard for parent in entry.parents))
            wanted = {before.shard for before in gone.values() if before.range.overlap(entry.range)}
            if {parent.shard for parent in entry.parents} != wanted or entry.shard in self._names:
                raise Failure(
                    f"children name their parents: {entry} should come from {wanted}", about
                )
            for parent in entry.parents:
                last = self._ledger.released.get((parent.shard, parent.token))
                if last != parent.last_commit or (entry.owner and entry.token <= parent.token):
                    raise Failure(
                        f"children name their parents: {entry}, {parent.shard} was released at"
                        f" {last}",
                        about,
                    )
        self._names |= after | set(gone)

    def _compare(self, before: ShardEntry, entry: ShardEntry) -> None:
        about = (entry.shard, before.owner, entry.owner)
        if entry.token < before.token or (
            entry.owner != before.owner and entry.owner and entry.token == before.token
        ):
            raise Failure(f"tokens never fall: {entry.shard} goes from {before} to {entry}", about)
        if before.owner and (entry.owner, entry.token) != (before.owner, before.token):
            released = (entry.shard, before.token) in self._ledger.released
            if before.owner not in self._ledger.sealed and not released:
                raise Failure(
                    f"an owner changes only after its seal or release: {entry.shard} leaves"
                    f" {before.owner}",
                    about,
                )
        if before.parents and not entry.parents and self._latest(entry.shard) is None:
            raise Failure(
                f"replay starts only after a snapshot: {entry.shard} forgets its parents", about
            )
        kept = {ancestor[:2] for ancestor in entry.lineage}
        for ancestor in before.lineage:
            if ancestor[:2] not in kept:
                newest = self._latest(entry.shard)
                if newest is None or newest.token <= ancestor.token:
                    raise Failure(
                        f"replay starts only after a snapshot: {entry.shard} forgets {ancestor},"
                        f" there is {newest}",
                        about,
                    )


class NothingNeededIsDeleted:
    """A segment goes when snapshots hold all its commits, a journal when no table names it; the
    snapshots of a shard when no table has it, not even as a parent."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def segment(self, incarnation: str, segment: int) -> None:
        for shard, number in self._ledger.segments.get((incarnation, segment), {}).items():
            if self._ledger.covered.get(shard, 0) < number:
                raise Failure(
                    f"nothing needed is deleted: segment {segment} of {incarnation} holds commit"
                    f" {number} of {shard}, snapshots go to {self._ledger.covered.get(shard, 0)}",
                    (shard, incarnation),
                )

    def journal(self, incarnation: str, tables: Sequence[RangeTable]) -> None:
        for table in tables:
            for entry in table.shards:
                names = {entry.owner, *(ancestor.incarnation for ancestor in entry.lineage)}
                if incarnation in names:
                    raise Failure(
                        f"nothing needed is deleted: the journal of {incarnation} is collected,"
                        f" {entry.shard} needs it",
                        (entry.shard, incarnation),
                    )

    def snapshots(self, shard: str, tables: Sequence[RangeTable]) -> None:
        for table in tables:
            for entry in table.shards:
                if shard == entry.shard or any(shard == parent.shard for parent in entry.parents):
                    raise Failure(
                        f"nothing needed is deleted: the snapshots of {shard} are dropped,"
                        f" {entry.shard} needs them",
                        (shard, entry.shard),
                    )


class SnapshotsReferenceOnlyGoodFiles:
    """A published manifest can be restored at any time: its files exist and pass their
    checksums."""

    def __init__(self, check: Callable[[str], None]) -> None:
        self._check = check
        self.off = False

    def published(self, shard: str) -> None:
        if self.off:
            return
        try:
            self._check(shard)
        except MillwheelError as ex:
            raise Failure(
                f"a published manifest references only good files: {shard}: {ex}", (shard,)
            ) from ex


class Valid(Protocol):
    """What can tell whether it holds together."""

    def validate(self) -> None: ...


class EveryPartHoldsTogether:
    """Between two steps, what a part of the cluster counts is there, and what it has in memory is
    in its store. To look takes as long as a step or two."""

    def __init__(self) -> None:
        self._steps = 0

    def look(self, part: Valid) -> None:
        self._steps += 1
        if self._steps % _LOOKS == 0:
            part.validate()


class NoCommitIsAsLargeAsItsShard:
    """What one bundle changes depends on what came and on the timers that were due, not on all that
    its shard holds."""

    def __init__(self, limits: ShardLimits) -> None:
        self._most = _ANY_PUTS + _PUTS * (limits.bundle + limits.timers)

    def durable(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            if len(commit.puts) > self._most:
                raise Failure(
                    f"no commit is as large as its shard: commit {commit.number} of {commit.shard}"
                    f" has {len(commit.puts)} entries, more than {self._most}",
                    (commit.shard,),
                )


class Checkers:
    """All of them, as the world calls them."""

    def __init__(self, graph: Graph, storage: Storage, limits: ShardLimits) -> None:
        self.sizes = NoCommitIsAsLargeAsItsShard(limits)
        self.sound = EveryPartHoldsTogether()
        self.model = CommitModel()
        self.ledger = Ledger()
        self.acks = AcksFollowCommits(self.model)
        self.epochs = EpochsAreTheirOwners()
        self.lateness = InjectedRecordsAreLateByThoseBeforeThem()
        self.sends = NothingIsSentBeforeItIsDurable(self.model, graph)
        self.watermarks = WatermarksNeverPassPendingWork(self.model, graph)
        self.timers = TimersAreNeverEarly(self.watermarks, self.model, graph)
        self.tables = TablesAreSound(self.ledger, storage.latest, graph)
        self.deletions = NothingNeededIsDeleted(self.ledger)
        self.answers = AnswersAreOfTheirCommit(self.model)
        self.manifests = SnapshotsReferenceOnlyGoodFiles(storage.check_snapshot)

    def observe(self, shard: Shard) -> Shard:
        """Look at every bundle of a shard before its operator does, and at what it sends."""
        self.epochs.observe(shard)
        self.lateness.observe(shard)
        operator: Any = shard.operator
        right = operator.run

        spec = getattr(operator, "_spec", None)

        def run(bundle: Any) -> None:
            if isinstance(spec, ComputationSpec) and spec.name == self.answers.asked:
                slices = spec.work if isinstance(spec.work, SlicesSpec) else None
                self.answers.begins(shard, bundle, slices)
            self.watermarks.begins(shard, bundle)
            self.timers.begins(shard, bundle)
            right(bundle)
            self.watermarks.ended(shard, bundle)

        operator.run = run
        return shard

    def sent(self, worker: str, send: Send) -> None:
        self.sends.sent(worker, send)
        self.acks.sent(send)

    def durable(self, worker: str, segment: int, entries: list[bytes]) -> None:
        contents = self.ledger.segments.setdefault((worker, segment), {})
        commits = [decode_commit(entry) for entry in entries if entry != FULL_STOP]
        contents.update({commit.shard: commit.number for commit in commits})
        self.sizes.durable(commits)
        self.model.acked(worker, commits)
        self.sends.applied(commits)
