"""One life of one watermark service: election, the real runtime, and its connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.control.injector.events import RangesChanged
from millwheel.control.injector.runtime import InjectorRuntime
from millwheel.control.injector.wire import read_frame, tally_messages
from millwheel.core.model.failures import CallKind, Tally
from millwheel.errors import MillwheelError
from tests.sim.network import Connection
from tests.sim.process import Mailbox, Process

if TYPE_CHECKING:
    from tests.sim.world import World


class SimInjector(Process):
    """An injector process: it stands by until it is elected, and ends with its session."""

    def __init__(self, world: World, slot: int) -> None:
        super().__init__(world.sim, f"i{slot}-{world.sim.number()}")
        self.world, self.slot = world, slot
        self.leading = False
        self.runtime = InjectorRuntime()
        self._mailbox = Mailbox(self)
        self._won = Mailbox(self)
        self.session = world.zookeeper.connect(self)
        self.spawn(self._main)

    def _main(self) -> None:
        """As in :mod:`millwheel.control.injector.__main__`."""
        session = self.session
        session.on_lost(self._fenced)
        session.watch_tables(lambda table: self._mailbox.put(RangesChanged(table)))
        try:
            session.elect(
                "injector",
                self.name,
                msgspec.json.encode({"address": self.name}),
                lambda: self._won.put(1),
            )
            self.spawn(self._loop)
            self._won.get()
            for table in session.tables().values():
                self._mailbox.put(RangesChanged(table))
            self.leading = True
        except MillwheelError as ex:
            self.sim.trace(f"{self.name} ends: {ex}", self.name)
            self.end()

    def _fenced(self) -> None:
        self.sim.trace(f"{self.name} ends: its session is lost", self.name)
        self.end()

    def _loop(self) -> None:
        while True:
            wake_us = self.runtime.step(
                self._mailbox.take(self.sim.delay(1, 50), 0), self.clock.monotonic_us()
            )
            self.world.checkers.sound.look(self.runtime.state)
            self.sleep(self.sim.delay(5, 100))
            if not len(self._mailbox):
                self._mailbox.take(0, max(1, wake_us - self.clock.monotonic_us()))

    def accept(self, worker: Process, hear: Callable[[pb.Broadcast], None]) -> Connection:
        """A worker connects; one that stands by refuses."""
        number = self.sim.number()
        connection = self.world.network.connect(
            worker, self, lambda frame: self._read(number, frame), hear
        )
        if not self.alive or not self.leading:
            connection.cut()
        else:
            # Before any frame of it can arrive, as in the server: what is answered earlier would be
            # lost.
            self._mailbox.put(self.runtime.connect(number, _Line(self.world, connection)))
        return connection

    def _read(self, number: int, frame: pb.ReportFrame) -> None:
        for event in read_frame(number, frame):
            self._mailbox.put(event)


class _Line:
    """What one connection is told, as messages."""

    def __init__(self, world: World, connection: Connection) -> None:
        self._world, self._connection = world, connection

    def greet(self, watermarks: Mapping[str, int]) -> None:
        self.watermarks(watermarks)

    def watermarks(self, watermarks: Mapping[str, int]) -> None:
        self._world.checkers.watermarks.broadcast(dict(watermarks))
        self._tell(
            watermarks=[pb.Watermark(node=node, watermark_us=us) for node, us in watermarks.items()]
        )

    def tallies(self, tallies: Mapping[str, Mapping[CallKind, Tally]]) -> None:
        self._tell(tallies=tally_messages(tallies))

    def tokens(self, tokens: Mapping[str, int]) -> None:
        self._tell(
            known=[pb.TokenKnown(shard=shard, token=token) for shard, token in tokens.items()]
        )

    def close(self) -> None:
        pass

    def _tell(self, **parts: Any) -> None:
        self._connection.to_client(pb.Broadcast(**parts))
