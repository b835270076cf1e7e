"""Joins of all records go on in columns beside what rows keep."""

from __future__ import annotations

import json
from collections import Counter
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from millwheel.core.columns.state import columns_to_rows, near_pairs
from millwheel.core.formats import codec
from millwheel.core.formats.store_layout import ARCHIVE, ARCHIVE_BLOCK, STATE, key_in
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.engine.workers.bundle import bundle
from millwheel.engine.workers.operators import key_forms, suspension
from millwheel.engine.workers.operators.keyed_joins import columns, regular, regular_columns
from millwheel.engine.workers.operators.keyed_joins.regular_columns import LastingJoinOperator
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.sources.frames import ReadSize
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import in_bundles
from tests.unit.engine.workers.operators.keyed_joins.test_columns import (
    ALL,
    Row,
    archived_keys,
    in_files,
    in_rows,
    pushes,
    read_of,
    records,
    row,
    said,
    written,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lasting")


def test_new_records_meet_the_archive_in_columns(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_MOST_BYTES", 1)
    path = in_files(folder / "recalled", within=ALL)
    found, in_whole, one_by_one = read_of(path, False, monkeypatch)
    assert in_whole > 0
    assert one_by_one == 0
    assert found == read_of(path, True, monkeypatch)[0]


def test_to_meet_what_rows_or_the_archive_keep_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it stay in memory."""
    limits = partialmethod(ShardLimits.__init__, rows_below=2)
    monkeypatch.setattr(ShardLimits, "__init__", limits)
    with PipelineHarness(written(folder / "read", ALL), shards=1) as harness:
        [shard] = harness._cluster.shards_of("matched")
        assert isinstance(shard.operator, LastingJoinOperator)
        harness.push("shown", [row(0, ad=3)])  # in rows: so few come
        with monkeypatch.context() as patch:
            patch.setattr(shard.operator._form, "most_bytes", 1)
            harness.push("shown", [row(number, ad=number % 5) for number in range(40)])
            harness.push("shown", [row(50, ad=9), row(51, ad=8)])
        assert not shard.operator._kept
        assert shard.operator._archive
        before, cached = dict(shard.store.scan(b"")), cells_of(shard.operator)
        assert {key_in(entry) for entry in before if entry.startswith(STATE)} == {3}
        harness.push("clicked", [row(60, ad=3), row(61, ad=9)])
        assert len(harness.take("matched")) == 1 + 8 + 1
        for family in (STATE, ARCHIVE, ARCHIVE_BLOCK):
            unchanged = [(key, data) for key, data in before.items() if key.startswith(family)]
            assert list(shard.store.scan(family)) == unchanged
        assert cells_of(shard.operator) == cached
        harness.crash()
        harness.push("shown", [row(63, ad=3), row(64, ad=9)])
        assert len(harness.take("matched")) == 2


def cells_of(operator: LastingJoinOperator) -> list[Any]:
    return [list(handle.cells) for handle in operator._state.handles.values()]


def test_few_records_find_in_rows_what_the_archive_had(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key by key, as records come: nothing else of it is touched."""
    limits = partialmethod(ShardLimits.__init__, rows_below=2)
    monkeypatch.setattr(ShardLimits, "__init__", limits)
    monkeypatch.setattr(columns, "_MOST_BYTES", 1)
    with PipelineHarness(written(folder / "few", ALL), shards=1) as harness:
        [shard] = harness._cluster.shards_of("matched")
        harness.push("shown", [row(number, ad=number % 5) for number in range(40)])
        harness.push("clicked", [row(60, ad=3)])
        assert len(harness.take("matched")) == 8
        assert {key_in(entry) for entry, _ in shard.store.scan(STATE)} == {3}
        operator = shard.operator
        assert isinstance(operator, LastingJoinOperator)
        assert archived_keys(operator) == {0, 1, 2, 4}
        harness.crash()
        harness.push("clicked", [row(61, ad=number) for number in range(5)])
        assert len(harness.take("matched")) == 40


def test_a_hot_key_goes_on_in_rows_part_by_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that its first partner neither waits for all of it, nor makes all pairs at once."""
    monkeypatch.setattr(regular_columns, "_HOT", 10)
    monkeypatch.setattr(columns, "_MOST_BYTES", 1)
    with PipelineHarness(written(folder / "hot", ALL), shards=1) as harness:
        [shard] = harness._cluster.shards_of("matched")
        for start in range(0, 60, 20):
            cold = [row(start + number, ad=100 + start + number) for number in range(9)]
            harness.push("shown", [*cold, *(row(start + number) for number in range(20))])
        assert {key_in(entry) for entry, _ in shard.store.scan(STATE)} == {1}
        operator = shard.operator
        assert isinstance(operator, LastingJoinOperator)
        assert archived_keys(operator) == {
            100 + start + n for start in (0, 20, 40) for n in range(9)
        }
        harness.crash()
        harness.push("clicked", [row(60), row(61, ad=120)])
        assert len(harness.take("matched")) == 61


def test_a_new_owner_goes_on_in_columns_without_records(folder: Path) -> None:
    with PipelineHarness(written(folder / "owner", ALL), shards=1) as harness:
        harness.push("shown", [row(number, ad=number % 5) for number in range(40)])
        harness.crash()
        harness.advance_watermark(100)
        [shard] = harness._cluster.shards_of("matched")
        assert not list(shard.store.scan(STATE))


def test_a_retraction_that_waits_in_rows_goes_with_its_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which came in columns."""
    monkeypatch.setattr(columns, "_MOST_BYTES", 1)
    path = written(folder / "owed", ALL)
    story = [
        ("shown", [{**row(5), RETRACTION_FIELD: True}, row(4, ad=2)]),
        ("shown", [row(5), row(6, ad=2)]),
        ("clicked", [row(7), row(7, ad=2)]),
        ("shown", [row(5), row(8, ad=2)]),
        ("clicked", [row(9)]),
    ]
    found = said(path, story, False)
    assert found == said(path, story, True)
    assert sum('"ad": 1,' in pair for pair in found["pairs"]) == 2
    with PipelineHarness(path, shards=1) as harness:
        [shard] = harness._cluster.shards_of("matched")
        assert isinstance(shard.operator, LastingJoinOperator)
        with monkeypatch.context() as patch:
            patch.setattr(shard.operator._form, "most_bytes", 32 << 20)
            for stream, values in story[:2]:
                harness.push(stream, values)
        assert shard.operator._kept
        assert {key for key, *_ in shard.operator.kept()} == {2}
        harness.push("clicked", [row(7)])
        assert not harness.read("matched")


def test_a_record_that_takes_back_another_sends_its_key_to_rows(folder: Path) -> None:
    """Only a source that nobody calls one of changes can bring one here."""
    path = written(folder / "taken back", ALL)
    back = {**row(5), RETRACTION_FIELD: True}
    story = [
        ("shown", [row(5), row(5), row(5, ad=2)]),
        ("clicked", [row(6), row(6, ad=2)]),
        ("shown", [back, {**row(9, ad=3), RETRACTION_FIELD: True}]),
        ("clicked", [row(8), row(8, ad=2), row(8, ad=3)]),
        ("shown", [row(9, ad=3)]),
    ]
    found = said(path, story, False)
    assert found == said(path, story, True)
    assert sum(RETRACTION_FIELD in pair for pair in found["pairs"]) == 2


PIPELINE = """
pipeline: joined
streams:
  shown:
    source: {{files: {{path: "{folder}/shown.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: us}}
    fields: {{what: str, ad: int, at: int, ends: int, cost: float}}
  clicked:
    source: {{files: {{path: "{folder}/clicked.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: us}}
    fields: {{ad: int, what: str, at: int}}
computations:
  matched:
    input: {{shown: {{key: {key}}}, clicked: {{key: {key}}}}}
    join: {kind}
    output: matched
  counted:
    input: {{matched: {{key: ad}}}}
    aggregate: {{n: count}}
    output: best
"""
KINDS = ["left", "right", "outer", "semi", "anti"]


def of_kind(folder: Path, kind: str, key: str = "ad") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(folder=folder, kind=kind, key=key))
    return str(path)


def stands(path: str, story: list[tuple[str, list[Row]]], by_record: bool) -> dict[str, Any]:
    """What stands in the end, and what of it counts."""
    with in_rows(by_record), PipelineHarness(path, shards=1) as harness:
        for stream, values in story:
            harness.push(stream, values)
        [shard] = harness._cluster.shards_of("matched")
        assert isinstance(shard.operator, LastingJoinOperator)
        assert (shard.operator._few is None) == by_record
        harness.finish()
        return folded(harness)


def folded(harness: PipelineHarness) -> dict[str, Any]:
    return {
        "rows": standing(harness.read("matched")),
        "counts": standing(harness.read("best")),
        "letters": sorted(each["reason"] for each in harness.read("dead_letters")),
    }


def standing(changes: list[Row]) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for each in changes:
        plain = {name: value for name, value in each.items() if name != RETRACTION_FIELD}
        rows[json.dumps(plain)] += -1 if RETRACTION_FIELD in each else 1
    return {row: count for row, count in rows.items() if count}


@pytest.mark.parametrize(("most", "key"), [(32 << 20, "[ad, what]"), (150, "ad")])
@pytest.mark.parametrize("kind", KINDS)
@given(story=pushes)
@settings(max_examples=7, deadline=None)
def test_the_same_stands_alone_as_record_by_record(
    folder: Path, key: str, kind: str, most: int, story: list[tuple[str, list[Row]]]
) -> None:
    path = of_kind(folder / f"{kind}-{len(key)}-{most}", kind, key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_MOST_BYTES", most)
        patch.setattr(columns, "_FAN", 2)
        patch.setattr(columns_to_rows, "PART_RECORDS", 2)
        found = stands(path, story, False)
    assert found == stands(path, story, True)


@pytest.mark.parametrize("kind", KINDS)
@given(story=pushes)
@settings(max_examples=10, deadline=None)
def test_the_same_stands_alone_whatever_the_size_of_bundles(
    folder: Path, kind: str, story: list[tuple[str, list[Row]]]
) -> None:
    path = of_kind(folder / f"sizes-{kind}", kind)
    with pytest.MonkeyPatch.context() as patch:
        limits = partialmethod(ShardLimits.__init__, rows_below=4)
        patch.setattr(ShardLimits, "__init__", limits)
        patch.setattr(key_forms, "_SMALL_BUNDLES", 1)
        patch.setattr(key_forms, "_LOOKS", 1)
        patch.setattr(columns_to_rows, "PART_RECORDS", 2)
        found = stands(path, story, False)
    assert found == stands(path, story, True)


@pytest.mark.parametrize("most", [32 << 20, 150], ids=["in memory", "too large"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "odd", [{**row(9), "more": [1]}, row(9, ad="1"), {**row(9), RETRACTION_FIELD: True}]
)
def test_odd_records_stand_alone_as_in_rows(
    folder: Path, odd: Row, kind: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_MOST_BYTES", most)
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 2)
    path = of_kind(folder / f"odd-{kind}", kind)
    first, second = records(30, 1), records(30, 2)
    odds = [odd, {**odd, "what": "y"}, {**odd, "ad": 77}]
    story = [
        ("shown", first[:15]),
        ("clicked", [odds[2], *second[:2]]),
        ("shown", [odds[0], *first[15:], odds[2]]),
        ("clicked", [odds[1], *second[2:]]),
        ("shown", [row(9), row(9, ad=77)]),
        ("clicked", [{**row(9), "what": "y"}, row(9, ad=77)]),
    ]
    assert stands(path, story, False) == stands(path, story, True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_too_deep_for_a_pair_is_the_same_letter(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MOST_NESTING", 20)
    monkeypatch.setattr(bundle, "nests_too_deeply", lambda data: codec.nests_too_deeply(data, 20))
    monkeypatch.setattr(regular, "MOST_NESTING", 20)
    deep: Any = 1
    for _ in range(19):
        deep = [deep]
    path = of_kind(folder / f"deep-{kind}", kind)
    story = [
        ("shown", [row(5), {**row(6), "more": deep}, {**row(6, ad=2), "more": deep}]),
        ("clicked", [row(7), row(7, ad=2), {**row(8, ad=3), "more": deep}]),
        ("shown", [row(9), row(9, ad=2), row(9, ad=3)]),
    ]
    found = stands(path, story, False)
    assert found == stands(path, story, True)
    assert found["letters"] or kind in ("semi", "anti")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [32 << 20, 2_000], ids=["in memory", "too large"])
def test_a_crash_changes_nothing_of_what_stands_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, kind: str
) -> None:
    monkeypatch.setattr(columns, "_MOST_BYTES", most)
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 5)
    monkeypatch.setattr(columns, "_FAN", 2)
    path = of_kind(folder / f"crash-{most}-{kind}", kind)
    story = in_bundles({"shown": records(15, 3), "clicked": records(15, 4)}, 5)
    assert assert_survives_crashes(path, story, every=19) > 8


@pytest.mark.parametrize("kind", ["inner", *KINDS])
def test_a_record_with_too_many_pairs_for_one_step_goes_on_in_rows(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There they span many bundles. The other keys stay in columns; of several records of one key a
    bundle takes as many as it has room for, and the others come with the next."""
    monkeypatch.setattr(near_pairs, "MOST_PAIR_BYTES", 1)
    monkeypatch.setattr(near_pairs, "_FEW_PAIRS", 15)
    monkeypatch.setattr(suspension, "ROOM_BYTES", 1_000)
    limits = partialmethod(ShardLimits.__init__, rows_below=1)
    monkeypatch.setattr(ShardLimits, "__init__", limits)
    path = of_kind(folder / f"heavy-{kind}", kind)
    first, second = ([row(at, ad=at % 5 or 5) for at in range(start, 60, 2)] for start in (0, 1))
    story = [
        ("shown", [*first[:15], *(row(at, what=str(at)) for at in range(20))]),
        ("clicked", [*second[:15], *(row(at) for at in range(6))]),
        ("shown", first[15:]),
        ("clicked", second[15:]),
    ]
    assert stands(path, story, False)["rows"] == stands(path, story, True)["rows"]
    with PipelineHarness(path, shards=1) as harness:
        for stream, values in story:
            harness.push(stream, values)
        [shard] = harness._cluster.shards_of("matched")
        in_both = {key for key, *_ in shard.operator.kept()}
        in_columns_only = in_both - {key_in(entry) for entry, _ in shard.store.scan(STATE)}
    assert in_both == {1, 2, 3, 4, 5}
    assert in_columns_only == (in_both if kind in ("semi", "anti") else {2, 3, 4, 5})


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_what_stands_alone_leave_in_columns(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All but the first results of a kind whose other stream nobody has seen yet."""
    path = of_kind(folder / f"files-{kind}", kind)
    for seed, name in enumerate(("shown", "clicked")):
        values = [{**each, "ad": each["at"] // (3 + seed)} for each in records(300, seed)]
        names = ("what", "ad", "at", "ends", "cost") if name == "shown" else ("ad", "what", "at")
        lines = [json.dumps({key: each[key] for key in names}) for each in values]
        (folder / f"files-{kind}" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    said: list[int] = []

    def never(self: Any, *parts: Any) -> None:
        said.append(1)

    def read(by_record: bool) -> dict[str, Any]:
        with in_rows(by_record), PipelineHarness(path, shards=1, run_sources=True) as harness:
            harness.advance_processing_time(10**9)
            return folded(harness)

    with monkeypatch.context() as patch:
        patch.setattr(ReadSize, "note", lambda self, was_full: setattr(self, "bytes", 4096))
        patch.setattr(ReadSize, "__init__", lambda self: setattr(self, "bytes", 4096))
        patch.setattr(regular.RegularJoined, "produce_alone", never)
        found = read(False)
    assert not said
    assert found == read(True)
    assert len(found["rows"]) > 50
