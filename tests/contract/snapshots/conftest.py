from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.spaces.files import PosixFiles
from millwheel.adapters.stores.rocksdb import RocksStores
from tests.contract.snapshots.world import World, memory_world


@pytest.fixture(params=("memory", "posix", "s3"))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "memory":
        return memory_world()
    local = str(tmp_path / "scratch")
    space = request.getfixturevalue("s3").space() if request.param == "s3" else None
    return World(space.root if space else str(tmp_path), PosixFiles(), RocksStores(local), local, space)
