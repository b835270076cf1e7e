"""One life of a worker in memory: the real loop, and ports that queue all its requests as work.

No effect happens inside a call of the loop. Its submissions, messages and reports are done later,
one unit of work after the other, so that a crash may come between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millwheel.adapters.spaces.durable import remove_tree
from millwheel.control.savepoints.orders import OrderAnswer, SavepointOrder, Standing
from millwheel.core.formats.codec import decode_batch, encode_batch
from millwheel.core.model.names import ChannelName, NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.times import MAX_TIME
from millwheel.core.model.watermark import ShardReport
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.delivery.outbox import Send
from millwheel.engine.workers.loop.pace import RuntimeLimits
from millwheel.engine.workers.loop.reporting import ReportPace
from millwheel.engine.workers.loop.runtime import WorkerRuntime
from millwheel.engine.workers.loop.snapshots import SnapshotPace
from millwheel.engine.workers.ports import ShardWork, WorkerPorts
from millwheel.engine.workers.threads.copies import Publishing
from millwheel.engine.workers.threads.journal import write_groups
from millwheel.engine.workers.threads.recovery import Recovering
from millwheel.tools.testing.memory.storage import ROOT

if TYPE_CHECKING:
    from millwheel.tools.testing.memory.cluster import MemoryCluster

Work = Callable[[], None]


class _NoSavepoints:
    """A pipeline under test is never asked for a savepoint."""

    def answer(self, answer: OrderAnswer) -> None: ...

    def withdraw(self) -> None: ...

    def checkpoint_path(self, order: SavepointOrder, shard: ShardName) -> str:
        return ""

    def save(
        self, order: SavepointOrder, shard: ShardName, standing: Standing, path: str
    ) -> None: ...


class _NoFollowers:
    """A pipeline under test has no standbys."""

    def follow(self, entry: ShardEntry) -> None: ...

    def drop(self, shard: ShardName) -> None: ...


class MemoryWorker:
    """A worker and, as ``self``, all of its ports."""

    def __init__(self, cluster: MemoryCluster, name: str, connection: int) -> None:
        self.name = name
        self.connection = connection
        self.wakes_at_us = MAX_TIME
        """The time of the loop's next step if nothing happens before (wall clock, µs)."""
        self._cluster = cluster
        self._scratch = f"{ROOT}/scratch/{name}"
        self._events: list[ev.Event] = []
        self._scheduled = False
        self._outbound: list[tuple[str, Token, Send]] = []
        self._answers: list[tuple[Any, ev.Event]] = []
        storage = cluster.storage
        journals, snapshots = storage.journals(), storage.snapshots()
        self._journal = journals.create(name)
        self._recovering = Recovering(storage.stores(name), snapshots, journals, self._scratch)
        self._publishing = Publishing(snapshots, lambda: None)
        ports = WorkerPorts(
            cluster.clock, self, self, self, self, self, self, _NoSavepoints(), _NoFollowers()
        )
        pace = SnapshotPace(cluster.options.snapshot_bytes)
        limits = RuntimeLimits(retry_lane_us=0, reports=ReportPace(0, MAX_TIME), snapshots=pace)
        self._runtime = WorkerRuntime(
            WorkerName(name), cluster.graph, cluster.make_shard, ports, limits
        )

    def post(self, event: ev.Event) -> None:
        """Queue an event for the next step of the loop."""
        self._events.append(event)
        self.wake()

    def validate(self) -> None:
        """Raise InvariantError unless its shards hold together."""
        self._runtime.validate()

    def wake(self) -> None:
        """Step the loop if its time has come."""
        if not self._scheduled:
            self._scheduled = True
            self._cluster.do_later(self._step)

    def _step(self) -> None:
        self._scheduled = False
        events, self._events = self._events, []
        self.wakes_at_us = self._runtime.step(events)
        if self.wakes_at_us <= self._runtime.stepped_at_us:
            self.wake()

    # --- the journal ------------------------------------------------------------------------------

    def submit(self, entries: Sequence[bytes]) -> None:
        self._cluster.do_later(lambda: self._write(list(entries)))

    def write_now(self, entries: Sequence[bytes]) -> int | None:
        return None

    def _write(self, entries: list[bytes]) -> None:
        write_groups(
            self._journal, [entries], lambda event: self._cluster.do_later(lambda: self.post(event))
        )

    def segments(self) -> Sequence[int]:
        return self._journal.segments()

    def delete_segment(self, segment: int) -> None:
        self._journal.delete_segment(segment)

    # --- recoveries and snapshots -----------------------------------------------------------------

    def recover(self, node: NodeName, entry: ShardEntry) -> None:
        self._cluster.do_later(lambda: self._recovering.open(node, entry, self.post))

    def checkpoint_path(self, shard: ShardName, token: Token, number: int) -> str:
        return str(Path(self._scratch) / f"checkpoint-{shard}-{token}-{number}")

    def publish(self, shard: ShardName, token: Token, last_commit: int, path: str) -> None:
        def work() -> None:
            self._publishing.publish(shard, token, last_commit, path, self.post)
            remove_tree(self._cluster.storage.disk, path)

        self._cluster.do_later(work)

    # --- the network ------------------------------------------------------------------------------

    def send(self, address: str, token: Token, send: Send) -> None:
        self._outbound.append((address, token, send))

    def ack(
        self, reply_to: Any, channel: ChannelName, target: ShardName, epoch: int, index: int
    ) -> None:
        self._answers.append((reply_to, ev.AckCame(channel, target, epoch, index)))

    def refuse(
        self, reply_to: Any, channel: ChannelName, target: ShardName, epoch: int, moved: bool
    ) -> None:
        self._answers.append((reply_to, ev.RefusalCame(channel, target, epoch, moved)))

    def flush(self) -> None:
        for address, token, send in self._outbound:
            data = encode_batch(send.batch)
            self._cluster.do_later(self._delivery(address, token, send, data))
        for reply_to, event in self._answers:
            self._cluster.do_later(lambda reply_to=reply_to, event=event: reply_to.post(event))  # type: ignore[misc]
        self._outbound.clear()
        self._answers.clear()

    def _delivery(self, address: str, token: Token, send: Send, data: bytes) -> Work:
        def arrive() -> None:
            batch = decode_batch(data)
            came = ev.DeliveryCame(
                send.channel, send.node, send.target, token, send.epoch, send.index, batch, self
            )
            self._cluster.worker(address).post(came)

        return arrive

    # --- injector and master ----------------------------------------------------------------------

    def report(self, by_node: Mapping[NodeName, Sequence[ShardReport]]) -> None:
        self._cluster.do_later(partial(self._cluster.reported, self.connection, by_node))

    def forget(self, shard: ShardName) -> None:
        pass

    def released(self, shard: ShardName, token: Token, last_commit: int) -> None:
        pass

    def load(self, loads: Sequence[ShardWork]) -> None:
        pass
