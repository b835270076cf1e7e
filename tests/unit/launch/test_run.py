"""One run while it is alive: what is started in which order, what it refuses, and what is left when
it is over."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from millwheel.control.roots.root import Root
from millwheel.core.model.names import NO_TOKEN, NO_WORKER, NodeName, shard_name
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.graph import ClusterView, Graph, NodeView
from millwheel.engine.letters import Replays
from millwheel.errors import SetupError
from millwheel.language.spec import load_pipeline
from millwheel.launch import run as module
from millwheel.launch.launchers.warm_children import ChildSpec
from millwheel.launch.members import StopRequest
from millwheel.launch.progress.summary import Summary
from millwheel.launch.run import Running
from millwheel.launch.settings import LauncherKind, RunSettings
from tests.fakes.coordination import FakeZooKeeper

PIPELINE = """
pipeline: clicks
streams: {clicks: {source: {injection: {}}, timestamp: at}}
computations: {by_ad: {input: {clicks: {key: ad}}, output: counted, window: {tumbling: 10s}}}
sinks: {counted: {stdout: {}}}
"""


class Process:
    """A child that runs until it is told to end."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self.pid = 44
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._code

    def lived_s(self) -> float:
        return 60.0

    def last_words(self) -> str:
        return ""

    def terminate(self) -> None:
        if self._code is None:
            self._world.story.append(f"end {self._name}")
            self._code = 0

    kill = terminate

    def wait(self, seconds: float) -> int | None:
        return self._code


class World:
    """A root, a coordination service, and the processes that a run starts. It also stands for the
    coordinator that the run starts, for the parent of its children, and for who watches the
    injector."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.story: list[str] = []
        self.zookeeper = FakeZooKeeper(immediate=True)
        self.said = io.StringIO()
        self.latest: ClusterView | None = None
        self.workers: frozenset[Any] = frozenset()
        self.members: dict[str, Any] = {}
        self.services: dict[str, str] = {}
        self.owners: frozenset[str] = frozenset()
        self.coordinator = Coordinator(self)
        self.drains = True
        (folder / "pipeline.yaml").write_text(PIPELINE)
        self.spec = load_pipeline(str(folder / "pipeline.yaml"))
        self.root = Root.open(str(folder / "root"), "clicks")
        self._graph: Graph | None = None
        self.settings = RunSettings("pipeline.yaml", launcher=LauncherKind.PROCESSES)
        monkeypatch.setattr(
            module, "coordinator_for", lambda settings, root, announce, security: self.coordinator
        )
        monkeypatch.setattr(module, "open_coordination", lambda *_, **__: self.zookeeper.connect())
        monkeypatch.setattr(module, "StatusWatcher", self._watcher)

    def _watcher(self, connect: Any, security: Any, stop_asked: Callable[..., None]) -> World:
        self.stop_asked = stop_asked
        return self

    def start(self, spec: ChildSpec | None = None) -> Any:
        """Start a child; without one, the watcher."""
        if spec is None:
            self.story.append("watch")
            return None
        slot = spec.argv[spec.argv.index("--slot") + 1] if "--slot" in spec.argv else ""
        name = f"{spec.module.rpartition('.')[2]} {slot}".strip()
        self.story.append(name)
        if name == "workers 1" and self.drains:
            assert self._graph is not None
            self.latest = ClusterView(
                {node: NodeView(node, MAX_TIME, True, "", {}) for node in self._graph.nodes}
            )
        return Process(self, name)

    def stop(self) -> None:
        """End of the watcher."""
        self.story.append("end watch")

    def drain(self, incarnations: frozenset[str]) -> None: ...

    def seat(self, workers: int) -> None: ...

    def run(self) -> Summary | None:
        children: Any = self
        self.running = Running(
            self.settings,
            self.spec,
            self.root,
            Console(file=self.said, width=300),
            self._replays(),
            children,
        )
        self._graph = self.running._graph
        return self.running.run()

    def _replays(self) -> Replays:
        class Quiet:
            """Nobody wants a letter to be tried again."""

            def bind(self) -> None: ...

            def settle(self, view: ClusterView | None) -> None: ...

        quiet: Any = Quiet()
        return quiet  # type: ignore[no-any-return]


class Coordinator:
    """The coordinator that a run starts, and its death."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.restarts = 0

    def start(self) -> str:
        self._world.story.append("coordinator")
        return "127.0.0.1:1"

    def check(self) -> None: ...

    def stop(self) -> None:
        self._world.story.append("end coordinator")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = World(tmp_path, monkeypatch)
    yield made
    made.root.close()


