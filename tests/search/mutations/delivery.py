"""Deliberate mistakes about commits and productions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from millwheel.control.injector.state import InjectorState
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.formats.store_layout import RUNS
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline import skew
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.bundle.record_order import OrderBuffer
from millwheel.engine.workers.delivery import fanout
from millwheel.engine.workers.shard.commit_building import CommitBuilding
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.sources import frames
from millwheel.engine.workers.sources.partitions import Partitions
from millwheel.engine.workers.state import runs
from millwheel.engine.workers.state.overlay import Overlay
from tests.search.mistakes import Context, mistake, replaced
from tests.sim import mistakes_of_both


@mistake(within=100, features="weak at_least_once", variants="reference")
def productions_need_no_commit() -> Context:
    """A bundle that changes nothing but makes productions is not committed, and they are
    dropped."""
    return replaced(
        CommitBuilding,
        "_changes_nothing",
        lambda self, chunk, bundle, rises: not self.overlay and not bundle.counters and not rises,
    )


@mistake(within=1, variants="uncached-bundles", first=7007)
def records_without_a_key_are_counted_without_late_ones() -> Context:
    """Of a bundle in columns with late records and some without a key, others are dead letters.
    (Once the product's own.)"""
    return replaced(fanout, "_among_all", lambda missing, late: list(missing))


@mistake(within=120, features="loose_order order_by weak few_times", variants="reference", first=37)
def records_without_a_name_share_one() -> Context:
    """Records that wait for their order, and have neither a number nor an id, are one if they have
    one time."""
    right = OrderBuffer._name

    def wrong(self: OrderBuffer, batch: Batch, index: int, bundle: Bundle) -> str:
        named = batch.seqs or (batch.ids is not None and batch.ids[index] is not None)
        return right(self, batch, index, bundle) if named else str(batch.timestamps[index])

    return replaced(OrderBuffer, "_name", wrong)


@mistake(within=10, features="late side windowed stated", variants="crashes")
def a_new_owner_is_not_told_what_was_published() -> Context:
    """The watermark service tells a worker that connects only what rises from then on."""
    return replaced(InjectorState, "published", lambda self: {})


@mistake(within=10, features="idle_after", variants="shards", first=107)
def a_silent_shard_holds_the_watermark_of_others() -> Context:
    """A shard whose partitions are all silent reports how far silence has moved it as if it were
    not."""
    right = Partitions.hold

    def wrong(self: Partitions, now_us: int) -> Hold:
        hold = right(self, now_us)
        return Hold(hold.idle_us, hold.holder) if hold.idle_us > MIN_TIME else hold

    return replaced(Partitions, "hold", wrong)


@mistake(within=5, features="id stated", variants="crashes crash-bundles", first=107)
def ids_that_were_forgotten_come_back() -> Context:
    """A new owner remembers ids that the former one had forgotten, until the watermark rises
    again."""
    right = Shard.start

    def wrong(self: Shard) -> None:
        with replaced(Shard, "forget_old_ids", lambda self: None):
            right(self)

    return replaced(Shard, "start", wrong)


@mistake(within=40, features="id columns copies", variants="bundles together")
def ids_stay_behind_when_records_become_columns() -> Context:
    """Records that a source reads as columns have no ids, so their copies count again."""
    right = frames.ColumnBatch  # type: ignore[attr-defined]

    def wrong(*parts: Any) -> ColumnBatch:
        return replace(right(*parts), ids=None)

    return replaced(frames, "ColumnBatch", wrong)


@mistake(within=10, features="id copies", variants="crash crashes restart", first=9)
@contextmanager
def runs_of_ids_that_become_one_lose_the_older_ones() -> Iterator[None]:
    """When runs of ids become one, it has the ids of the newest alone, and the next owner does not
    know the others."""
    right = Overlay.get_many

    def wrong(self: Overlay, keys: Sequence[bytes]) -> list[bytes | None]:
        found = right(self, keys)
        return [b"" if key[:1] == RUNS else value for key, value in zip(keys, found, strict=True)]

    with replaced(runs, "_TOGETHER", 2), replaced(Overlay, "get_many", wrong):
        yield


@mistake(
    within=10, features="tumbling_window aggregate windowed", variants="divided-crashes", first=24
)
def a_replay_decides_instances_anew() -> Context:
    """A record of a divided key goes to the next instance, as records arrive, and not to that of
    its number."""
    turn = count()

    def wrong(number: int, instances: int) -> int:
        return next(turn) % instances

    return replaced(skew, "instance_of", wrong)


@mistake(within=10, features="two_stages aggregate windowed", variants="grouped-crashes", first=20)
def instances_of_productions_are_not_stored() -> Context:
    """A new owner chooses instances anew for productions that it finds, which may have come to
    others."""
    return mistakes_of_both.instances_are_chosen_anew()
