from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.formats.id_runs import marks_from
from millwheel.core.formats.store_layout import RUNS, SEEN, number8
from millwheel.core.model.keys import key_hash
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.shard import seen_ids
from millwheel.engine.workers.shard.bloom_filter import BitsOf, BucketFilter
from millwheel.engine.workers.shard.seen_ids import MIN_SPAN_US, SeenIds
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore

HORIZON = 8 * MIN_SPAN_US


class Bench:
    def __init__(self) -> None:
        self.store = SimStore({})
        self.reopen()

    def reopen(self) -> None:
        self.overlay = Overlay(self.store)
        self.seen = SeenIds(self.store, self.overlay, HORIZON)

    def fresh(self, *rows: tuple[Any, Any, int], stream: str = "s") -> list[int]:
        """Rows are (key, id, timestamp)."""
        keys, ids, times = ([row[part] for row in rows] for part in range(3))
        return np.flatnonzero(self.seen.fresh(Batch(stream, [], times, keys, [], ids))).tolist()

    def singly(self, *rows: tuple[Any, Any, int]) -> None:
        """Remember ids as they were before there were runs: an entry for each."""
        for key, given_id, at in rows:
            head = key_hash(key).to_bytes(8, "big")
            mark = head + xxhash.xxh3_128_digest(msgspec.msgpack.encode(("s", key, given_id)))
            self.store.apply([(SEEN + number8(at - at % MIN_SPAN_US) + mark, b"")], [])

    def commit(self) -> None:
        self.store.apply(*self.overlay.take())


@pytest.fixture
def bench() -> Bench:
    return Bench()


ROWS = st.tuples(
    st.sampled_from(["a", "b", ("a", 1)]),
    st.sampled_from([None, "1", "2", "3", 1]),
    st.integers(-3, 3).map(lambda n: n * MIN_SPAN_US // 2),
)


def in_columns(batch: Batch) -> ColumnBatch:
    """The same records. All keys and ids are text."""
    count = len(batch)
    keys, ids = pl.Series("key", batch.keys, pl.String), pl.Series("id", batch.ids, pl.String)
    seqs = np.arange(1, count + 1)
    frame = pl.DataFrame({"row": seqs})
    return ColumnBatch(
        batch.stream, seqs, np.array(batch.timestamps, np.int64), keys, frame, 0, ids
    )


TEXT_ROWS = st.tuples(
    st.sampled_from("ab"),
    st.sampled_from([None, "1", "2", "3", ""]),
    st.integers(-20, 20).map(lambda n: n * MIN_SPAN_US),
)
BUNDLES = st.lists(
    st.lists(st.tuples(st.lists(TEXT_ROWS, max_size=5), st.booleans()), max_size=3), max_size=8
)


@settings(deadline=None)
@given(BUNDLES, st.lists(st.sampled_from(["commit", "reopen", "forget"]), min_size=8, max_size=8))
def test_columns_lose_the_copies_that_rows_lose(
    bundles: list[list[tuple[Any, bool]]], then: list[str]
) -> None:
    """Copies within a bundle and in others, after a restart, and after ids were forgotten; some
    arrive in columns."""
    rows, mixed = Bench(), Bench()
    watermark = -20 * MIN_SPAN_US
    for given_rows, after in zip(bundles, then, strict=False):
        kept: list[Any] = []
        for bench in (rows, mixed):
            arrivals = []
            for records, columnar in given_rows:
                keys, ids, times = ([record[part] for record in records] for part in range(3))
                values = [*range(1, len(records) + 1)]
                batch = Batch("s", [*range(1, len(records) + 1)], times, keys, values, ids)
                sent = in_columns(batch) if columnar and bench is mixed else batch
                arrivals.append(Arrival(ChannelName("c"), 0, 0, sent, None, MAX_TIME))
            bundle = Bundle(1, 0, watermark, arrivals, bench.overlay, {})
            bench.seen.drop_copies(bundle)
            kept.append(
                [
                    (
                        arrival.batch.rows().seqs,
                        arrival.batch.rows().ids,
                        arrival.batch.rows().keys,
                        arrival.duplicates,
                    )
                    for arrival in bundle.arrivals
                ]
            )
            bench.commit()
            if after == "reopen":
                bench.reopen()
            elif after == "forget":
                bench.seen.forget_before(watermark)
        assert kept[0] == kept[1]
        assert rows.store.data == mixed.store.data
        watermark += 5 * MIN_SPAN_US


STEPS = st.lists(
    st.one_of(st.lists(ROWS, max_size=6), st.sampled_from(["commit", "reopen"])),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(
    STEPS, st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0, 2, 8192])
)
def test_ids_are_an_exact_set_however_often_the_filter_says_maybe(
    steps: list[Any], seed: int, doubtful: float, few: int
) -> None:
    rng = np.random.default_rng(seed)
    honest = BucketFilter.maybe

    def maybe(self: BucketFilter, bits_of: BitsOf) -> npt.NDArray[np.int64]:
        return np.union1d(
            honest(self, bits_of), np.flatnonzero(rng.random(bits_of.count) < doubtful)
        )

    bench, model = Bench(), set()
    with (
        mock.patch.object(BucketFilter, "maybe", maybe),
        mock.patch.object(seen_ids, "_FEW_IDS", few),
    ):
        for step in steps:
            if step == "commit":
                bench.commit()
            elif step == "reopen":
                bench.commit()
                bench.reopen()
            else:
                want = []
                for index, (key, given_id, _) in enumerate(step):
                    if given_id is None or (key, given_id) not in model:
                        want.append(index)
                    if given_id is not None:
                        model.add((key, given_id))
                assert bench.fresh(*step) == want


