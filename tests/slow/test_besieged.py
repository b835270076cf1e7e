"""A run under all attacks of the contract at once, on all of its ports: it loses no record and
answers its probes."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.servers.programs import free_port
from tests.slow.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.alone]

COUNT = 3_600
PIPELINE = f"""
pipeline: besieged
streams:
  hits: {{source: {{generator: {{rate: 300, keys: 20, partitions: 2, count: {COUNT}}}}},
    timestamp: ts}}
computations:
  counts: {{input: {{hits: {{key: key}}}}, window: {{tumbling: 1s}}, aggregate: {{n: count}},
    output: counts}}
sinks:
  counts: {{files: {{path: out/counts, format: jsonl}}}}
"""
SAYINGS = (
    b"",
    b"GET / HTTP/1.1\r\nX: ",
    b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\nx",
    b"millwheel-exchange",
    b"\x16\x03\x01",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"*2\r\n$4\r\nAUTH\r\n$1000\r\nx",
    b"PING\r\n" * 100,
)
STRANGERS = 40  # for each saying and port


def ports(run: Run) -> set[int]:
    """Every port on which a process of the run listens."""
    found = set()
    driver = psutil.Process(run.process.pid)
    for process in (driver, *driver.children(recursive=True)):
        with suppress(psutil.Error):
            found |= {
                each.laddr.port
                for each in process.net_connections("tcp")
                if each.status == psutil.CONN_LISTEN
            }
    return found


@contextmanager
def besieged(found: set[int]) -> Iterator[list[int]]:
    """Strangers at all ports, who come again when they are hung up on, and say a letter now and
    then."""
    over, came = threading.Event(), [0]

    def attack(port: int) -> None:
        held: list[socket.socket] = []
        while not over.is_set():
            for index in range(len(held), STRANGERS * len(SAYINGS)):
                with suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", port), 0.2))
                    came[0] += 1
                    held[-1].setblocking(False)
                    held[-1].send(SAYINGS[index % len(SAYINGS)])
            held = [each for each in held if trickles(each)]
            over.wait(0.2)
        for each in held:
            each.close()

    threads = [threading.Thread(target=attack, args=(port,)) for port in found]
    for thread in threads:
        thread.start()
    try:
        yield came
    finally:
        over.set()
        for thread in threads:
            thread.join()


def trickles(stranger: socket.socket) -> bool:
    """Say a letter; whether the stranger is still connected."""
    try:
        stranger.send(b"x")
        if stranger.recv(65_536):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    stranger.close()
    return False


def test_a_run_under_all_attacks_loses_no_record_and_answers_its_probes(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    queries, page, metrics = free_port(), free_port(), free_port()
    more = ("--query-port", str(queries), "--ui", str(page), "--metrics-port", str(metrics))
    run = Run(tmp_path / "p.yaml", tmp_path, more=more).start().until_reading()
    found, until_s = ports(run), time.monotonic() + 15
    while not {queries, page, metrics} <= found and time.monotonic() < until_s:
        time.sleep(0.2)
        found = ports(run)
    assert {queries, page, metrics} <= found
    assert len(found) > 6
    answered = 0
    with besieged(found) as came:
        until_s = time.monotonic() + 6
        while time.monotonic() < until_s and run.process.poll() is None:
            for port in (metrics, page):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as reply:
                    answered += reply.status == 200
            time.sleep(0.5)
        run.wait()
    assert run.code == 0, run.said
    assert answered > 3
    assert came[0] > 1_000
    assert "restart" not in run.said
    lines = [
        line
        for path in tmp_path.glob("out/counts/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert (
        sum(
            json.loads(line)["value"]["n"] if "value" in line else json.loads(line)["n"]
            for line in lines
        )
        == COUNT
    )
