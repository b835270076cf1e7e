"""A run, and another user of its machine: what it asks of anything of the run is refused, and the
run goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis

from millwheel.adapters.coordinator import LOCAL
from millwheel.adapters.exchange.handshake import dial
from millwheel.adapters.grpc.master_client import MasterClient
from millwheel.adapters.grpc.security import Security, load_security
from millwheel.adapters.grpc.watermark_client import fetch_status
from millwheel.control.roots.attach import LiveMembers, connected
from millwheel.control.roots.root import RunInfo, read_run
from millwheel.errors import UnavailableError
from millwheel.launch.certificates import make_set
from millwheel.launch.progress.status_watch import LEADER_ROLE, MASTER_ROLE
from millwheel.tools.client.injector import Injector
from tests.servers.programs import free_port
from tests.slow.runs import Run
from tests.slow.waits import until
from tests.strangers import needs_a_stranger, said_by_a_stranger

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: strangers
streams:
  events: {source: {injection: {}}, timestamp: ts}
computations:
  clicks:
    input: {events: {key: key}}
    slices: {every: 5m, keep: 30d}
    aggregate: {n: count}
sinks:
  events: {files: {path: OUT}}
"""
REACHES = """
import os, socket, sys
root, at = sys.argv[1:3]
found = []
for path in (root, f"{root}/run.json", f"{root}/access/token", f"{root}/driver.lock",
  f"{root}/coordinator.db-shm"):
    try:
        os.listdir(path) if path == root else open(path)
        found.append(path)
    except PermissionError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect(at)
    found.append(at)
except PermissionError:
    pass
print("reached", found)
"""


class Victim:
    """A run, its ports, and what is known of it by those to whom it belongs."""

    def __init__(self, folder: Path, secured: bool) -> None:
        (folder / "p.yaml").write_text(PIPELINE.replace("OUT", str(folder / "out")))
        self.query, self.page, self.secured = free_port(), free_port(), secured
        more = ["--query-port", str(self.query), "--ui", str(self.page)]
        more += ["--security", str(make_set(str(folder / "set")))] if secured else []
        self.run = Run(folder / "p.yaml", folder, more=tuple(more)).start()
        until(
            lambda: (
                listens(self.query)
                and listens(self.page)
                and (self.run.root / "metrics.json").exists()
            )
        )

    @property
    def info(self) -> RunInfo:
        found = read_run(self.run.root)
        assert found is not None
        return found

    @property
    def security(self) -> Security:
        found = load_security(self.info.security, "client")
        assert found is not None
        return found

    def members(self, role: str, count: int) -> list[dict[str, Any]]:
        with connected(self.info) as coordination:
            live = LiveMembers(coordination, role)
            until(lambda: len(live.now()) == count)
            return [json.loads(data) for data in live.now().values()]


@pytest.fixture(params=[False, True], ids=["default", "secured"])
def victim(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Victim]:
    made = Victim(tmp_path, request.param)
    yield made
    made.run.end()
    made.run.wait()


def test_a_stranger_reads_nothing_and_changes_nothing(victim: Victim) -> None:
    refuses_queries(victim.query)
    refuses_pages(victim)
    refuses_services(victim)
    refuses_another_user(victim)
    # the run goes on, and its own are let in
    with Injector(str(victim.run.root), "events") as clicks:
        assert clicks.send([{"key": "a", "ts": 1_700_000_000_000_000}]).accepted == 1
    token = victim.security.token
    assert b"clicks" in redis.Redis(port=victim.query, password=token).execute_command(
        "MW.INDICATORS"
    )
    shown = {"authorization": f"Bearer {token}"}
    assert httpx.get(f"http://127.0.0.1:{victim.page}/api/live", headers=shown).status_code == 200


def refuses_queries(port: int) -> None:
    """Whether a worker lives may be asked by everybody, and nothing else."""
    with socket.create_connection(("127.0.0.1", port), 5) as stranger:
        stranger.sendall(b"PING\r\n")
        assert stranger.recv(100) == b"+PONG\r\n"
    for words in (
        ("MW.QUERY", "clicks.n", "1", "WINDOW", "1h"),
        ("GET", "clicks.n:1:1h"),
        ("CLUSTER", "SLOTS"),
    ):
        for password in (None, "x" * 43):
            with pytest.raises(redis.AuthenticationError):
                redis.Redis(port=port, password=password).execute_command(*words)


def refuses_pages(victim: Victim) -> None:
    for path in (
        "live",
        "rows",
        "letters",
        "settings",
        "graph",
        "timeline",
        "savepoints",
        "events",
    ):
        assert httpx.get(f"http://127.0.0.1:{victim.page}/api/{path}").status_code == 401
    processes = [
        each["targets"][0] for each in json.loads((victim.run.root / "metrics.json").read_text())
    ]
    for address in processes:
        for path in ("standing", "rows"):
            assert httpx.get(f"http://{address}/{path}").status_code == 401
        assert httpx.get(f"http://{address}/metrics").status_code == (
            401 if victim.secured else 200
        )
        assert httpx.get(f"http://{address}/healthz").status_code == 200


def refuses_services(victim: Victim) -> None:
    workers, ours = victim.members("workers", 2), victim.security
    [injector], [master] = victim.members(LEADER_ROLE, 1), victim.members(MASTER_ROLE, 1)
    for stranger in (None, Security("x" * 43, ours.tls)):
        with pytest.raises(UnavailableError):
            fetch_status(injector["address"], 5.0, stranger)
        with pytest.raises(UnavailableError):
            MasterClient(master["address"], stranger).members()
        for worker in workers:
            with pytest.raises(OSError, match=r"refused|reset|hung up|SSL|EOF|TLS"):
                dial(worker["exchange"], stranger).close()
    assert fetch_status(injector["address"], 5.0, ours).nodes


def refuses_another_user(victim: Victim) -> None:
    """The root and the coordinator; and no command line has the token."""
    driver = psutil.Process(victim.run.process.pid)
    for process in (driver, *driver.children(recursive=True)):
        assert victim.security.token not in " ".join(process.cmdline())
    if needs_a_stranger().args[0]:
        return  # only root can become another user
    for folder in (victim.run.folder, *victim.run.folder.parents[:2]):
        if folder.name.startswith(("pytest", "test_")):
            folder.chmod(0o755)  # pytest's own are closed
    at = victim.info.zookeeper.removeprefix(LOCAL)
    assert said_by_a_stranger(REACHES, str(victim.run.root), at) == "reached []"


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
