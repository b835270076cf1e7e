from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import UnavailableError
from millwheel.tools.chaos.observer import Observer, family
from millwheel.tools.chaos.plan import Target
from tests.fakes.coordination import FakeZooKeeper


def test_who_owns_shards_or_leads_has_work(tmp_path: Path) -> None:
    zookeeper = FakeZooKeeper(immediate=True)
    run = zookeeper.connect()
    observer = Observer(tmp_path, zookeeper.connect)  # type: ignore[arg-type]
    facts = {"address": "a:1", "exchange": "a:2", "host": "h", "slot": 0, "pid": 44}
    run.join("workers", "w0", json.dumps(facts).encode())
    run.write_table(RangeTable("n", (ShardEntry("n-0", tile(1)[0], "w0", 1),), -1))  # type: ignore[arg-type]
    observer.look(1.0)
    observer.look(1.1)
    assert observer.serves(Target.WORKERS, frozenset({44, 45}))
    assert not observer.serves(Target.WORKERS, frozenset({45}))
    assert not observer.serves(Target.MASTER, frozenset())
    run.join("masters-leader", "m", b"")
    observer.look(1.2)
    assert observer.serves(Target.MASTER, frozenset())
    assert observer.serves(Target.ZOOKEEPER, frozenset())
    observer.close()
    observer.close()


def test_a_service_that_is_not_there_yet_is_asked_again_later(tmp_path: Path) -> None:
    tries: list[int] = []

    def connect() -> None:
        tries.append(1)
        raise UnavailableError("not yet")

    observer = Observer(tmp_path, connect)  # type: ignore[arg-type]
    for now_s in (1.0, 1.5, 2.1):
        observer.look(now_s)
    assert len(tries) == 2


def test_a_process_is_of_its_own_family() -> None:
    assert os.getpid() in family(psutil.Process())
