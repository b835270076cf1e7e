from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.launch.launchers.executor_orders import Orders, orders_at
from tests.fakes.buckets import Fault
from tests.fakes.s3_server import S3Server


@pytest.fixture(params=("files", "objects"))
def index(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "files":
        return str(tmp_path / "stop")
    server: S3Server = request.getfixturevalue("s3")
    server.fail()
    return server.root()


@pytest.fixture
def orders(index: str) -> Orders:
    return orders_at(index)


def test_who_is_named_hears_it(index: str, orders: Orders) -> None:
    assert orders.read(0, 7) == (False, False)
    orders.kill(1, 7)
    assert orders_at(index).read(1, 7) == (False, True)
    assert orders.read(1, 8) == orders.read(0, 7) == (False, False)
    orders.kill(1, 8)
    assert orders.read(1, 8) == (False, True)


def test_all_are_stopped_until_that_is_forgotten(orders: Orders) -> None:
    orders.kill(1, 7)
    orders.stop()
    orders.stop()
    assert orders.read(0, 1) == (True, False)
    orders.forget()
    assert orders.read(0, 1) == orders.read(1, 7) == (False, False)


def test_a_store_that_is_away_orders_nothing(s3: S3Server) -> None:
    orders = orders_at(s3.root())
    s3.fail(Fault("GET", "", "refuse", 1000))
    assert orders.read(0, 1) == (False, False)
    s3.fail()
