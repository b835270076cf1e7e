"""The watermark service as processes, on a real ZooKeeper: killed, and taken over by one that stood
by."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from millwheel.adapters.grpc.watermark_client import InjectorClient
from millwheel.adapters.processes.exits import Exit
from millwheel.adapters.zookeeper.coordination import ZooKeeperCoordination
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.watermark import ShardReport
from millwheel.launch.coordinator import embedded_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
_DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = embedded_zookeeper(str(tmp_path_factory.mktemp("zookeeper")))
    server.start()
    yield server.address
    server.stop()


class Injectors:
    """Injector processes of one pipeline, and a worker that follows their leader."""

    def __init__(self, hosts: str, pipeline: str) -> None:
        self._hosts, self._pipeline = hosts, pipeline
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.leader: str | None = None
        self.leaders: queue.Queue[str] = queue.Queue()
        self.watermarks: queue.Queue[dict[str, int]] = queue.Queue()
        self.coordination = ZooKeeperCoordination(hosts, pipeline)
        self.client = InjectorClient(
            lambda: self.leader, self.watermarks.put, lambda shard, token: None
        )
        self.coordination.watch_members("injector-leader", self._lead)

    def _lead(self, members: Mapping[str, bytes]) -> None:
        self.leader = next((json.loads(data)["address"] for data in members.values()), None)
        self.client.leader_changed()
        if self.leader is not None:
            self.leaders.put(self.leader)

    def start(self) -> subprocess.Popen[bytes]:
        where = ["--zookeeper", self._hosts, "--pipeline", self._pipeline]
        return subprocess.Popen([sys.executable, "-m", "millwheel.control.injector", *where])

    def until(self, watermark_us: int) -> None:
        while self.watermarks.get(timeout=_DEADLINE_S) != {"n": watermark_us}:
            pass

    def close(self) -> None:
        self.client.close()
        self.coordination.close()


def test_when_the_leader_is_killed_one_that_stood_by_takes_over(address: str) -> None:
    injectors = Injectors(f"{address}/millwheel", "takeover")
    shards = tuple(ShardEntry(f"n-{at}", part, "w", 1) for at, part in enumerate(tile(2)))
    injectors.coordination.write_table(RangeTable("n", shards))
    running = [injectors.start()]
    try:
        first = injectors.leaders.get(timeout=_DEADLINE_S)
        running.append(injectors.start())
        injectors.client.report(
            {"n": [ShardReport("n-0", 1, 10, "input"), ShardReport("n-1", 1, 20, "input")]}
        )
        injectors.until(10)
        os.kill(running[0].pid, signal.SIGKILL)
        injectors.client.report({"n": [ShardReport("n-0", 1, 15, "input")]})
        while injectors.leaders.get(timeout=_DEADLINE_S) == first:
            pass
        injectors.until(15)
        running[1].terminate()
        assert running[1].wait(_DEADLINE_S) == Exit.STOPPED
    finally:
        injectors.close()
        for process in running:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


def test_a_port_in_use_ends_the_process_with_a_sentence(address: str, tmp_path: Path) -> None:
    where = ["--zookeeper", f"{address}/millwheel", "--pipeline", "ports", "--listen", address]
    ended = subprocess.run(
        [sys.executable, "-m", "millwheel.control.injector", *where], capture_output=True, text=True
    )
    assert ended.returncode == Exit.BAD_CONFIG
    assert "the port is in use" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_one_that_is_started_while_zookeeper_is_away_waits_for_it(tmp_path: Path) -> None:
    """A ZooKeeper that was killed may take its time on a busy machine, and what was killed with it
    must not give up."""
    server = embedded_zookeeper(str(tmp_path / "zookeeper"))
    server.start()
    injectors = Injectors(f"{server.address}/millwheel", "patience")
    server.stop()
    process = injectors.start()
    try:
        time.sleep(15)  # longer than a command waits for an answer
        assert process.poll() is None
        server = embedded_zookeeper(str(tmp_path / "zookeeper"))
        server.start()
        injectors.close()
        injectors = Injectors(f"{server.address}/millwheel", "patience")
        assert injectors.leaders.get(timeout=_DEADLINE_S)
    finally:
        injectors.close()
        process.kill()
        process.wait()
        server.stop()
