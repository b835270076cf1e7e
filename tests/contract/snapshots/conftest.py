from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.spaces.files import PosixFiles
from millwheel.adapters.stores.rocksdb import RocksStores
from tests.contract.snapshots.world import World, memory_world
from tests.fakes.buckets import BUCKETS


@pytest.fixture(params=("memory", "posix", *BUCKETS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "memory":
        return memory_world()
    local = str(tmp_path / "scratch")
    space = request.getfixturevalue(request.param).space() if request.param != "posix" else None
    return World(
        space.root if space else str(tmp_path), PosixFiles(), RocksStores(local), local, space
    )
