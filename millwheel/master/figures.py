"""The metrics of the master for ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator

from millwheel.core.metrics import catalogue as c
from millwheel.core.metrics.figures import Figure
from millwheel.master.runtime import MasterView


def figures_of(view: MasterView) -> Iterator[Figure]:
    """The number of living workers and how slow each is, the seats that the loss of a host would leave empty, and for
    each node the number of shards with an owner."""
    yield Figure(c.LIVE_WORKERS, len(view.workers))
    for worker, state in view.members.items():
        yield Figure(c.SLOWNESS, state.slowness, (worker,))
    for loss in view.exposures:
        yield Figure(c.EXPOSED_SEATS, loss.missing, (loss.host,))
    alive = set(view.workers)
    for table in view.tables:
        owned = sum(entry.owner in alive for entry in table.shards)
        yield Figure(c.OWNED_SHARDS, owned, (table.computation,))
        yield Figure(c.ORPHANED_SHARDS, len(table.shards) - owned, (table.computation,))
