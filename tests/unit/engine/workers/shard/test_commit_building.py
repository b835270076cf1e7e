"""What a commit holds: everything of a bundle under one number, or nothing."""

from __future__ import annotations

from typing import Any

from millwheel.api import Computation
from millwheel.core.formats.codec import decode_commit
from millwheel.core.formats.store_layout import CHANNEL, META, PENDING, TIMER, decode_meta
from millwheel.core.pipeline.spec import Productions
from millwheel.engine.workers.delivery.high_water_marks import decode_high_water_marks
from millwheel.engine.workers.shard.admission import ShardLimits
from tests.unit.engine.workers.bench import NOW, Counting, Dial, ShardBench, Silent


class Alarm(Computation):
    """Sets a timer, or takes it back."""

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.value:
            ctx.set_timer("t", record.value)
        else:
            ctx.cancel_timer("t")


class Nothing(Computation):
    def process_record(self, ctx: Any, record: Any) -> None:
        pass


def families(puts: Any) -> set[bytes]:
    return {key[:1] for key, _ in puts}


def test_the_high_water_mark_is_in_the_commit_of_what_its_records_made() -> None:
    bench = ShardBench(Counting)
    bench.deliver(("a", 1, 5), ("a", 2, 6))
    bench.run()
    [commit] = bench.settle()
    marks = {key: data for key, data in commit.puts if key.startswith(CHANNEL)}
    assert marks.keys() == {CHANNEL + b"up"}
    assert decode_high_water_marks(marks[CHANNEL + b"up"]) == 2
    assert {META, PENDING} <= families(commit.puts)


def test_copies_that_were_dropped_raise_the_mark_as_well() -> None:
    bench = ShardBench(Silent)
    bench.deliver(("a", 1, 5), ids=["x"], channel="one")
    bench.through()
    bench.deliver(("a", 1, 5), ids=["x"], channel="two")
    bench.run()
    [commit] = bench.settle()
    assert CHANNEL + b"two" in dict(commit.puts)


def test_a_commit_is_applied_to_the_store_as_it_is_written_to_the_journal() -> None:
    bench = ShardBench(Counting)
    bench.deliver(("a", 1, 5))
    pending = bench.shard.run(NOW)
    assert pending is not None
    [(same, entry)] = bench.shard.commits.submittable(NOW)
    written = decode_commit(entry)
    assert same is pending
    assert (written.shard, written.token, written.number) == ("work-0", bench.token, 1)
    assert dict(written.puts) == bench.stored()


def test_timers_that_are_taken_back_leave_the_store() -> None:
    bench = ShardBench(Alarm)
    bench.deliver(("a", 100, 5))
    bench.through()
    assert any(key.startswith(TIMER) for key in bench.stored())
    bench.deliver(("a", 0, 6), first=2)
    bench.run()
    [commit] = bench.settle()
    assert [key[:1] for key in commit.deletes] == [TIMER]
    assert not any(key.startswith(TIMER) for key in bench.stored())


def test_productions_that_all_have_applied_leave_the_store_with_the_next_commit() -> None:
    bench = ShardBench(Counting)
    bench.deliver(("a", 1, 5))
    bench.run()
    bench.settle()
    bench.ack(*bench.sends())
    assert any(key.startswith(PENDING) for key in bench.stored()), (
        "before, a crash could bring them back undone"
    )
    bench.deliver(("a", 2, 6), first=2)
    bench.run()
    [commit] = bench.settle()
    assert sum(key.startswith(PENDING) for key in commit.deletes) == 1


def test_a_bundle_that_changes_nothing_is_acked_behind_earlier_commits_without_its_own() -> None:
    bench = ShardBench(Nothing)
    bench.deliver(("a", 1, 5), first=0)
    bench.run()
    assert bench.settle() == []
    assert [arrival.channel for arrival in bench.acked] == ["up"]
    assert bench.shard.commits.made == 0


def test_weak_productions_may_wait_for_company_and_strong_ones_may_not() -> None:
    limits = ShardLimits(gather_us=7_000)
    weak, strong = (
        ShardBench(Counting, Dial(productions=how), limits)
        for how in (Productions.WEAK, Productions.STRONG)
    )
    for bench, write_by_us in ((weak, NOW + 7_000), (strong, 0)):
        bench.deliver(("a", 1, 5))
        pending = bench.shard.run(NOW)
        assert pending is not None
        assert pending.write_by_us == write_by_us


def test_the_meta_entry_tells_where_the_next_owner_goes_on() -> None:
    bench = ShardBench(Counting)
    bench.watermark(77)
    bench.deliver(("a", 1, 5), ("b", 2, 6))
    bench.run()
    [commit] = bench.settle()
    meta = decode_meta(dict(commit.puts)[META])
    assert (meta.number, meta.next_seq, meta.next_chunk, meta.watermark) == (1, 3, 2, 77)
