from __future__ import annotations

from dataclasses import replace

from millwheel.core.metrics import catalogue as c
from millwheel.core.model.names import WorkerName
from millwheel.master.figures import figures_of
from millwheel.master.runtime import MasterView
from millwheel.master.state import WorkerState
from millwheel.master.tables.spares import HostLoss
from tests.unit.workers.loop.stand import table


def test_a_shard_of_a_dead_worker_has_no_owner() -> None:
    view = MasterView((WorkerName("w0"),), (table("work", ("w0", 1), ("dead", 1), ("", 0)),))
    view = replace(view, members={WorkerName("w0"): WorkerState(1, 4.0, 0.5)}, exposures=(HostLoss("h1", 3, 1),))
    found = {(each.metric, *each.values): each.value for each in figures_of(view)}
    shards = {(c.OWNED_SHARDS, "work"): 1, (c.ORPHANED_SHARDS, "work"): 2}
    assert found == {(c.LIVE_WORKERS,): 1, (c.SLOWNESS, "w0"): 4.0, (c.EXPOSED_SEATS, "h1"): 2, **shards}