def test_a_copy_is_noticed_whatever_its_timestamp(bench: Bench) -> None:
    assert bench.fresh(("k", "1", 0)) == [0]
    assert bench.fresh(("k", "1", 5 * MIN_SPAN_US)) == []


def test_copies_within_one_batch_are_noticed(bench: Bench) -> None:
    assert bench.fresh(("k", "1", 0), ("k", "1", 0), ("k", "2", 0)) == [0, 2]


def test_the_scope_of_an_id_is_the_key_and_the_stream(bench: Bench) -> None:
    assert bench.fresh(("k", "1", 0)) == [0]
    assert bench.fresh(("l", "1", 0)) == [0]
    assert bench.fresh(("k", "1", 0), stream="other") == [0]
    assert bench.fresh(("k", "1", 0)) == []


def test_records_without_an_id_are_all_different(bench: Bench) -> None:
    assert bench.fresh(("k", None, 0), ("k", None, 0)) == [0, 1]
    assert not bench.overlay
    assert bench.fresh(("k", "1", 0), ("k", None, 0), ("k", "1", 0)) == [0, 1]


def test_marks_are_part_of_the_commit_and_survive_a_restart(bench: Bench) -> None:
    bench.fresh(("k", "1", 0))
    assert not bench.store.data
    bench.commit()
    bench.reopen()
    assert bench.fresh(("k", "1", 0), ("k", "2", 0)) == [1]


def test_what_was_not_committed_is_forgotten_with_the_process(bench: Bench) -> None:
    bench.fresh(("k", "1", 0))
    bench.reopen()
    assert bench.fresh(("k", "1", 0)) == [0]


def test_a_certainly_new_id_costs_no_look_up(bench: Bench) -> None:
    bench.fresh(*[("k", str(n), 0) for n in range(100)])
    assert (bench.seen.asked, bench.seen.doubted, bench.seen.checked) == (100, 0, 0)
    bench.fresh(("k", "5", 0), ("k", "new", 0))
    assert (bench.seen.asked, bench.seen.doubted, bench.seen.checked, bench.seen.confirmed) == (
        102,
        1,
        1,
        1,
    )


def test_filters_take_memory_until_their_bucket_is_dropped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_ids, "_FEW_IDS", 0)
    assert bench.seen.filter_bytes == 0
    bench.fresh(("k", "1", 0), ("k", "2", 10 * HORIZON))
    both = bench.seen.filter_bytes
    bench.seen.forget_before(9 * HORIZON)
    assert bench.seen.filter_bytes == both // 2 > 0


def test_memory_and_look_ups_grow_with_ids_and_not_with_the_spread_of_their_times(
    bench: Bench,
) -> None:
    for bucket in range(200):
        assert bench.fresh(("k", str(bucket), bucket * HORIZON)) == [0]
    assert (bench.seen.filter_bytes, len(bench.seen._apart), len(bench.seen._few)) == (0, 0, 200)
    assert len(bench.seen._few._parts) <= 9
    bench.seen.forget_before(150 * HORIZON)
    assert len(bench.seen._few) == len(bench.seen._buckets) < 60
    assert bench.fresh(("k", "10", 0), ("k", "190", 0)) == [0]


def test_filters_and_ids_are_there_after_a_restart(bench: Bench) -> None:
    bench.fresh(*[("k", str(n), 0) for n in range(100)])
    bench.commit()
    bench.reopen()
    assert bench.fresh(("k", "1", 0), ("k", "new", 0)) == [1]
    assert (bench.seen.checked, bench.seen.confirmed) == (1, 1)


def test_a_bucket_without_a_filter_is_asked_for_every_id(bench: Bench) -> None:
    bench.singly(("k", "1", 0))
    bench.reopen()
    assert bench.fresh(("k", "1", 0), ("k", "2", 0)) == [1]
    assert (bench.seen.checked, bench.seen.confirmed) == (2, 1)


