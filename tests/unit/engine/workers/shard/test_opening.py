"""What a shard reads from its store when it opens is what the shard before it wrote."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.api import Computation
from millwheel.core.formats.store_layout import PENDING, number8
from millwheel.core.model.records import Domain
from millwheel.engine.workers.shard.opening import (
    read_high_water_marks,
    read_meta,
    read_pending,
    read_timers,
)
from millwheel.errors import CorruptionError
from tests.fakes.plain_storage import SimStore
from tests.unit.engine.workers.bench import Counting, ShardBench


class Both(Computation):
    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.set_timer("event", record.value)
        ctx.set_timer("wall", record.value, Domain.PROCESSING)


def test_a_fresh_store_says_that_nothing_was_committed() -> None:
    store = SimStore({})
    assert (read_meta(store).number, read_meta(store).counters) == (0, {})
    assert read_high_water_marks(store) == {}
    assert read_pending(store) == []
    assert not any(read_timers(store).values())


def test_numbers_counters_and_marks_come_back() -> None:
    bench = ShardBench(Counting)
    bench.deliver(("a", 1, 5), ids=["x"])
    bench.deliver(("a", 1, 5), ids=["x"], channel="two")
    bench.run()
    bench.settle()
    store = SimStore(bench.stored())
    assert read_meta(store).counters == {"duplicates.events": 1}
    assert read_high_water_marks(store) == {"up": 1, "two": 1}


def test_timers_come_back_under_their_clocks_and_are_no_news() -> None:
    bench = ShardBench(Both)
    bench.deliver(("a", 10**17, 5), ("b", 10**17 + 1, 5))
    bench.run()
    queues = read_timers(SimStore(bench.stored()))
    for domain, tag in ((Domain.EVENT, "event"), (Domain.PROCESSING, "wall")):
        assert [queues[domain].get(key, tag) for key in ("a", "b")] == [10**17, 10**17 + 1]
        assert queues[domain].take_changes() == {}, (
            "they are in the store: the next commit need not write them"
        )


def test_productions_come_back_in_the_order_of_their_numbers() -> None:
    bench = ShardBench(Counting)
    for number in (1, 2):
        bench.deliver(("a", number, number), first=number)
        bench.run()
    found = read_pending(SimStore(bench.stored()))
    assert [(number, channel) for number, channel, *_ in found] == [(1, "work-0"), (2, "work-0")]
    assert [batch.rows().seqs for _, _, batches, _ in found for batch in batches] == [[1], [2]]


def test_productions_that_cannot_be_read_are_damage() -> None:
    with pytest.raises(CorruptionError, match="productions of a shard"):
        read_pending(SimStore({PENDING + number8(1): b"\xc1"}))
