from __future__ import annotations

import pytest

from millwheel.errors import UnavailableError
from millwheel.launch import watching
from millwheel.launch.watching import StatusWatcher, addresses, cluster_view
from millwheel.pb import injector_pb2
from tests.fakes.coordination import FakeCoordination, FakeZooKeeper
from tests.unit.launch.helpers import eventually


def test_the_injectors_answer_in_our_own_words() -> None:
    reply = injector_pb2.StatusReply(latency_quantiles_ms=[1.0, 2.0])
    reply.nodes.append(
        injector_pb2.NodeStatus(
            node="traffic",
            watermark_us=7,
            complete=True,
            holder_shard="traffic-1",
            holder="input",
            counters={"late": 2},
        )
    )
    reply.nodes.append(injector_pb2.NodeStatus(node="sink.out", holder_shard="sink.out-0"))
    view = cluster_view(reply)
    assert view.nodes["traffic"].holder == "traffic-1: input"
    assert view.nodes["traffic"].counters == {"late": 2}
    assert view.nodes["sink.out"].holder == "sink.out-0"
    assert view.latency_ms == (1.0, 2.0)


def test_members_say_where_they_are_reached_and_more() -> None:
    assert addresses({"w0": b'{"address": "h:1", "slot": 3}'}) == {"w0": "h:1"}


class Injectors:
    """What each address answers; those that are not there do not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replies: dict[str, injector_pb2.StatusReply] = {}
        self.zookeeper = FakeZooKeeper(immediate=True)
        self.sessions: list[FakeCoordination] = []
        monkeypatch.setattr(watching, "_INTERVAL_S", 0.001)
        monkeypatch.setattr(watching, "fetch_status", self.fetch)

    def fetch(self, address: str, security: object = None) -> injector_pb2.StatusReply:
        if address not in self.replies:
            raise UnavailableError(address)
        return self.replies[address]

    def lead(self, name: str) -> FakeCoordination:
        session = self.zookeeper.connect()
        self.replies[name] = injector_pb2.StatusReply(nodes=[injector_pb2.NodeStatus(node=name)])
        session.elect("injector", name, b'{"address": "%s"}' % name.encode(), lambda: None)
        return session

    def connect(self) -> FakeCoordination:
        self.sessions.append(self.zookeeper.connect())
        return self.sessions[-1]


def test_the_watcher_follows_the_leader_and_comes_back_after_a_lost_session(monkeypatch: pytest.MonkeyPatch) -> None:
    injectors = Injectors(monkeypatch)
    watcher = StatusWatcher(injectors.connect)
    watcher.start()

    def sees(name: str) -> bool:
        return watcher.latest is not None and name in watcher.latest.nodes

    try:
        first = injectors.lead("a")
        eventually(lambda: sees("a"))
        del injectors.replies["a"]
        injectors.zookeeper.expire(first)
        injectors.lead("b")
        eventually(lambda: sees("b"))
        injectors.zookeeper.expire(injectors.sessions[0])
        eventually(lambda: len(injectors.sessions) == 2)
        watcher.latest = None
        eventually(lambda: sees("b"))
    finally:
        watcher.stop()