UP = ["coordinator", "master", "injector", "watch", "workers 0", "workers 1"]
DOWN = [
    "end watch",
    "end master",
    "end workers 0",
    "end workers 1",
    "end injector",
    "end coordinator",
]


def test_all_is_up_in_order_and_down_in_order(world: World) -> None:
    summary = world.run()
    assert summary is not None
    assert world.story == UP + DOWN, (
        "the master goes first, so that it does not hand on what leaving workers drop"
    )
    assert not world.running.caught_up


def test_what_was_started_is_taken_down_when_something_fails(world: World) -> None:
    def check() -> None:
        raise SetupError("the root is no longer ours")

    world.root.check = check  # type: ignore[method-assign]
    with pytest.raises(SetupError, match="no longer ours"):
        world.run()
    assert world.story == UP + DOWN


def test_a_run_that_is_asked_to_stop_ends_without_a_summary(world: World) -> None:
    world.drains = False
    mine = StopRequest(world.root.identity.instance, os.getpid())
    world.root.check = lambda: world.stop_asked({"cli": msgspec.json.encode(mine)})  # type: ignore[method-assign]
    assert world.run() is None
    assert world.story == UP + DOWN


def test_tools_are_told_where_the_run_is_and_how_long_it_has_worked(world: World) -> None:
    world.run()
    noted = world.root.read_run()
    assert noted is not None
    assert (noted.pipeline, noted.instance, noted.zookeeper) == (
        "clicks", world.root.identity.instance, "127.0.0.1:1",
    )  # fmt: skip
    assert noted.seconds >= 0.0


def test_another_runs_coordination_is_refused_before_a_process_starts(world: World) -> None:
    world.zookeeper.connect().put_if_absent("instance", b"somebody-else")
    with pytest.raises(
        SetupError, match=r"coordinates another run of 'clicks'.*Use another chroot"
    ):
        world.run()
    assert world.story == ["coordinator", "end coordinator"]


def test_a_root_with_journals_needs_the_coordination_that_knows_their_shards(world: World) -> None:
    (world.root.path / "journal" / "w0-1").mkdir(parents=True)
    with pytest.raises(
        SetupError, match=r"holds journals, but ZooKeeper at 127\.0\.0\.1:1 has no range tables"
    ):
        world.run()
    entry = ShardEntry(shard_name("by_ad", 0), tile(1)[0], NO_WORKER, NO_TOKEN)
    world.zookeeper.connect().write_table(RangeTable(NodeName("by_ad"), (entry,), -1))
    assert world.run() is not None


def test_records_are_posted_to_streams_with_a_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = PIPELINE.replace("injection: {}", "http: {port: 8080}")
    monkeypatch.setattr("tests.unit.launch.test_run.PIPELINE", door)
    world = World(tmp_path, monkeypatch)
    world.run()
    assert world.story.index("http_source") < world.story.index("workers 0")
    assert "end http_source" in world.story
    world.root.close()


def test_restarts_of_the_coordination_are_counted(world: World) -> None:
    world.coordinator.restarts = 2
    summary = world.run()
    assert summary is not None
    assert json.loads(json.dumps(summary.to_json()))["restarts"] == {"zookeeper": 2}
