"""Masters and workers as real processes on a real ZooKeeper, killed with the real signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from millwheel.adapters.grpc.channels import new_channel
from millwheel.adapters.journal.journals import FileJournals
from millwheel.adapters.pb import master_pb2 as pb
from millwheel.adapters.pb.master_pb2_grpc import MasterStub
from millwheel.adapters.processes.lifeline import child_environment
from millwheel.adapters.zookeeper.coordination import ZooKeeperCoordination
from millwheel.adapters.zookeeper.server import EmbeddedZooKeeper
from millwheel.control.master.__main__ import demands
from millwheel.control.roots.shipping import ship
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import FencedError
from millwheel.language.spec import load_pipeline
from tests.slow.runs import zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PIPELINE = """\
pipeline: hits
streams:
  hits:
    source: {files: {path: "none/*.jsonl", format: jsonl}}
    timestamp: time
computations:
  traffic:
    input: {hits: {key: path}}
    window: {tumbling: 1m}
    aggregate: {hits: count}
    output: by_minute
sinks:
  by_minute: {stdout: {}}
"""
_DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


class Cluster:
    """Processes of one pipeline, and what ZooKeeper says about them."""

    def __init__(self, root: Path, zookeeper: str) -> None:
        self.root = root
        self.zookeeper = f"{zookeeper}/{root.name}"
        self.nodes = {demand.name for demand in demands(str(root))}
        self.pids: dict[str, subprocess.Popen[bytes]] = {}
        self.session = ZooKeeperCoordination(self.zookeeper, "hits")
        self.members: Mapping[str, bytes] = {}
        self.leaders: Mapping[str, bytes] = {}
        self.session.watch_members("workers", lambda members: setattr(self, "members", members))
        self.session.watch_members(
            "masters-leader", lambda members: setattr(self, "leaders", members)
        )

    def start_master(self, name: str, workers: int = 2) -> None:
        flags = ["--root", str(self.root), "--zookeeper", self.zookeeper, "--pipeline", "hits"]
        self._start(name, ["-m", "millwheel.control.master", *flags, "--workers", str(workers)])

    def start_worker(self, name: str) -> None:
        self._start(
            name, ["-m", "tests.slow.stub_worker", name, str(self.root), self.zookeeper, "hits"]
        )

    def _start(self, name: str, arguments: list[str]) -> None:
        with (self.root / f"{name}.log").open("ab") as log:
            command = [sys.executable, *arguments]
            self.pids[name] = subprocess.Popen(
                command, stderr=log, stdout=log, env=child_environment()
            )

    def send(self, name: str, number: int) -> None:
        self.pids[name].send_signal(number)

    def owners(self) -> set[str]:
        return {entry.owner for table in self.tables().values() for entry in table.shards}

    def tables(self) -> dict[str, RangeTable]:
        return self.session.tables()

    def served_by(self, *workers: str) -> bool:
        tables = self.tables()
        entries = [entry for table in tables.values() for entry in table.shards]
        return (
            tables.keys() == self.nodes
            and {e.owner for e in entries} == set(workers)
            and not any(e.next_owner for e in entries)
        )

    def leader(self) -> MasterStub:
        self.eventually(lambda: self.leaders)
        return MasterStub(new_channel(json.loads(next(iter(self.leaders.values())))["address"]))

    def eventually(self, condition: Callable[[], object]) -> float:
        """Seconds until it was so."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < _DEADLINE_S, self.logs()
            time.sleep(0.005)
        return time.monotonic() - began

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text()}" for path in sorted(self.root.glob("*.log"))
        )

    def close(self) -> None:
        for process in self.pids.values():
            process.kill()
            process.wait()
        self.session.close()


@pytest.fixture
def cluster(tmp_path: Path, server: EmbeddedZooKeeper) -> Iterator[Cluster]:
    user = tmp_path / "user"
    user.mkdir()
    (user / "pipeline.yaml").write_text(PIPELINE)
    root = tmp_path / f"root-{os.getpid()}-{time.monotonic_ns()}"
    root.mkdir()
    ship(user / "pipeline.yaml", {}, root, load_pipeline(user / "pipeline.yaml"))
    made = Cluster(root, server.address)
    yield made
    made.close()


