"""Deliberate mistakes about commits and productions."""

from __future__ import annotations

from millwheel.core.model.records import Batch
from millwheel.workers.bundle.bundle import Bundle
from millwheel.workers.operators.ordering import OrderBuffer
from millwheel.workers.shard.commit_building import CommitBuilding
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=100, features="weak at_least_once", variants="reference")
def productions_need_no_commit() -> Context:
    """A bundle that changes nothing but makes productions is not committed, and they are dropped."""
    return replaced(
        CommitBuilding,
        "_changes_nothing",
        lambda self, chunk, bundle, rises: not self.overlay and not bundle.counters and not rises,
    )


@mistake(within=30, features="loose_order order_by weak few_times", variants="reference")
def records_without_a_name_share_one() -> Context:
    """Records that wait for their order, and have neither a number nor an id, are one if they have one time."""
    right = OrderBuffer._name

    def wrong(self: OrderBuffer, batch: Batch, place: int, bundle: Bundle) -> str:
        named = batch.seqs or (batch.ids is not None and batch.ids[place] is not None)
        return right(self, batch, place, bundle) if named else str(batch.timestamps[place])

    return replaced(OrderBuffer, "_name", wrong)
