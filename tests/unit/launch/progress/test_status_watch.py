from __future__ import annotations

import pytest

from millwheel.adapters.pb import injector_pb2
from millwheel.errors import UnavailableError
from millwheel.launch.progress import status_watch as watching
from millwheel.launch.progress.status_watch import StatusWatcher, addresses, cluster_view, pause_s
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


class Line:
    """Stands for a :class:`StatusLine`."""

    def __init__(self, injectors: Injectors, address: str) -> None:
        self._injectors = injectors
        self.address = address
        self.asked = 0
        self.closed = False

    def ask(self) -> injector_pb2.StatusReply:
        assert not self.closed
        self.asked += 1
        if self.address not in self._injectors.replies:
            raise UnavailableError(self.address)
        return self._injectors.replies[self.address]

    def close(self) -> None:
        self.closed = True


class Injectors:
    """What each address answers; those that are not there do not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replies: dict[str, injector_pb2.StatusReply] = {}
        self.zookeeper = FakeZooKeeper(immediate=True)
        self.sessions: list[FakeCoordination] = []
        monkeypatch.setattr(watching, "_INTERVAL_S", 0.001)
        self.lines: list[Line] = []
        monkeypatch.setattr(watching, "StatusLine", self.line)

    def line(self, address: str, _security: object) -> Line:
        self.lines.append(Line(self, address))
        return self.lines[-1]

    def lead(self, name: str) -> FakeCoordination:
        session = self.zookeeper.connect()
        self.replies[name] = injector_pb2.StatusReply(nodes=[injector_pb2.NodeStatus(node=name)])
        session.elect("injector", name, b'{"address": "%s"}' % name.encode(), lambda: None)
        return session

    def connect(self) -> FakeCoordination:
        self.sessions.append(self.zookeeper.connect())
        return self.sessions[-1]


def test_the_watcher_follows_the_leader_and_comes_back_after_a_lost_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_one_line_serves_until_the_injector_answers_no_more_or_another_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    injectors = Injectors(monkeypatch)
    watcher = StatusWatcher(injectors.connect)
    watcher.start()
    try:
        first = injectors.lead("a")
        eventually(lambda: injectors.lines and injectors.lines[-1].asked > 5)
        assert len(injectors.lines) == 1
        answer = injectors.replies.pop("a")
        eventually(lambda: len(injectors.lines) > 2)
        injectors.replies["a"] = answer
        eventually(lambda: injectors.lines[-1].asked > 5)
        injectors.zookeeper.expire(first)
        injectors.lead("b")
        eventually(lambda: injectors.lines[-1].address == "b" and injectors.lines[-1].asked > 5)
        assert all(line.closed for line in injectors.lines[:-1])
    finally:
        watcher.stop()
    assert all(line.closed for line in injectors.lines)


def test_a_young_run_is_asked_more_often_so_that_its_end_is_seen_soon() -> None:
    assert [pause_s(age_s) for age_s in (0.0, 0.1, 1.0, 2.0, 3600.0)] == [0.02, 0.02, 0.1, 0.2, 0.2]
