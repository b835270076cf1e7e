"""Records of a key come together where that cannot be seen, and one by one where it could."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel import Computation, ValueState
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.records import Domain
from millwheel.core.pipeline.spec import Productions
from millwheel.engine.workers.bundle.hangs import TOGETHER_MARK, Avoided, Doing, Hang
from millwheel.engine.workers.operators.batch_callbacks import BatchOperator
from millwheel.engine.workers.shard.admission import ShardLimits
from tests.unit.engine.workers.bench import NOW, Dial, ShardBench, computation, pipeline


class Sums(Computation):
    """Adds up the values of each key, and notes how they came. What is not a number fails;
    ``"timer"`` sets one."""

    total = ValueState(int, default=0)

    def __init__(self) -> None:
        self.calls: list[tuple[Any, list[Any]]] = []

    def process_batch(self, ctx: Any, records: Any) -> None:
        self.calls.append((ctx.key, [record.value for record in records]))
        for record in records:
            if record.value == "timer":
                ctx.set_timer("t", record.timestamp)
            elif record.value == "early":
                ctx.produce("out", 0, timestamp=records[0].timestamp - 1)
            else:
                self.total.set(self.total.get() + record.value)
                ctx.produce("out", [ctx.key, self.total.get()], timestamp=record.timestamp)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        ctx.produce("out", [ctx.key, timer.tag])


class Brief(Sums):
    total = ValueState(int, default=0, ttl="10s")


class Bench(ShardBench):
    """Its computation is ``instance``."""

    def __init__(
        self, kind: type[Sums] = Sums, dial: Dial = Dial(max_attempts=2), **more: Any
    ) -> None:
        def make() -> Sums:
            self.instance = kind()
            return self.instance

        work = computation(
            callback="bench:It",
            productions=dial.productions,
            max_attempts=dial.max_attempts,
            **more,
        )
        made = type("Made", (kind,), {"__new__": lambda cls: make()})
        super().__init__(made, dial, ShardLimits(), pipeline(work))

    @property
    def calls(self) -> list[tuple[Any, list[Any]]]:
        found, self.instance.calls = self.instance.calls, []
        return found


def test_the_records_of_a_key_come_together_in_the_order_of_their_arrival() -> None:
    bench = Bench()
    bench.deliver(("a", 1, NOW + 5), ("b", 2, NOW), ("a", 3, NOW + 1))
    bench.deliver(("a", 4, NOW), channel="other")
    assert bench.through() == [["a", 1], ["a", 4], ["a", 8], ["b", 2]]
    assert bench.calls == [("a", [1, 3, 4]), ("b", [2])]
    assert isinstance(bench.shard.operator, BatchOperator)


def test_only_the_record_that_fails_becomes_a_dead_letter() -> None:
    bench = Bench()
    bench.deliver(("a", 1, NOW), ("a", "poison", NOW), ("b", 5, NOW), ("a", 2, NOW))
    assert bench.through() == [["a", 1], ["b", 5], ["a", 3]]
    assert [(letter["key"], letter["value"], letter["attempts"]) for letter in bench.letters] == [
        ("a", "poison", 2)
    ]
    assert bench.calls[0] == ("a", [1, "poison", 2])
    assert all(len(values) == 1 for _, values in bench.calls[1:])


def test_a_production_needs_a_timestamp_that_is_not_before_the_earliest_record() -> None:
    class Forgetful(Sums):
        def process_batch(self, ctx: Any, records: Any) -> None:
            ctx.produce("out", len(records))

    for kind, value, why in (
        (Forgetful, 1, "timestamp=record.timestamp"),
        (Sums, "early", "may not be earlier"),
    ):
        bench = Bench(kind)
        bench.deliver(("a", value, NOW))
        assert bench.through() == []
        assert why in bench.letters[0]["reason"]


def test_a_timer_has_the_time_of_its_own() -> None:
    bench = Bench()
    bench.deliver(("a", "timer", NOW), ("a", 1, NOW + 1))
    assert bench.through() == [["a", 1]]
    bench.watermark(NOW + 1)
    assert bench.through() == [["a", "t"]]


def test_a_timer_that_is_due_at_once_fires_before_the_next_record() -> None:
    """The watermark has passed the record that sets it, so that comes alone."""
    bench = Bench()
    bench.watermark(NOW + 10)
    bench.deliver(("a", 1, NOW + 11), ("a", "timer", NOW), ("a", 2, NOW + 12), ("a", 3, NOW + 13))
    assert bench.through() == [["a", 1], ["a", "t"], ["a", 3], ["a", 6]]
    assert bench.calls == [("a", [1]), ("a", ["timer"]), ("a", [2, 3])]


def test_state_with_a_time_to_live_is_that_of_each_record() -> None:
    bench = Bench(Brief)
    second = 1_000_000
    bench.deliver(
        ("a", 1, NOW), ("a", 2, NOW), ("a", 3, NOW + 9 * second), ("a", 4, NOW + 30 * second)
    )
    assert bench.through() == [["a", 1], ["a", 3], ["a", 6], ["a", 4]]
    assert [values for _, values in bench.calls] == [[1, 2], [3], [4]]


@pytest.mark.parametrize("how", [{"dial": Dial(productions=Productions.WEAK)}, {"ordered": True}])
def test_records_that_are_named_or_ordered_come_one_by_one(how: Any) -> None:
    bench = Bench(**how)
    bench.deliver(("a", 1, NOW), ("a", 2, NOW + 1))
    bench.watermark(NOW + 5)
    bench.run()
    assert [values for _, values in bench.calls] == [[1], [2]]


def test_what_did_not_return_together_comes_one_by_one_at_the_next_owner() -> None:
    seen: list[Doing | None] = []

    class Looking(Sums):
        def process_batch(self, ctx: Any, records: Any) -> None:
            seen.append(bench.shard.operator.watched().doing())
            super().process_batch(ctx, records)

    bench = Bench(Looking)
    bench.deliver(("a", 1, NOW), ("a", 2, NOW))
    bench.run()
    assert seen == [Doing("batch", "a", TOGETHER_MARK)]
    entry = ShardEntry("work-0", tile(1)[0], "w0", 1)
    note = Hang("work", entry.shard, 1, "batch", "'a'", TOGETHER_MARK, "code.py:3", "1m")
    avoided = Avoided({TOGETHER_MARK: note})
    assert avoided.apart
    assert not avoided.hangs
    bench.shard.operator.watched().avoid(avoided)
    bench.deliver(("a", 3, NOW), ("a", 4, NOW), first=3)
    bench.run()
    assert [values for _, values in bench.calls] == [[1, 2], [3], [4]]
    assert seen[1:] == [Doing("record", "a", encode_value(("r", "up", seq))) for seq in (3, 4)]


def test_a_clock_timer_still_has_a_timestamp_of_its_own() -> None:
    class Waits(Sums):
        def process_batch(self, ctx: Any, records: Any) -> None:
            ctx.set_timer("later", ctx.now + 10, Domain.PROCESSING)

    bench = Bench(Waits)
    bench.deliver(("a", 1, NOW))
    assert bench.through() == []
    bench.clock.now += 20
    assert bench.through() == [["a", "later"]]
