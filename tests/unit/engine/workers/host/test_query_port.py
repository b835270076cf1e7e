"""Where a worker answers queries, and how it follows the run."""

from __future__ import annotations

import json
import socket

import pytest

from millwheel.core.pipeline.query_changes import QueryChanges, QueryRow
from millwheel.engine.queries.health import ErrorShare
from millwheel.engine.workers.host.health import HealthMeasures
from millwheel.engine.workers.host.query_port import Queried
from millwheel.errors import SetupError
from millwheel.language.spec.pipelines import load_pipeline


class Changes:
    """What was set while the pipeline runs."""

    now = QueryChanges()

    def read(self, known: QueryChanges | None = None) -> QueryChanges:
        return self.now if known is None or known.number < self.now.number else known


MEASURES = HealthMeasures(lambda: 0.0, "/", ErrorShare())


PIPELINE = """
pipeline: asked
streams:
  events: {source: {injection: {}}, timestamp: at, fields: {at: int, key: int}}
computations:
  big: {input: {events: {key: key}}, filter: "key > 3", output: big}
  clicks: {input: {big: {key: key}}, slices: {every: 1m, keep: 1d}, aggregate: {n: count}}
"""


def test_the_members_that_answer_are_told_to_clients(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE)
    queried = Queried("127.0.0.1:0", "w0", load_pipeline(path), None, Changes())
    address = queried.begin(lambda asked: None, lambda: None, lambda: 0, MEASURES)
    queried.workers({"w0": json.dumps({"queries": address}).encode(), "w1": b"{}"})
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 20) as client:
        client.sendall(b"CLUSTER NODES\r\n")
        told = client.recv(1000)
    assert told.count(b"connected") == 1
    assert b" 127.0.0.1:" + port.encode() in told


def test_other_machines_may_not_ask_without_authentication(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE)
    with pytest.raises(SetupError, match="refusing to listen on"):
        Queried("0.0.0.0:0", "w0", load_pipeline(path), None, Changes())


def test_queries_that_are_set_are_answered_once_workers_are_told(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE)
    changes = Changes()
    queried = Queried("127.0.0.1:0", "w0", load_pipeline(path), None, changes)
    host, port = queried.begin(lambda asked: None, lambda: None, lambda: 0, MEASURES).split(":")
    changes.now = QueryChanges().changed([QueryRow("twice", "clicks.n * 2")], "1")
    queried.changed()
    with socket.create_connection((host, int(port)), 20) as client:
        told = b""
        while told != b"+hash\r\n":
            client.sendall(b"TYPE twice:1\r\n")
            told = client.recv(1000)