def test_single_ids_of_older_stores_are_known_beside_runs_until_they_are_forgotten(
    bench: Bench,
) -> None:
    bench.singly(("k", "1", 0), ("k", "2", 0), ("k", "3", MIN_SPAN_US))
    bench.reopen()
    assert bench.fresh(("k", "1", 0), ("k", "4", 0), ("k", "3", 0)) == [1]
    bench.commit()
    bench.reopen()
    assert bench.fresh(("k", "1", 0), ("k", "4", 0), ("k", "5", 0)) == [2]
    bench.commit()
    bench.seen.forget_before(HORIZON + MIN_SPAN_US + 1)
    assert bench.fresh(("k", "1", 0), ("k", "4", 0), ("k", "3", 0)) == [0, 1]
    assert len(bench.store.data) == 1


def test_beyond_what_is_held_in_memory_ids_are_looked_up_in_the_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_ids, "_HELD", 3)
    rows = [("k", str(n), n * MIN_SPAN_US // 3) for n in range(12)]
    for row in rows:
        assert bench.fresh(row) == [0]
        bench.commit()
    kinds = Counter(key[:1] for key in bench.store.data)
    assert kinds == {RUNS: 3, SEEN: 9}
    assert bench.fresh(*rows, ("k", "new", 0)) == [12]
    bench.commit()
    bench.reopen()
    assert bench.fresh(*rows, ("k", "new", 0), ("k", "newer", 0)) == [13]


def test_eight_small_runs_become_one(bench: Bench) -> None:
    lengths = []
    for number in range(64):
        assert bench.fresh(("k", str(number), 0)) == [0]
        bench.commit()
        lengths.append(sorted(len(marks_from(run)) for run in bench.store.data.values()))
        if number % 5 == 0:
            bench.reopen()
    assert lengths[6:9] == [[1] * 7, [8], [1, 8]]
    assert lengths[-2:] == [[1] * 7 + [8] * 7, [64]]
    [run] = bench.store.data.values()
    assert {mark.tobytes()[:8] for mark in marks_from(run)} == {key_hash("k").to_bytes(8, "big")}
    bench.reopen()
    assert bench.fresh(*[("k", str(number), 0) for number in range(65)]) == [64]


def test_large_runs_are_not_written_again(bench: Bench) -> None:
    for number in range(9):
        bench.fresh(*[("k", f"{number}-{index}", 0) for index in range(4096)])
        bench.commit()
    assert [len(marks_from(run)) for run in bench.store.data.values()] == [4096] * 9


HALVES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=8)


@given(st.lists(HALVES, max_size=8), HALVES)
def test_sorted_digests_are_a_set_even_if_halves_are_alike(
    added: list[list[Any]], asked: list[Any]
) -> None:
    held, model = seen_ids.SortedDigests(), set()
    for some in added:
        new = [each for each in dict.fromkeys(some) if each not in model]
        if new:
            held.add(*np.array(new, np.uint64).T)
        model.update(new)
    assert len(held) == len(model)
    if asked:
        assert held.contains(*np.array(asked, np.uint64).T).tolist() == [
            each in model for each in asked
        ]


@given(HALVES.filter(len))
def test_of_equal_digests_the_first_is_kept_even_if_halves_are_alike(digests: list[Any]) -> None:
    first = seen_ids._first_of_each(*np.array(digests, np.uint64).T)
    assert first.tolist() == [digest not in digests[:index] for index, digest in enumerate(digests)]


def test_an_id_is_kept_as_long_as_its_copies_may_come(bench: Bench) -> None:
    bench.fresh(("k", "1", MIN_SPAN_US - 1))
    bench.commit()
    bench.seen.forget_before(MIN_SPAN_US - 1 + HORIZON)
    assert bench.fresh(("k", "1", MIN_SPAN_US - 1 + HORIZON)) == []


def test_an_id_is_dropped_once_the_watermark_has_left_its_bucket_behind(bench: Bench) -> None:
    bench.fresh(("k", "1", 0))
    bench.fresh(("k", "2", MIN_SPAN_US))
    bench.commit()
    bench.seen.forget_before(HORIZON + MIN_SPAN_US)
    assert len(bench.store.data) == 2
    bench.seen.forget_before(HORIZON + MIN_SPAN_US + 1)
    assert len(bench.store.data) == 1
    assert bench.fresh(("k", "1", 0), ("k", "2", 0)) == [0]


def test_buckets_found_after_a_restart_are_dropped_too(bench: Bench) -> None:
    bench.fresh(("k", "1", 0), ("k", "2", -5 * MIN_SPAN_US))
    bench.commit()
    bench.reopen()
    bench.seen.forget_before(MAX_TIME - 1)
    assert not bench.store.data
