"""A worker that serves nothing: it joins, keeps a journal, answers Attach and releases what is to
move.

python -m tests.slow.stub_worker NAME ROOT ZOOKEEPER PIPELINE
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Iterator

import grpc

from millwheel.adapters.grpc.channels import new_server
from millwheel.adapters.journal.journals import FileJournals
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.adapters.pb.worker_pb2_grpc import WorkerServicer, add_WorkerServicer_to_server
from millwheel.adapters.processes.lifeline import die_with_parent
from millwheel.adapters.zookeeper.coordination import ZooKeeperCoordination
from millwheel.core.model.range_table import RangeTable


class Stub(WorkerServicer):
    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: list[queue.SimpleQueue[pb.WorkerReport]] = []
        self._released: dict[str, pb.Released] = {}
        self._lock = threading.Lock()

    def Attach(
        self, request: pb.AttachRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WorkerReport]:
        line: queue.SimpleQueue[pb.WorkerReport] = queue.SimpleQueue()
        with self._lock:
            self._lines.append(line)
            line.put(pb.WorkerReport(released=self._released.values()))
        while True:
            yield line.get()

    def follow(self, table: RangeTable) -> None:
        moving = [entry for entry in table.shards if entry.owner == self._name and entry.next_owner]
        with self._lock:
            for entry in moving:
                self._released[entry.shard] = pb.Released(
                    shard=entry.shard, token=entry.token, last_commit=0
                )
            for line in self._lines:
                line.put(pb.WorkerReport(released=self._released.values()))


def main(name: str, root: str, zookeeper: str, pipeline: str) -> None:
    die_with_parent()
    stub = Stub(name)
    server, address = new_server(16, "127.0.0.1:0")
    add_WorkerServicer_to_server(stub, server)
    server.start()
    FileJournals(root).create(name)
    coordination = ZooKeeperCoordination(zookeeper, pipeline, session_timeout_s=2.0)
    gone = threading.Event()
    coordination.on_lost(gone.set)
    coordination.watch_tables(stub.follow)
    coordination.join("workers", name, json.dumps({"address": address, "host": "here"}).encode())
    gone.wait()
    os._exit(75)  # gRPC threads that wait must not keep us


if __name__ == "__main__":
    main(*sys.argv[1:])
