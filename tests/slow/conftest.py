from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.kafka import Broker, need_kafka
from tests.servers.postgres import Server, need_postgres
from tests.servers.redis import RedisServer, running
from tests.slow.runs import Run


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    yield
    while Run.started:
        Run.started.pop().end()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One for all tests of this process; they use topics of their own, and leave it running."""
    need_kafka()
    made = Broker(tmp_path_factory.mktemp("kafka"))
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One for all tests of this process, which leave it running; each begins with an empty
    database."""
    yield from running(tmp_path_factory.mktemp("redis"))


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server for all tests of this process; they use tables of their own, and leave it
    running."""
    need_postgres()
    made = Server()
    made.start()
    yield made
    made.end()
