from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.adapters.grpc.channels import new_server
from millwheel.adapters.pb.master_pb2_grpc import add_MasterServicer_to_server
from millwheel.control.injector.server import InjectorServer
from millwheel.control.master.server import MasterService
from millwheel.core.model.range_table import RangeTable
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.server import WorkerService, serve
from tests.unit.adapters.grpc.test_security import loaded


@pytest.fixture
def worker(ours: Path) -> Iterator[tuple[str, list[ev.Event]]]:
    posted: list[ev.Event] = []

    def post(event: ev.Event) -> None:
        posted.append(event)
        if isinstance(event, ev.Injected):
            event.answer(False, len(event.values), 0, 0)

    server, address = serve(WorkerService(post), "127.0.0.1:0", loaded(ours, "worker"))
    yield address, posted
    server.stop(None).wait()


@pytest.fixture
def injector(ours: Path) -> Iterator[str]:
    server = InjectorServer(security=loaded(ours, "injector"))
    server.start()
    tables: list[RangeTable] = []
    server.lead(tables)
    yield server.address
    server.stop()


@pytest.fixture
def master(ours: Path) -> Iterator[str]:
    server, address = new_server(4, "127.0.0.1:0", loaded(ours, "master"))
    add_MasterServicer_to_server(MasterService(lambda _: None), server)
    server.start()
    yield address
    server.stop(None).wait()
