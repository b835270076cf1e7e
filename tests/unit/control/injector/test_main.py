from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from millwheel.adapters.grpc.watermark_client import fetch_status
from millwheel.adapters.ports import Coordination
from millwheel.adapters.processes.exits import Exit
from millwheel.control.injector.__main__ import Shutdown, serve
from millwheel.control.injector.server import InjectorServer
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import KeyRange, tile
from millwheel.errors import UnavailableError
from tests.fakes.coordination import FakeCoordination, FakeZooKeeper

_DEADLINE_S = 10.0


class Process:
    """An injector as its entry point runs it, in a thread."""

    def __init__(self, coordination: FakeCoordination) -> None:
        self.coordination = coordination
        self.server = InjectorServer()
        self.ending = Shutdown()
        self.code: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.code.set_result(serve(self.coordination, self.server, self.ending))

    def end(self) -> None:
        self.ending.end(Exit.STOPPED)
        self._thread.join()


class Start:
    """Starts injectors, each with a session of its own, and ends them with the test."""

    def __init__(self) -> None:
        self.zookeeper = FakeZooKeeper(immediate=True)
        self.leaders: list[str] = []
        self.led = threading.Semaphore(0)
        self.zookeeper.connect().watch_members("injector-leader", self._lead)
        self.running: list[Process] = []

    def __call__(self) -> Process:
        self.running.append(Process(self.zookeeper.connect()))
        return self.running[-1]

    def _lead(self, members: object) -> None:
        if members:
            assert isinstance(members, dict)
            self.leaders.append(json.loads(next(iter(members.values())))["address"])
            self.led.release()

    def next_leader(self) -> str:
        assert self.led.acquire(timeout=_DEADLINE_S)
        return self.leaders[-1]


@pytest.fixture
def start() -> Iterator[Start]:
    starting = Start()
    yield starting
    for process in starting.running:
        process.end()


def write_table(session: Coordination) -> None:
    whole: KeyRange = tile(1)[0]
    session.write_table(RangeTable("n", (ShardEntry("n-0", whole, "w", 1),)))


def status_of_leader(address: str) -> list[str]:
    """Nodes the leader knows; it may have won a moment before it serves."""
    while True:
        try:
            return [node.node for node in fetch_status(address).nodes]
        except UnavailableError:
            continue


def test_the_elected_injector_serves_with_the_tables_that_were_there_before_it(
    start: Start,
) -> None:
    write_table(start.zookeeper.connect())
    process = start()
    assert start.next_leader() == process.server.address
    assert status_of_leader(process.server.address) == ["n"]


def test_a_second_injector_stands_by_and_takes_over(start: Start) -> None:
    first = start()
    start.next_leader()
    second = start()
    start.zookeeper.expire(first.coordination)
    assert first.code.result(_DEADLINE_S) == Exit.FENCED
    assert start.next_leader() == second.server.address
    assert status_of_leader(second.server.address) == []


def test_an_injector_that_is_asked_to_stop_ends_well(start: Start) -> None:
    process = start()
    start.next_leader()
    process.ending.end(Exit.STOPPED)
    assert process.code.result(_DEADLINE_S) == Exit.STOPPED


def test_one_that_stands_by_can_be_stopped_too(start: Start) -> None:
    start()
    start.next_leader()
    second = start()
    second.ending.end(Exit.STOPPED)
    assert second.code.result(_DEADLINE_S) == Exit.STOPPED
