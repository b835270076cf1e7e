"""The contract of the coordination port, on the fake, the embedded coordinator and a real ZooKeeper
server."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from millwheel.adapters.coordinator import LocalCoordination
from millwheel.adapters.ports import Coordination
from millwheel.control.coordinator.server import CoordinatorServer
from millwheel.core.model.range_table import Ancestor, RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import ConflictError, UnavailableError
from tests.fakes.coordination import FakeCoordination, FakeZooKeeper

_DEADLINE_S = 15.0


class Cluster(Protocol):
    """What the suite needs of an implementation."""

    def connect(self) -> Coordination: ...

    def expire(self, session: Coordination) -> None: ...

    def eventually(self, condition: Callable[[], Any]) -> None: ...


class FakeCluster:
    def __init__(self) -> None:
        self._server = FakeZooKeeper()

    def connect(self) -> FakeCoordination:
        return self._server.connect()

    def expire(self, session: Coordination) -> None:
        assert isinstance(session, FakeCoordination)
        self._server.expire(session)

    def eventually(self, condition: Callable[[], Any]) -> None:
        self._server.pump()
        assert condition()

    def close(self) -> None:
        return


class RealCluster:
    """Sessions of one pipeline on a shared server; every test has a pipeline of its own."""

    _numbers = itertools.count()

    def __init__(self, address: str) -> None:
        self._address = address
        self._pipeline = f"contract-{next(self._numbers)}"
        self._sessions: list[Any] = []

    def connect(self) -> Coordination:
        from millwheel.adapters.zookeeper.coordination import ZooKeeperCoordination

        session = ZooKeeperCoordination(
            f"{self._address}/tests", self._pipeline, session_timeout_s=2.0
        )
        self._sessions.append(session)
        return session

    def expire(self, session: Coordination) -> None:
        # What the server does when a client is silent for too long, without the wait: end the
        # session from a second connection that resumes it.
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import KazooTimeoutError

        over = threading.Event()
        session.on_lost(over.set)
        client = session._session._client  # type: ignore[attr-defined]
        client_id = client.client_id
        until_s = time.monotonic() + _DEADLINE_S
        while not over.wait(0.1):  # the first may take its session back before it is ended
            assert time.monotonic() < until_s
            twin = KazooClient(self._address, client_id=client_id, timeout=2.0)
            with suppress(KazooTimeoutError):  # taken back between its welcome and this line
                twin.start()
            twin.stop()
            twin.close()

    def eventually(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.01)

    def close(self) -> None:
        for session in self._sessions:
            session.close()


class LocalCluster:
    """Sessions with an embedded coordinator; every test has one of its own."""

    def __init__(self, path: Path) -> None:
        self._server = CoordinatorServer(path)
        self._address = self._server.start()
        self._sessions: list[LocalCoordination] = []

    def connect(self) -> Coordination:
        session = LocalCoordination(self._address, session_timeout_s=2.0)
        self._sessions.append(session)
        return session

    def expire(self, session: Coordination) -> None:
        self._server.expire(1 + self._sessions.index(session))  # type: ignore[arg-type]  # they are numbered as they come

    def eventually(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.001)

    def close(self) -> None:
        for session in self._sessions:
            session.close()
        self._server.stop()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from millwheel.launch.coordinator import embedded_zookeeper

    server = embedded_zookeeper(str(tmp_path_factory.mktemp("zookeeper")))
    server.start()
    yield server.address
    server.stop()


@pytest.fixture(params=["fake", "local", pytest.param("zookeeper", marks=pytest.mark.slow)])
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[FakeCluster | LocalCluster | RealCluster]:
    made: FakeCluster | LocalCluster | RealCluster
    if request.param == "zookeeper":
        made = RealCluster(request.getfixturevalue("address"))
    else:
        made = (
            FakeCluster() if request.param == "fake" else LocalCluster(tmp_path / "coordinator.db")
        )
    yield made
    made.close()


def table(name: str, *owners: str, version: int = -1) -> RangeTable:
    shards = (
        ShardEntry(f"{name}-{i}", piece, owner, 1, (Ancestor("w.0", 0, 12, -1),))
        for i, (piece, owner) in enumerate(zip(tile(len(owners)), owners, strict=True))
    )
    return RangeTable(name, tuple(shards), version)


def test_members_are_seen_with_their_data_and_vanish_when_they_leave(cluster: Cluster) -> None:
    one, two = cluster.connect(), cluster.connect()
    seen: list[dict[str, bytes]] = []
    one.watch_members("workers", lambda members: seen.append(dict(members)))
    cluster.eventually(lambda: seen == [{}])
    two.join("workers", "w.1", b"here")
    cluster.eventually(lambda: seen[-1] == {"w.1": b"here"})
    two.leave("workers", "w.1")
    cluster.eventually(lambda: seen[-1] == {})


def test_a_watch_that_starts_late_is_told_who_is_there(cluster: Cluster) -> None:
    one, two = cluster.connect(), cluster.connect()
    one.join("workers", "w.1", b"here")
    seen: list[dict[str, bytes]] = []
    two.watch_members("workers", lambda members: seen.append(dict(members)))
    cluster.eventually(lambda: seen == [{"w.1": b"here"}])


def test_roles_are_apart(cluster: Cluster) -> None:
    one = cluster.connect()
    seen: list[dict[str, bytes]] = []
    one.watch_members("workers", lambda members: seen.append(dict(members)))
    one.join("injectors", "i.1", b"")
    one.join("workers", "w.1", b"")
    cluster.eventually(lambda: seen and seen[-1] == {"w.1": b""})


def test_the_members_of_a_closed_session_vanish_at_once(cluster: Cluster) -> None:
    one, two = cluster.connect(), cluster.connect()
    seen: list[dict[str, bytes]] = []
    one.watch_members("workers", lambda members: seen.append(dict(members)))
    two.join("workers", "w.1", b"")
    cluster.eventually(lambda: seen and seen[-1] == {"w.1": b""})
    two.close()
    cluster.eventually(lambda: seen[-1] == {})


def test_the_members_of_an_expired_session_vanish_and_its_process_is_told_once(
    cluster: Cluster,
) -> None:
    one, two = cluster.connect(), cluster.connect()
    seen: list[dict[str, bytes]] = []
    lost: list[str] = []
    two.on_lost(lambda: lost.append("two"))
    one.on_lost(lambda: lost.append("one"))
    one.watch_members("workers", lambda members: seen.append(dict(members)))
    two.join("workers", "w.1", b"")
    cluster.eventually(lambda: seen and seen[-1] == {"w.1": b""})
    cluster.expire(two)
    cluster.eventually(lambda: seen[-1] == {} and lost == ["two"])
    with pytest.raises(UnavailableError):
        two.join("workers", "w.2", b"")
    late: list[str] = []
    two.on_lost(lambda: late.append("late"))
    assert late == ["late"]


def test_anybody_can_remove_a_dead_member_and_removing_twice_is_fine(cluster: Cluster) -> None:
    one, two = cluster.connect(), cluster.connect()
    seen: list[dict[str, bytes]] = []
    two.join("workers", "w.1", b"")
    one.watch_members("workers", lambda members: seen.append(dict(members)))
    cluster.eventually(lambda: seen and seen[-1] == {"w.1": b""})
    one.leave("workers", "w.1")
    one.leave("workers", "w.1")
    cluster.eventually(lambda: seen[-1] == {})


def test_a_name_that_is_taken_is_refused(cluster: Cluster) -> None:
    one, two = cluster.connect(), cluster.connect()
    one.join("workers", "w.1", b"")
    with pytest.raises(ConflictError):
        two.join("workers", "w.1", b"")


def test_one_candidate_leads_and_the_next_follows_when_it_dies(cluster: Cluster) -> None:
    one, two, three, watcher = (cluster.connect() for _ in range(4))
    won: list[str] = []
    leaders: list[dict[str, bytes]] = []
    watcher.watch_members("masters-leader", lambda members: leaders.append(dict(members)))
    for name, session in (("one", one), ("two", two), ("three", three)):
        session.elect("masters", name, name.encode(), lambda name=name: won.append(name))  # type: ignore[misc]
        cluster.eventually(lambda: won)
    cluster.eventually(lambda: won == ["one"] and leaders and leaders[-1] == {"one": b"one"})
    cluster.expire(one)
    cluster.eventually(lambda: len(won) == 2 and leaders[-1] == {won[1]: won[1].encode()})
    (two if won[1] == "two" else three).close()
    cluster.eventually(lambda: len(won) == 3 and leaders[-1] == {won[2]: won[2].encode()})
    assert sorted(won) == ["one", "three", "two"]


def test_a_candidate_that_waits_and_dies_changes_nothing(cluster: Cluster) -> None:
    one, two, three = (cluster.connect() for _ in range(3))
    won: list[str] = []
    one.elect("masters", "one", b"", lambda: won.append("one"))
    cluster.eventually(lambda: won == ["one"])
    two.elect("masters", "two", b"", lambda: won.append("two"))
    three.elect("masters", "three", b"", lambda: won.append("three"))
    two.close()
    one.close()
    cluster.eventually(lambda: won == ["one", "three"])


def test_a_table_is_written_by_compare_and_set(cluster: Cluster) -> None:
    one, two = cluster.connect(), cluster.connect()
    first = table("source.hits", "w.1", "")
    assert one.tables() == {}
    assert one.write_table(first) == 0
    with pytest.raises(ConflictError):
        two.write_table(first)
    stored = two.tables()["source.hits"]
    assert stored == replace(first, version=0)
    assert two.write_table(table("source.hits", "w.2", "w.1", version=0)) == 1
    with pytest.raises(ConflictError):
        one.write_table(stored)
    assert one.tables()["source.hits"].shards[0].owner == "w.2"


def test_a_table_that_does_not_exist_is_not_replaced(cluster: Cluster) -> None:
    with pytest.raises(ConflictError):
        cluster.connect().write_table(table("traffic", "w.1", version=3))


def test_tables_are_written_side_by_side_each_with_its_own_outcome(cluster: Cluster) -> None:
    one, two = cluster.connect(), cluster.connect()
    names = [f"n{number}" for number in range(40)]
    assert one.write_tables([]) == []
    assert one.write_tables([table(name, "w.1") for name in names]) == [0] * 40
    two.write_table(table("n7", "w.2", version=0))
    outcomes = one.write_tables([table(name, "w.3", version=0) for name in names])
    assert [type(outcome) for outcome in outcomes] == [
        ConflictError if name == "n7" else int for name in names
    ]
    assert {outcome for outcome in outcomes if isinstance(outcome, int)} == {1}
    owners = {name: found.shards[0].owner for name, found in two.tables().items()}
    assert owners == {name: "w.2" if name == "n7" else "w.3" for name in names}
    one.close()
    (refused,) = one.write_tables([table("late", "w.1")])
    assert isinstance(refused, UnavailableError)


def test_tables_are_told_now_and_in_every_new_version(cluster: Cluster) -> None:
    one, two = cluster.connect(), cluster.connect()
    one.write_table(table("traffic", "w.1"))
    seen: list[tuple[str, int]] = []
    two.watch_tables(lambda found: seen.append((found.computation, found.version)))
    cluster.eventually(lambda: seen == [("traffic", 0)])
    one.write_table(table("traffic", "w.2", version=0))
    cluster.eventually(lambda: seen[-1] == ("traffic", 1))
    one.write_table(table("sink.alerts", "w.2"))
    cluster.eventually(lambda: seen[-1] == ("sink.alerts", 0))
    for version in range(5):
        one.write_table(table("sink.alerts", "w.2", version=version))
    cluster.eventually(lambda: seen[-1] == ("sink.alerts", 5))
    versions = [version for name, version in seen if name == "sink.alerts"]
    assert versions == sorted(set(versions))


def test_a_value_is_stored_once(cluster: Cluster) -> None:
    one, two = cluster.connect(), cluster.connect()
    assert one.get("identity") is None
    assert one.put_if_absent("identity", b"first") == b"first"
    assert two.put_if_absent("identity", b"second") == b"first"
    assert two.get("identity") == b"first"


def test_values_and_tables_outlive_their_writer(cluster: Cluster) -> None:
    one = cluster.connect()
    one.put_if_absent("identity", b"first")
    one.write_table(table("traffic", "w.1"))
    one.close()
    two = cluster.connect()
    assert two.get("identity") == b"first"
    assert list(two.tables()) == ["traffic"]


def test_a_callback_may_write_a_table(cluster: Cluster) -> None:
    one = cluster.connect()
    done = threading.Event()

    def grow(found: RangeTable) -> None:
        if found.version < 3:
            one.write_table(found)
        else:
            done.set()

    one.watch_tables(grow)
    one.write_table(table("traffic", "w.1"))
    cluster.eventually(done.is_set)


def test_a_closed_session_refuses_calls_and_may_be_closed_again(cluster: Cluster) -> None:
    one = cluster.connect()
    one.close()
    one.close()
    with pytest.raises(UnavailableError):
        one.tables()
