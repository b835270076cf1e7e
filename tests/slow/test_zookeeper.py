"""The ZooKeeper adapter against broken connections, and the embedded server."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millwheel.adapters.zookeeper.coordination import ZooKeeperCoordination
from millwheel.adapters.zookeeper.guard import ZooKeeperGuard
from millwheel.adapters.zookeeper.server import EmbeddedZooKeeper
from millwheel.adapters.zookeeper.session import ZooKeeperSession
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import MillwheelError, SetupError, UnavailableError
from millwheel.launch.coordinator import embedded_zookeeper
from tests.fakes.tcp_proxy import TcpProxy
from tests.servers.programs import free_port
from tests.slow.runs import zookeeper

pytestmark = pytest.mark.slow

_DEADLINE_S = 15.0
_LONG_S = 15.0  # of a session in which a JVM must be there again, beside other tests


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def proxy(server: EmbeddedZooKeeper) -> Iterator[TcpProxy]:
    made = TcpProxy(server.address)
    yield made
    made.close()


@pytest.fixture
def direct(
    server: EmbeddedZooKeeper, request: pytest.FixtureRequest
) -> Iterator[ZooKeeperCoordination]:
    made = ZooKeeperCoordination(server.address, request.node.name[:60])
    yield made
    made.close()


@pytest.fixture
def shaky(proxy: TcpProxy, request: pytest.FixtureRequest) -> Iterator[ZooKeeperCoordination]:
    made = ZooKeeperCoordination(proxy.address, request.node.name[:60], session_timeout_s=4.0)
    yield made
    made.close()


@pytest.fixture
def patient(proxy: TcpProxy, request: pytest.FixtureRequest) -> Iterator[ZooKeeperCoordination]:
    """Its session outlasts whatever other tests do to the machine."""
    made = ZooKeeperCoordination(proxy.address, request.node.name[:60], session_timeout_s=_LONG_S)
    yield made
    made.close()


def eventually(condition: Callable[[], Any]) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < _DEADLINE_S, "it did not happen in time"
        time.sleep(0.01)
    return time.monotonic() - began


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run ``work`` elsewhere; the list receives its result or exception."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except MillwheelError as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def table(owner: str, version: int) -> RangeTable:
    return RangeTable(
        "traffic", (ShardEntry("traffic-0", tile(1)[0], owner, version + 2),), version
    )


def test_a_write_whose_reply_was_lost_is_found_to_have_succeeded(
    direct: ZooKeeperCoordination, shaky: ZooKeeperCoordination, proxy: TcpProxy
) -> None:
    shaky.tables()
    for version, owner in ((-1, "w1"), (0, "w2")):
        proxy.mute()
        thread, results = in_thread(lambda v=version, o=owner: shaky.write_table(table(o, v)))  # type: ignore[misc]
        eventually(
            lambda v=version: getattr(direct.tables().get("traffic"), "version", -1) == v + 1
        )
        proxy.heal()
        proxy.cut()
        thread.join(_DEADLINE_S)
        assert results == [version + 1]


def test_a_join_whose_reply_was_lost_is_found_to_have_succeeded(
    direct: ZooKeeperCoordination, shaky: ZooKeeperCoordination, proxy: TcpProxy
) -> None:
    seen: list[dict[str, bytes]] = [{}]
    direct.watch_members("workers", lambda members: seen.append(dict(members)))
    shaky.join("workers", "w0", b"")
    proxy.mute()
    thread, results = in_thread(lambda: shaky.join("workers", "w1", b"here"))
    eventually(lambda: "w1" in seen[-1])
    proxy.heal()
    proxy.cut()
    thread.join(_DEADLINE_S)
    assert results == [None]


def test_a_place_in_line_whose_reply_was_lost_is_found_again_and_not_taken_twice(
    server: EmbeddedZooKeeper, proxy: TcpProxy
) -> None:
    direct, shaky = (
        ZooKeeperSession(index, 4.0, 4.0, 5.0) for index in (server.address, proxy.address)
    )
    direct.ensure("/line")
    proxy.mute()
    thread, results = in_thread(lambda: shaky.create_in_sequence("/line", "mark"))
    eventually(lambda: direct.children("/line"))
    proxy.heal()
    proxy.cut()
    thread.join(_DEADLINE_S)
    assert results == direct.children("/line")
    shaky.close()
    direct.close()


def test_a_short_loss_of_the_connection_stops_nothing_and_watches_go_on(
    direct: ZooKeeperCoordination, patient: ZooKeeperCoordination, proxy: TcpProxy
) -> None:
    lost: list[str] = []
    seen: list[dict[str, bytes]] = []
    patient.on_lost(lambda: lost.append("patient"))
    patient.join("workers", "w1", b"")
    patient.watch_members("workers", lambda members: seen.append(dict(members)))
    eventually(lambda: seen)
    proxy.refuse()
    proxy.cut()
    direct.join("workers", "w2", b"")
    time.sleep(0.5)
    proxy.heal()
    eventually(lambda: seen[-1] == {"w1": b"", "w2": b""})
    direct.leave("workers", "w2")
    eventually(lambda: seen[-1] == {"w1": b""})
    assert lost == []


def test_a_session_is_given_up_on_our_own_clock_when_no_server_answers(
    shaky: ZooKeeperCoordination, proxy: TcpProxy
) -> None:
    lost: list[float] = []
    shaky.on_lost(lambda: lost.append(time.monotonic()))
    shaky.join("workers", "w1", b"")
    proxy.refuse()
    proxy.cut()
    began = time.monotonic()
    with pytest.raises(UnavailableError):
        shaky.tables()
    eventually(lambda: lost)
    assert 2.5 < lost[0] - began < 10.0, "4 s, and what a machine that is not alone adds"
    proxy.heal()
    with pytest.raises(UnavailableError):
        shaky.tables()


def test_a_server_that_is_silent_is_given_up_too(
    shaky: ZooKeeperCoordination, proxy: TcpProxy
) -> None:
    lost: list[str] = []
    shaky.on_lost(lambda: lost.append("lost"))
    proxy.mute()
    assert eventually(lambda: lost) < 12.0


def test_nobody_at_the_address_is_a_sentence_in_bounded_time() -> None:
    port = free_port()
    began = time.monotonic()
    with pytest.raises(
        SetupError, match=rf"ZooKeeper at 127\.0\.0\.1:{port} did not answer within 1 s"
    ):
        ZooKeeperCoordination(f"127.0.0.1:{port}/x", "hits", connect_timeout_s=1.0)
    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize("hosts", ["", "nohost", "host:port", "h:1,/x", "h:1/a b", "h:1//x"])
def test_a_malformed_address_is_refused(hosts: str) -> None:
    with pytest.raises(SetupError, match="form"):
        ZooKeeperCoordination(hosts, "hits")


def test_a_killed_server_comes_back_at_its_address_with_its_data_and_sessions(
    tmp_path: Path,
) -> None:
    with zookeeper(tmp_path) as server:
        session = ZooKeeperCoordination(server.address, "hits", session_timeout_s=_LONG_S)
        lost: list[str] = []
        session.on_lost(lambda: lost.append("lost"))
        session.join("workers", "w1", b"")
        session.put_if_absent("identity", b"x")
        before, pid = server.address, server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not server.alive())
        server.restart()
        assert server.address == before
        assert session.get("identity") == b"x"
        assert not lost
        session.close()
    with zookeeper(tmp_path) as again:
        assert again.address == before


def test_a_handshake_that_a_server_swallows_is_not_waited_for_until_the_session_is_over(
    tmp_path: Path,
) -> None:
    """A server that is just starting may take a client and forget it."""
    with zookeeper(tmp_path) as server:
        session = ZooKeeperCoordination(server.address, "hits", session_timeout_s=_LONG_S)
        lost: list[str] = []
        session.on_lost(lambda: lost.append("lost"))
        session.put_if_absent("identity", b"x")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not server.alive())
        host, _, port = server.address.rpartition(":")
        with socket.create_server((host, int(port))) as starting:
            swallowed, _ = starting.accept()
        with swallowed:
            server.restart()
            assert session.get("identity") == b"x"
        assert not lost
        session.close()


def test_two_servers_never_share_their_data(server: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with zookeeper(tmp_path):
        with pytest.raises(SetupError, match="Another run uses the ZooKeeper data"):
            embedded_zookeeper(str(tmp_path)).start()


def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match="the port is in use"):
            embedded_zookeeper(str(tmp_path), port=port).start()


def test_a_stored_port_that_somebody_else_took_is_replaced(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (tmp_path / "port").write_text(f"{taken.getsockname()[1]}\n")
        with zookeeper(tmp_path) as server:
            assert server.address != f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_java_that_does_not_run_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="Cannot start Java"):
        EmbeddedZooKeeper(str(tmp_path), ["/nowhere/java"]).start()
    script = tmp_path / "java"
    script.write_text("#!/bin/sh\necho no such luck\nexit 3\n")
    script.chmod(0o755)
    with pytest.raises(SetupError, match="no such luck"):
        EmbeddedZooKeeper(str(tmp_path), [str(script)]).start()


def test_what_a_user_created_is_closed_to_everybody_else(server: EmbeddedZooKeeper) -> None:
    hosts = f"{server.address}/guarded"
    mine = ZooKeeperCoordination(hosts, "hits", guard=ZooKeeperGuard("mill", "secret"))
    mine.put_if_absent("instance", b"a")
    for guard in (ZooKeeperGuard(), ZooKeeperGuard("mill", "guessed")):
        stranger = ZooKeeperCoordination(hosts, "hits", guard=guard)
        try:
            with pytest.raises(SetupError, match="refuses our user"):
                stranger.get("instance")
            with pytest.raises(SetupError, match="refuses our user"):
                stranger.put_if_absent("other", b"b")
        finally:
            stranger.close()
    beside = ZooKeeperCoordination(hosts, "visits", guard=ZooKeeperGuard("other", "user"))
    assert beside.put_if_absent("instance", b"b") == b"b", (
        "pipelines of several users share a chroot"
    )
    beside.close()
    again = ZooKeeperCoordination(hosts, "hits", guard=ZooKeeperGuard("mill", "secret"))
    assert again.get("instance") == b"a"
    again.close()
    mine.close()