def test_ranges_are_given_to_workers_and_taken_from_one_that_is_killed(cluster: Cluster) -> None:
    cluster.start_master("m1")
    for name in ("w1", "w2"):
        cluster.start_worker(name)
    cluster.eventually(lambda: cluster.served_by("w1", "w2"))
    cluster.send("w1", signal.SIGKILL)
    took_s = cluster.eventually(lambda: cluster.served_by("w2"))
    assert took_s < 1.0, f"{took_s} s\n{cluster.logs()}"
    cluster.eventually(lambda: set(cluster.members) == {"w2"})
    with pytest.raises(FencedError):
        FileJournals(str(cluster.root)).create("w1")


def test_a_worker_that_joins_gets_its_share_by_planned_moves(cluster: Cluster) -> None:
    cluster.start_master("m1", workers=1)
    cluster.start_worker("w1")
    cluster.eventually(lambda: cluster.served_by("w1"))
    cluster.start_worker("w2")
    cluster.eventually(lambda: cluster.served_by("w1", "w2"))
    for table in cluster.tables().values():
        assert sorted(entry.owner for entry in table.shards) == ["w1", "w2"]
        assert all(a.sealed_end == -1 for entry in table.shards for a in entry.lineage)


def test_a_second_master_takes_over_when_the_first_is_killed_together_with_a_worker(
    cluster: Cluster,
) -> None:
    cluster.start_master("m1")
    cluster.eventually(lambda: cluster.leaders)
    first = set(cluster.leaders)
    cluster.start_master("m2")
    for name in ("w1", "w2"):
        cluster.start_worker(name)
    cluster.eventually(lambda: cluster.served_by("w1", "w2"))
    cluster.send("m1", signal.SIGKILL)
    cluster.send("w2", signal.SIGKILL)
    took_s = cluster.eventually(lambda: cluster.served_by("w1"))
    assert took_s < 6.0, cluster.logs()
    assert set(cluster.leaders) != first


def test_a_paused_worker_loses_its_ranges_with_its_session_and_ends_when_it_wakes(
    cluster: Cluster,
) -> None:
    cluster.start_master("m1")
    for name in ("w1", "w2"):
        cluster.start_worker(name)
    cluster.eventually(lambda: cluster.served_by("w1", "w2"))
    cluster.send("w1", signal.SIGSTOP)
    took_s = cluster.eventually(lambda: cluster.served_by("w2"))
    assert took_s < 5.0, cluster.logs()
    cluster.send("w1", signal.SIGCONT)
    cluster.eventually(lambda: cluster.pids["w1"].poll() is not None)


def test_the_leader_describes_and_moves_and_refuses_nonsense(cluster: Cluster) -> None:
    cluster.start_master("m1")
    for name in ("w1", "w2"):
        cluster.start_worker(name)
    cluster.eventually(lambda: cluster.served_by("w1", "w2"))
    leader = cluster.leader()
    cluster.eventually(
        lambda: sorted(leader.Describe(pb.DescribeRequest(), timeout=5).workers) == ["w1", "w2"]
    )
    reply = leader.Describe(pb.DescribeRequest(), timeout=5)
    assert {RangeTable.decode(data, 0).computation for data in reply.tables} == cluster.nodes
    before = next(entry for entry in cluster.tables()["traffic"].shards if entry.owner == "w1")
    moved = leader.Move(pb.MoveRequest(node="traffic", shard=before.shard, worker="w2"), timeout=5)
    assert moved.accepted, moved.reason

    def done() -> bool:
        entry = cluster.tables()["traffic"].entry(before.shard)
        return entry is not None and (entry.owner, entry.token) == ("w2", before.token + 1)

    cluster.eventually(done)
    refused = leader.Move(
        pb.MoveRequest(node="traffic", shard="traffic-99", worker="w2"), timeout=5
    )
    assert not refused.accepted
    assert "traffic-99" in refused.reason


def test_a_killed_zookeeper_that_comes_back_disturbs_nobody(
    cluster: Cluster, server: EmbeddedZooKeeper
) -> None:
    cluster.start_master("m1")
    for name in ("w1", "w2"):
        cluster.start_worker(name)
    cluster.eventually(lambda: cluster.served_by("w1", "w2"))
    before = cluster.tables()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    cluster.eventually(lambda: not server.alive())
    server.restart()
    cluster.start_worker("w3")
    cluster.eventually(lambda: set(cluster.members) == {"w1", "w2", "w3"})
    assert cluster.tables() == before or cluster.eventually(
        lambda: cluster.served_by("w1", "w2", "w3")
    )
    assert all(process.poll() is None for process in cluster.pids.values()), cluster.logs()
