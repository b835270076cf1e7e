"""Gateways of one run behind HAProxy, with the settings of docs/gateways.md: one is killed, and
questions go on."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from millwheel.adapters.grpc.security import load_security
from millwheel.client import Queries
from millwheel.launch.certificates import make_set
from tests.servers.programs import free_port
from tests.servers.wheels import debian_command
from tests.slow.runs import REPO, Run

pytestmark = pytest.mark.slow

NAME = "queries.example"
RECORDS, FIRST_US = 1_200, 1_700_000_000_000_000
PIPELINE = """
pipeline: balanced
streams:
  events:
    source: {files: {path: "${events}", format: jsonl, follow: true}}
    timestamp: {field: at, unit: us}
    fields: {at: int, key: int}
computations:
  clicks: {input: {events: {key: key}}, slices: {every: 10s, keep: 30d}, aggregate: {n: count}}
"""
END_US = FIRST_US + 3_600_000_000
QUESTION = ("clicks.n", 3, "1h")
WORDS = f"/v1/query?name=clicks.n:3:1h@{END_US}"
RIGHT = RECORDS // 4


@dataclass
class Asked:
    """What clients of the balancer got, who ask a hundred times a second."""

    queries: Queries
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        while not self.over.wait(0.01):
            try:
                assert self.queries.value(*QUESTION, until=END_US) == RIGHT
                self.right += 1
            except Exception as ex:
                self.wrong.append(repr(ex))

    def more(self, answers: int) -> None:
        """Until so many more are right."""
        enough, until = self.right + answers, time.monotonic() + 60
        while self.right < enough:
            assert time.monotonic() < until, "the questions stand still"
            time.sleep(0.01)


def settings(page: Path, front: str, gateways: list[str]) -> str:
    """The settings of the page, of these addresses."""
    text = page.read_text().partition("```haproxy\n")[2].partition("```")[0]
    servers = iter(gateways)
    text = re.sub(r"( server \w+) .*", lambda found: f"{found[1]} {next(servers)}", text)
    return re.sub(r"bind .*", f"bind {front}", text)


def gateway(root: Path, port: int, *more: str) -> subprocess.Popen[bytes]:
    words = [
        sys.executable,
        "-m",
        "millwheel",
        "serve",
        str(root),
        "--wait",
        "--port",
        str(port),
        *more,
    ]
    return subprocess.Popen([*words, "--allow-host", NAME], stdout=subprocess.DEVNULL)


def ready(client: httpx.Client, path: str = "/readyz") -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(httpx.HTTPError):
            if client.get(path).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"{client.base_url}{path} does not answer")


def test_gateways_behind_haproxy_answer_on_when_one_is_killed(tmp_path: Path) -> None:
    _haproxy()  # skips where there is none
    run, folder = started(tmp_path)
    front, far_front, ports = free_port(), free_port(), [free_port() for _ in range(3)]
    near = {port: gateway(run.root, port) for port in ports[:2]}
    far = gateway(run.root, ports[2], "--listen", "0.0.0.0", "--security", str(folder))
    processes: list[subprocess.Popen[bytes]] = [far]
    try:
        certificate = tmp_path / "front.pem"
        certificate.write_bytes(
            (folder / "worker.pem").read_bytes() + (folder / "worker.key").read_bytes()
        )
        page = REPO / "docs" / "gateways.md"
        near_text = settings(
            page, f"127.0.0.1:{front} ssl crt {certificate}", [f"127.0.0.1:{port}" for port in near]
        )
        tls = f"ssl verify required ca-file {folder}/ca.pem verifyhost millwheel"
        far_text = settings(page, f"127.0.0.1:{far_front}", [f"127.0.0.1:{ports[2]} {tls}"] * 2)
        (tmp_path / "far").mkdir()
        processes.append(balancing(near_text, tmp_path, front))
        processes.append(balancing(far_text, tmp_path / "far", far_front))
        trusted = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        trusted.check_hostname = False  # certificates of a set name the pipeline, not the machine
        url, token = (
            f"https://127.0.0.1:{front}",
            f"Bearer {(folder / 'token').read_text().strip()}",
        )
        with httpx.Client(
            base_url=url, verify=trusted, headers={"host": NAME, "authorization": token}, timeout=40
        ) as client:
            ready(client)
            check_refusals(client, folder, front)
        with httpx.Client(
            base_url=f"http://127.0.0.1:{far_front}", headers={"authorization": token}
        ) as client:
            ready(client)
            assert client.get(WORDS).json()["values"] == {"n": RIGHT}
        given = {"token": token.removeprefix("Bearer "), "ca": str(folder / "ca.pem")}
        with Queries(url, deadline_ms=20_000, **given) as queries:
            check_killed(queries, run.root, near)
    finally:
        for process in (*near.values(), *processes):
            process.kill()
            process.wait()
        run.end()
        run.wait()


def started(tmp_path: Path) -> tuple[Run, Path]:
    """A run with certificates, all of whose records are counted when a gateway is ready, or soon
    after."""
    records: list[Any] = [{"at": FIRST_US + n * 1_000_000, "key": n % 4} for n in range(RECORDS)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(PIPELINE)
    folder = Path(make_set(str(tmp_path / "security")))
    more = ("--query-port", str(free_port()), "--security", str(folder))
    return Run(
        pipeline, tmp_path, {"events": f"{tmp_path}/events.jsonl"}, workers=1, more=more
    ).start(), folder


def check_refusals(client: httpx.Client, folder: Path, port: int) -> None:
    """The balancer hands on what the rules look at."""
    security = load_security(str(folder), "client")
    assert security is not None
    until = time.monotonic() + 60
    while client.get(WORDS).json().get("values") != {"n": RIGHT}:  # it is still being read
        assert time.monotonic() < until
        time.sleep(0.1)
    refused = {
        "authorization": [
            ("", 401),
            ("Bearer wrong", 401),
            (f"Bearer {security.proof(f':{port}')}", 401),
        ],
        "host": [("evil.example", 421), (f"127.0.0.1:{port}", 200)],
        "origin": [("https://evil.example", 403), (f"https://{NAME}", 200)],
        "sec-fetch-site": [("cross-site", 403)],
    }
    for name, values in refused.items():
        for value, status in values:
            assert client.get(WORDS, headers={name: value}).status_code == status, (name, value)


def check_killed(queries: Queries, root: Path, near: dict[int, subprocess.Popen[bytes]]) -> None:
    """Each of the two is killed once, and comes back, while four clients ask: every question is
    answered."""
    asked = Asked(queries)
    threads = [threading.Thread(target=asked.ask) for _ in range(4)]
    for each in threads:
        each.start()
    try:
        asked.more(50)
        for port in list(near):
            near[port].kill()
            near[port].wait()
            asked.more(100)
            near[port] = gateway(root, port)
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as direct:
                ready(direct)
            time.sleep(1.5)  # until the balancer has looked again
            asked.more(50)
    finally:
        asked.over.set()
        for each in threads:
            each.join()
    assert asked.wrong == []


# A real HAProxy: the machine's own, or Debian's package, once, in a cache of this user.
_PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
_START_S = 30.0


def _haproxy() -> list[str]:
    """How it is called; skips the test where there is none, or fails it where one must be."""
    return debian_command("haproxy", _PACKAGES, "usr/sbin/haproxy")


def balancing(settings: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    """HAProxy with these settings, once it listens on ``port`` of the loopback."""
    path = folder / "haproxy.cfg"
    path.write_text(settings)
    with (folder / "haproxy.log").open("ab") as log:
        process = subprocess.Popen([*_haproxy(), "-db", "-f", str(path)], stdout=log, stderr=log)
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return process
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"it did not start: {(folder / 'haproxy.log').read_text()[-2000:]}")
