from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from millwheel.adapters.grpc.channels import new_server
from millwheel.adapters.grpc.watermark_client import InjectorClient, fetch_status
from millwheel.control.injector.server import InjectorServer
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.watermark import ShardReport
from millwheel.errors import SetupError, UnavailableError

_DEADLINE_S = 10.0


class Worker:
    """A client whose callbacks go to queues, and the leader's address as the worker knows it."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.watermarks: queue.Queue[dict[str, int]] = queue.Queue()
        self.known: queue.Queue[tuple[str, int]] = queue.Queue()
        self.client = InjectorClient(
            lambda: self.address,
            self.watermarks.put,
            lambda shard, token: self.known.put((shard, token)),
        )

    def report(
        self, shard: str, token: int, watermark_us: int, counters: dict[str, int] | None = None
    ) -> None:
        self.client.report(
            {"n": [ShardReport(shard, token, watermark_us, "input", counters or {})]}
        )

    def next_watermarks(self) -> dict[str, int]:
        return self.watermarks.get(timeout=_DEADLINE_S)

    def next_known(self) -> tuple[str, int]:
        return self.known.get(timeout=_DEADLINE_S)

    def until(self, value: int) -> None:
        while self.next_watermarks() != {"n": value}:
            pass


def table(*tokens: int, version: int = 0) -> RangeTable:
    entries = [
        ShardEntry(f"n-{at}", part, "w", token)
        for at, (part, token) in enumerate(zip(tile(len(tokens)), tokens, strict=True))
    ]
    return RangeTable("n", tuple(entries), version)


@contextmanager
def serving(*tables: RangeTable) -> Iterator[InjectorServer]:
    server = InjectorServer()
    server.start()
    server.lead(tables)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def worker() -> Iterator[Callable[[str | None], Worker]]:
    workers: list[Worker] = []

    def start(address: str | None) -> Worker:
        workers.append(Worker(address))
        return workers[-1]

    yield start
    for each in workers:
        each.client.close()


def test_reports_of_two_workers_become_one_watermark_that_both_receive(
    worker: Callable[..., Worker],
) -> None:
    with serving(table(1, 1)) as server:
        one, two = worker(server.address), worker(server.address)
        one.report("n-0", 1, 30)
        assert one.next_known() == ("n-0", 1)
        two.report("n-1", 1, 20)
        assert two.next_known() == ("n-1", 1)
        assert one.next_watermarks() == two.next_watermarks() == {"n": 20}


def test_a_worker_that_connects_later_gets_the_full_picture(worker: Callable[..., Worker]) -> None:
    with serving(table(1)) as server:
        worker(server.address).report("n-0", 1, 30)
        late = worker(server.address)
        assert late.next_watermarks() == {"n": 30}


def test_a_restarted_injector_on_another_port_completes_its_tiling_from_what_workers_say_again(
    worker: Callable[..., Worker],
) -> None:
    with serving(table(1, 1)) as first:
        one, two = worker(first.address), worker(first.address)
        one.report("n-0", 1, 30)
        two.report("n-1", 1, 20)
        one.until(20)
    one.report("n-0", 1, 50)
    with serving(table(1, 1)) as second:
        for each in (one, two):
            each.address = second.address
            each.client.leader_changed()
        one.next_known()
        assert two.next_known() == ("n-1", 1)
        two.report("n-1", 1, 40)
        one.until(40)
        status = one.client.status()
        assert status.nodes[0].complete
        assert status.nodes[0].holder_shard == "n-1"


def test_a_forgotten_shard_is_not_reported_again(worker: Callable[..., Worker]) -> None:
    with serving(table(1, 1)) as first:
        one = worker(first.address)
        one.report("n-0", 1, 30)
        one.report("n-1", 1, 30)
        assert {one.next_known(), one.next_known()} == {("n-0", 1), ("n-1", 1)}
    one.client.forget("n-0")
    with serving(table(1, 1)) as second:
        one.address = second.address
        one.client.leader_changed()
        assert one.next_known() == ("n-1", 1)
        assert fetch_status(second.address).nodes[0].silent_shards == ["n-0"]


def test_a_worker_finds_a_leader_that_appears_after_it_started(
    worker: Callable[..., Worker],
) -> None:
    one = worker(None)
    one.report("n-0", 1, 30)
    with serving(table(1)) as server:
        one.address = server.address
        one.client.leader_changed()
        assert one.next_watermarks() == {"n": 30}


def test_a_table_that_arrives_while_it_serves_fences_the_old_owner(
    worker: Callable[..., Worker],
) -> None:
    with serving(table(1)) as server:
        old, new = worker(server.address), worker(server.address)
        old.report("n-0", 1, 30)
        new.until(30)
        server.table_changed(table(2, version=1))
        new.report("n-0", 2, 31)
        assert new.next_known() == ("n-0", 2)
        new.until(31)
        old.report("n-0", 1, 99)
        while not fetch_status(server.address).nodes[0].stale_reports:
            pass
        assert fetch_status(server.address).nodes[0].watermark_us == 31


def test_status_carries_the_sums_of_durable_counters(worker: Callable[..., Worker]) -> None:
    with serving(table(1, 1)) as server:
        one = worker(server.address)
        one.report("n-0", 1, 30, {"records_in": 4})
        one.report("n-1", 1, 30, {"records_in": 5})
        one.report("n-1", 1, 31)
        one.until(30)
        assert dict(one.client.status().nodes[0].counters) == {"records_in": 9}


def test_an_injector_that_stands_by_refuses_to_serve() -> None:
    server = InjectorServer()
    server.start()
    try:
        with pytest.raises(UnavailableError, match="stands by"):
            fetch_status(server.address)
    finally:
        server.stop()


def test_a_client_without_leader_says_so(worker: Callable[..., Worker]) -> None:
    with pytest.raises(UnavailableError, match="no injector leads"):
        worker(None).client.status()


def test_a_port_in_use_is_a_sentence() -> None:
    server = InjectorServer()
    with pytest.raises(SetupError, match="the port is in use"):
        new_server(1, server.address)
