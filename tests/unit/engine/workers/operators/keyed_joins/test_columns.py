"""Joins without a window that take whole bundles say what they say record by record."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.columns.batch import key_list
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state import columns_to_rows, near_pairs
from millwheel.core.formats import codec
from millwheel.core.formats.store_layout import STATE
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.replays import Again, ReplayOrder
from millwheel.core.tracing import TraceContext
from millwheel.engine.workers.bundle import bundle
from millwheel.engine.workers.bundle.replays import ReplayReply
from millwheel.engine.workers.host import assembly
from millwheel.engine.workers.operators import key_forms
from millwheel.engine.workers.operators.keyed_joins import columns
from millwheel.engine.workers.operators.keyed_joins.columns import ColumnJoinOperator
from millwheel.engine.workers.operators.keyed_joins.regular_columns import LastingJoinOperator
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.sources.frames import ReadSize
from millwheel.engine.workers.tracing.table import Arrived
from millwheel.engine.workers.tracing.traced_bundle import TracedBundle
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import in_bundles
from tests.unit.engine.workers.tracing.fakes import KeptSpans, tracing

Row = dict[str, Any]
PIPELINE = """
pipeline: joined
streams:
  shown:
    source: {{files: {{path: "{folder}/shown.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 3us, max_future: null}}
    fields: {{what: str, ad: int, at: int, ends: int, cost: float}}
  clicked:
    source: {{files: {{path: "{folder}/clicked.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 3us, max_future: null}}
    fields: {{ad: int, what: str, at: int}}
computations:
  matched:
    input: {{shown: {{key: {key}}}, clicked: {{key: {key}}}}}
    join: {join}
    output: matched
  best:
    input: {{matched: {{key: {{ad: ad, what: shown.what}}}}}}
    aggregate: {{n: count, highest: {{max: shown.cost}}, last: {{max: clicked.at}}}}
    output: best
  by_time:
    input: {{matched: {{key: ad}}}}
    window: {{tumbling: 50us}}
    aggregate: {{n: count, lowest: {{min: "shown.ends - clicked.at"}}}}
    output: by_time
"""
CONTEXT = TraceContext(f"00-{1:032x}-{'b' * 16}-01")
NEAR, NAMED = "{before: 8us, after: 5us}", "{until: shown.ends}"
ALL = ""
"""No ``within``: all records of a key meet."""


def written(folder: Path, within: str = NEAR, key: str = "ad") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    join = f"{{kind: inner, within: {within}}}" if within else "inner"
    path.write_text(PIPELINE.format(folder=folder, join=join, key=key))
    return str(path)


@contextmanager
def in_rows(wanted: bool) -> Iterator[None]:
    """Within it the join keeps an entry for each key."""
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            patch.setattr(assembly, "near_pairings", lambda *parts: {})
        yield


def row(at: int, ad: Any = 1, what: str = "x", length: Any = 6) -> Row:
    ends = at + length if isinstance(length, int) else length
    return {"at": at, "ad": ad, "what": what, "ends": ends, "cost": 0.5 * (at % 7)}


def said(path: str, story: list[tuple[str, list[Row]]], by_record: bool) -> dict[str, Any]:
    with in_rows(by_record), PipelineHarness(path, shards=1) as harness:
        for stream, values in story:
            harness.push(stream, values)
        [shard] = harness._cluster.shards_of("matched")
        assert isinstance(shard.operator, ColumnJoinOperator)
        assert (shard.operator._few is None) == by_record
        harness.finish()
        return seen(harness)


def seen(harness: PipelineHarness) -> dict[str, Any]:
    """Pairs in any order; of a change log the newest rows."""
    newest = {(each["ad"], each["what"]): each for each in harness.read("best")}
    pairs = [json.dumps(each) for each in harness.read("matched")]
    letters = [(each["stream"], each["reason"]) for each in harness.read("dead_letters")]
    return {
        "pairs": sorted(pairs),
        "best": newest,
        "by_time": sorted(json.dumps(each) for each in harness.read("by_time")),
        "letters": sorted(letters),
        "late": harness.counters.get("late", 0),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("near")


rows = st.lists(
    st.builds(row, st.integers(0, 60), st.sampled_from([1, 2, -5]), st.sampled_from("xy")),
    max_size=6,
)
pushes = st.lists(st.tuples(st.sampled_from(["shown", "clicked"]), rows), max_size=8)


@pytest.mark.parametrize("key", ["ad", "[ad, what]"])
@pytest.mark.parametrize("within", [NEAR, NAMED, ALL])
@pytest.mark.parametrize("most", [32 << 20, 150], ids=["in memory", "too large"])
@given(story=pushes)
@settings(max_examples=7, deadline=None)
def test_whole_bundles_give_the_pairs_of_records_one_by_one(
    folder: Path, key: str, within: str, most: int, story: list[tuple[str, list[Row]]]
) -> None:
    path = written(folder / f"{len(within)}-{len(key)}-{most}", within, key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_MOST_BYTES", most)
        patch.setattr(columns, "_FAN", 2)
        patch.setattr(columns_to_rows, "PART_RECORDS", 2)
        found = said(path, story, False)
    assert found == said(path, story, True)


def records(count: int, seed: int) -> list[Row]:
    rng = random.Random(seed)
    return [
        row(number * 2 + rng.randrange(4), rng.randrange(4), rng.choice("xyz"))
        for number in range(count)
    ]


ODD = {
    "far": row(2**62 + 5),
    "a bound that is none": row(9, length="soon"),
    "no bound": row(9, length=None),
    "a key of another kind": row(9, ad="1"),
    "a whole number as a float": {**row(9), "cost": 3},
    "more fields": {**row(9), "more": [1]},
    "a field less": {"at": 9, "ad": 1, "ends": 12, "what": "x"},
}


@pytest.mark.parametrize("most", [32 << 20, 150], ids=["in memory", "too large"])
@pytest.mark.parametrize("within", [NAMED, ALL])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_records_are_joined_as_in_rows_and_nothing_is_lost(
    folder: Path, odd: Row, within: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_MOST_BYTES", most)
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 2)
    path = written(folder / f"odd{len(within)}", within)
    first, second = records(30, 1), records(30, 2)
    story = [
        ("shown", first[:15]),
        ("clicked", second[:15]),
        ("shown", [odd, *first[15:]]),
        ("clicked", [{**odd, "what": "y"}, *second[15:]]),
    ]
    found = said(path, story, False)
    assert found == said(path, story, True)
    assert len(found["pairs"]) > 20


def in_files(folder: Path, odd: int | None = None, within: str = NEAR) -> str:
    path = written(folder, within)
    for seed, name in enumerate(("shown", "clicked")):
        values = records(300, seed)
        for number, each in enumerate(values):
            if number % 60 == 59:
                each["at"] -= 90  # late
            if number == odd:
                each["ad"] = 1.5
        names = ("what", "ad", "at", "ends", "cost") if name == "shown" else ("ad", "what", "at")
        lines = [json.dumps({key: each[key] for key in names}) for each in values]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return path


def read_of(path: str, by_record: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, int, int]:
    """What a run gives, and how often pairs left in columns, and one by one."""
    times = [0, 0]

    def counted(self: ColumnJoinOperator, pairs: Any, bundle: Any) -> None:
        times["value" in pairs.columns] += 1
        made(self, pairs, bundle)

    made = ColumnJoinOperator._produce
    with monkeypatch.context() as patch, in_rows(by_record):
        patch.setattr(ColumnJoinOperator, "_produce", counted)
        patch.setattr(ReadSize, "note", lambda self, was_full: setattr(self, "bytes", 4096))
        patch.setattr(ReadSize, "__init__", lambda self: setattr(self, "bytes", 4096))
        with PipelineHarness(path, shards=1, run_sources=True) as harness:
            harness.advance_processing_time(10**9)
            return seen(harness), times[0], times[1]


@pytest.mark.parametrize("within", [NEAR, NAMED, ALL])
def test_pairs_leave_in_columns_and_are_grouped_in_columns(
    folder: Path, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    path = in_files(folder / f"files{len(within)}", within=within)
    found, in_columns, one_by_one = read_of(path, False, monkeypatch)
    assert in_columns > 0
    assert one_by_one == 0
    assert found == read_of(path, True, monkeypatch)[0]
    assert len(found["pairs"]) > 100


def test_a_read_with_an_odd_record_is_kept_one_by_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = in_files(folder / "odd files", odd=7)
    found, _, one_by_one = read_of(path, False, monkeypatch)
    assert one_by_one > 0
    assert found == read_of(path, True, monkeypatch)[0]


@pytest.mark.parametrize("within", [NEAR, ALL])
@pytest.mark.parametrize("most", [32 << 20, 2_000], ids=["in memory", "too large"])
def test_a_crash_at_any_place_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, within: str
) -> None:
    monkeypatch.setattr(columns, "_MOST_BYTES", most)
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 5)
    monkeypatch.setattr(columns, "_FAN", 2)
    path = written(folder / f"crash-{most}-{len(within)}", within)
    story = in_bundles({"shown": records(15, 3), "clicked": records(15, 4)}, 5)
    assert assert_survives_crashes(path, story, every=19) > 8


def test_nothing_is_kept_once_no_partner_can_come(folder: Path) -> None:
    with PipelineHarness(written(folder / "gone"), shards=1) as harness:
        harness.push("shown", records(50, 5))
        harness.advance_watermark(60)
        [shard] = harness._cluster.shards_of("matched")
        assert isinstance(shard.operator, ColumnJoinOperator)
        assert shard.operator._kept
        harness.advance_watermark(10_000)
        assert not shard.operator._kept
        harness.crash()
        harness.push("clicked", row(9_000))
        assert harness.read("matched") == []


def test_no_bundle_hands_over_more_than_a_part_of_what_is_too_large(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once takes longer than a worker may be silent, and again after each restart."""
    handed: list[int] = []

    def counted(self: ColumnJoinOperator, segments: list[Any], bundle: Any) -> None:
        handed.append(sum(each.groups.height for each in segments))
        right(self, segments, bundle)

    right = ColumnJoinOperator._hand_over
    monkeypatch.setattr(columns, "_MOST_BYTES", 10_000)
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 40)
    monkeypatch.setattr(ColumnJoinOperator, "_hand_over", counted)
    path = written(folder / "too large", "{before: 1s, after: 1s}")
    story = [
        (stream, [row(number * 10 + at, ad=at * 7 + number) for at in range(10)])
        for number in range(60)
        for stream in ("shown", "clicked")
    ]
    found = said(path, story, False)
    assert len(handed) > 3
    assert max(handed) <= 2 * 40
    assert found == said(path, story, True)


WIDE = "{before: 30us, after: 30us}"


@pytest.mark.parametrize("within", [WIDE, ALL])
@given(story=pushes)
@settings(max_examples=15, deadline=None)
def test_a_key_is_in_rows_or_in_columns_whatever_the_size_of_bundles(
    folder: Path, within: str, story: list[tuple[str, list[Row]]]
) -> None:
    path = written(folder / f"sizes{len(within)}", within)
    with pytest.MonkeyPatch.context() as patch:
        limits = partialmethod(ShardLimits.__init__, rows_below=4)
        patch.setattr(ShardLimits, "__init__", limits)
        patch.setattr(key_forms, "_SMALL_BUNDLES", 1)
        patch.setattr(key_forms, "_LOOKS", 1)
        patch.setattr(columns_to_rows, "PART_RECORDS", 2)
        found = said(path, story, False)
    assert found == said(path, story, True)


@pytest.mark.parametrize("within", [WIDE, ALL])
def test_keys_that_rows_have_meet_whole_bundles_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    path = written(folder / f"first rows{len(within)}", within)
    limits = partialmethod(ShardLimits.__init__, rows_below=4)
    monkeypatch.setattr(ShardLimits, "__init__", limits)
    story = [
        ("shown", [row(5, ad=1), row(6, ad=2)]),
        ("clicked", [row(7 + ad, ad=ad) for ad in range(6)]),
        ("shown", [row(9 + ad, ad=ad) for ad in range(6)]),
    ]
    found = said(path, story, False)
    assert len(found["pairs"]) == 8
    assert found == said(path, story, True)


def test_of_what_is_too_large_the_keys_leave_that_have_waited_longest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with new records stay, and what has left meets what comes for it."""
    monkeypatch.setattr(columns, "_MOST_BYTES", 20_000)
    story = [
        (
            stream,
            [
                row(number * 10, ad=-1),
                *(row(number * 10 + at, ad=100 * number + at) for at in range(9)),
            ],
        )
        for number in range(30)
        for stream in ("shown", "clicked")
    ]
    path = written(folder / "oldest", ALL)
    with PipelineHarness(path, shards=1) as harness:
        for stream, values in story:
            harness.push(stream, values)
        [shard] = harness._cluster.shards_of("matched")
        operator = shard.operator
        assert isinstance(operator, LastingJoinOperator)
        archived = archived_keys(operator)
        assert {0, 100, 200} <= archived
        assert not archived & {-1, 2900}
        assert not list(shard.store.scan(STATE))
        harness.crash()
        harness.push("clicked", [row(500, ad=0), row(501, ad=-1), row(502, ad=2900)])
        assert len(harness.read("matched")) == 30 * 30 + 30 * 9 + (1 + 30 + 1)
    assert said(path, story, False) == said(path, story, True)


def archived_keys(operator: LastingJoinOperator) -> set[Key]:
    frames = operator._archive.all_records(operator._shard.store)
    return {key for frame in frames for key in key_list(frame[KEY])}


def test_no_watermark_removes_what_a_join_of_all_records_keeps(folder: Path) -> None:
    """Not even that of the end of the input: a later run may go on."""
    with PipelineHarness(written(folder / "lasting", ALL), shards=1) as harness:
        harness.push("shown", records(50, 5))
        harness.finish()
        harness.crash()
        [shard] = harness._cluster.shards_of("matched")
        assert isinstance(shard.operator, ColumnJoinOperator)
        assert sum(each.groups.height for each in shard.operator._kept.segments()) == 50


def test_a_traced_record_is_the_cause_of_its_pairs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pairs are made apart from those of the others."""
    credited: list[int] = []

    def credit(self: TracedBundle, span: Any, before: Any, after: Any) -> None:
        credited.append(after.get("matched", 0) - before.get("matched", 0))

    monkeypatch.setattr(TracedBundle, "credit", credit)
    with PipelineHarness(written(folder / "traced", NAMED), shards=1) as harness:
        [shard] = harness._cluster.shards_of("matched")
        kept = tracing(KeptSpans())
        second = [(1, Arrived(CONTEXT))]
        monkeypatch.setattr(kept.table, "found", lambda channel, batch: second[: len(batch) // 2])
        shard.trace(kept, is_source=False)
        harness.push("shown", [row(5), row(6, ad=2), row(7, length="soon")])
        harness.push("clicked", [row(7), row(7, ad=2), row(8, ad=2)])
        assert len(harness.read("matched")) == 3
        assert len(harness.read("dead_letters")) == 1
    assert credited == [0, 1]


@pytest.fixture
def five_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """More are too many for one step: a bundle takes less."""
    monkeypatch.setattr(near_pairs, "MOST_PAIR_BYTES", 1)
    monkeypatch.setattr(near_pairs, "_FEW_PAIRS", 5)


@pytest.mark.usefixtures("five_pairs")
def test_a_traced_record_that_waits_for_the_next_bundle_has_one_span(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PipelineHarness(written(folder / "traced later", WIDE), shards=1) as harness:
        [shard] = harness._cluster.shards_of("matched")
        spans = KeptSpans()
        kept = tracing(spans)
        harness.push("shown", [row(5), row(6)])
        kept.table.put("source.clicked/pushed", 7, Arrived(CONTEXT))
        found = kept.table.found
        monkeypatch.setattr(
            kept.table, "found", lambda _, batch: found("source.clicked/pushed", batch)
        )
        shard.trace(kept, is_source=False)
        before = shard.meta.number
        harness.push("clicked", [row(7) for _ in range(8)])
        assert len(harness.read("matched")) == 16
        assert shard.meta.number - before >= 4
    assert [span.name for span in spans.all if span.ended_us] == ["matched process"]


@pytest.mark.usefixtures("five_pairs")
@pytest.mark.parametrize("within", [WIDE, ALL])
def test_a_traced_record_with_too_many_pairs_shortens_no_bundle_that_has_begun(
    folder: Path, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    """What was made of the others would be made again."""
    path = written(folder / f"traced heavy {len(within)}", within)
    with PipelineHarness(path, shards=1) as harness:
        [shard] = harness._cluster.shards_of("matched")
        kept = tracing(KeptSpans())
        last = [(3, Arrived(CONTEXT))]
        harness.push("shown", [*(row(5) for _ in range(5)), row(5), row(6, ad=2)])
        monkeypatch.setattr(kept.table, "found", lambda _, batch: last[: len(batch) // 4])
        shard.trace(kept, is_source=False)
        harness.push("clicked", [*(row(7, ad=2) for _ in range(3)), row(7)])
        assert len(harness.read("matched")) == 3 + 6


@pytest.mark.usefixtures("five_pairs")
@pytest.mark.parametrize("within", [WIDE, ALL])
def test_a_bundle_with_letters_that_are_tried_again_is_taken_whole(
    folder: Path, within: str
) -> None:
    """Also where none of them is a record: that was noted."""
    path = written(folder / f"again {len(within)}", within)
    with PipelineHarness(path, shards=1) as harness:
        [shard] = harness._cluster.shards_of("matched")
        harness.push("shown", [row(5), row(6)])
        broken = [
            Again(str(number), "matched", "clicked", 1, 7, row(7), [], problem="no record")
            for number in (1, 2)
        ]
        order = ReplayOrder("order", broken)
        batch = Batch("clicked", [1, 2], [7, 7], [1, 1], [row(7), row(7)])
        shard.offer(order.channel, 1, 0, batch, ReplayReply(order, dict(enumerate(broken, 1))))
        harness.push("clicked", [row(7) for _ in range(8)])
        assert len(harness.read("matched")) == 16
        assert len(harness.read("dead_letters")) == 2


@pytest.mark.usefixtures("five_pairs")
@pytest.mark.parametrize("within", [WIDE, ALL])
def test_a_bundle_of_records_with_ids_is_taken_whole(folder: Path, within: str) -> None:
    """They are known from then on."""
    path = written(folder / f"ids {len(within)}", within)
    told = Path(path).read_text().replace("unit: us}", "unit: us}\n    id: what", 2)
    Path(path).write_text(told)
    with PipelineHarness(path, shards=1) as harness:
        [shard] = harness._cluster.shards_of("matched")
        assert shard.seen_ids is not None
        harness.push("shown", [row(5, what="a"), row(6, what="b"), row(6, what="b")])
        before = shard.meta.number
        harness.push("clicked", [row(7, what=str(number // 2)) for number in range(16)])
        assert len(harness.read("matched")) == 16
        assert shard.meta.number == before + 1
        harness.crash()
        harness.push("clicked", [row(7, what="0"), row(7, what="c")])
        assert len(harness.read("matched")) == 18


@pytest.mark.parametrize("within", [WIDE, ALL])
def test_what_columns_hold_goes_on_in_rows_where_they_are_not_taken_any_more(
    folder: Path, within: str
) -> None:
    """As where another version of the pipeline has a timer behind the join, or fields without
    types."""
    path = written(folder / f"version{len(within)}", within)
    with pytest.MonkeyPatch.context() as patch, PipelineHarness(path, shards=1) as harness:
        harness.push("shown", [row(5), row(6, ad=2)])
        [shard] = harness._cluster.shards_of("matched")
        assert isinstance(shard.operator, ColumnJoinOperator)
        assert shard.operator._kept
        patch.setattr(shard.operator, "_few", None)
        patch.setattr(shard.operator._form, "in_rows", True)  # as a shard opens
        harness.push("clicked", [row(7), row(8, ad=2)])
        assert not shard.operator._kept
        assert len(harness.read("matched")) == 2


def test_what_rows_cannot_keep_is_a_dead_letter_as_it_leaves_the_columns(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_MOST_BYTES", 100)
    path = Path(written(folder / "large rows"))
    path.write_text(path.read_text() + "limits: {state: 1KiB}\n")
    with PipelineHarness(str(path), shards=1) as harness:
        harness.push("shown", [row(5), row(5, ad=2, what="x" * 2_000)])
        harness.push("clicked", [row(6), row(6, ad=2)])
        assert [pair["ad"] for pair in harness.read("matched")] == [1]
        [letter] = harness.read("dead_letters")
    assert "limits.state" in letter["reason"]
    assert letter["value"]["what"] == "x" * 2_000


def test_a_pair_that_nests_too_deeply_is_a_dead_letter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MOST_NESTING", 20)
    monkeypatch.setattr(bundle, "nests_too_deeply", lambda data: codec.nests_too_deeply(data, 20))
    deep: Any = 1
    for _ in range(19):
        deep = [deep]
    with PipelineHarness(written(folder / "deep"), shards=1) as harness:
        harness.push("shown", [row(5), {**row(5, ad=2), "more": deep}])
        harness.push("clicked", [row(6), row(6, ad=2)])
        assert [pair["ad"] for pair in harness.read("matched")] == [1]
        [letter] = harness.read("dead_letters")
    assert "levels deep" in letter["reason"]
