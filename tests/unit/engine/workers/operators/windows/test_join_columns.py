"""Joins that take whole bundles say what they say record by record."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.columns.state import columns_to_rows
from millwheel.core.formats.codec import MOST_NESTING
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.engine.workers.operators.windows import join_columns
from millwheel.engine.workers.operators.windows.join import WindowJoinOperator
from millwheel.engine.workers.operators.windows.join_columns import JoinOperator
from millwheel.engine.workers.sources.frames import ReadSize
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import in_bundles

Row = dict[str, Any]
PIPELINE = """
pipeline: joined
streams:
  shown:
    source: {{injection: {{}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 3us, max_future: null}}
  clicked:
    source: {{injection: {{}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 3us, max_future: null}}
computations:
  matched:
    input: {{shown: {{key: {key}}}, clicked: {{key: {key}}}}}
    window: {window}
    join: {how}
    {more}
    output: matched
"""


def written(
    folder: Path,
    how: str = "outer",
    key: str = "ad",
    more: str = "",
    window: str = "{tumbling: 10us, offset: 3us}",
) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(how=how, key=key, more=more, window=window))
    return str(path)


@contextmanager
def in_rows(wanted: bool) -> Iterator[None]:
    """Within it joins keep an entry for each key and window."""
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            patch.setattr(Assembly, "_joined_by_bundle", lambda self, spec: None)
        yield


def row(at: int, ad: Any = 1, what: str = "x") -> Row:
    return {"at": at, "ad": ad, "what": what, "more": {"of": [ad, what]}}


keys = st.sampled_from([1, 2, "1", "ä", -5])
rows = st.lists(st.builds(row, st.integers(-40, 40), keys, st.sampled_from("xyz")), max_size=6)
pushes = st.lists(st.tuples(st.sampled_from(["shown", "clicked"]), rows), max_size=8)


def said(
    path: str, story: list[tuple[str, list[Row]]], by_record: bool, form: type
) -> dict[str, Any]:
    with in_rows(by_record), PipelineHarness(path, shards=1) as harness:
        for stream, values in story:
            harness.push(stream, values)
        [shard] = harness._cluster.shards_of("matched")
        assert type(shard.operator) is form
        harness.finish()
        streams = ("matched", "behind") if "behind" in Path(path).read_text() else ("matched",)
        made = {
            name: [json.dumps(value, sort_keys=True) for value in harness.read(name)]
            for name in streams
        }
        # Of one key and window, the pairs come in the order of arrival.
        return {
            "counters": harness.counters,
            **{name: sorted(values) for name, values in made.items()},
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("joins")


@pytest.mark.parametrize("key", ["ad", "[ad, what]"])
@pytest.mark.parametrize(
    ("how", "more"), [("inner", ""), ("left", "late: {side: behind}"), ("right", ""), ("outer", "")]
)
@pytest.mark.parametrize("most", [32 << 20, 150], ids=["in memory", "too large"])
@given(story=pushes)
@settings(max_examples=7, deadline=None)
def test_whole_bundles_give_the_pairs_of_records_one_by_one(
    folder: Path, key: str, how: str, more: str, most: int, story: list[tuple[str, list[Row]]]
) -> None:
    path = written(folder / f"{how}-{len(key)}-{most}", how, key, more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_columns, "_MOST_BYTES", most)
        patch.setattr(columns_to_rows, "PART_RECORDS", 2)
        found = said(path, story, False, JoinOperator)
    assert found == said(path, story, True, WindowJoinOperator)


def records(count: int, seed: int, keys: int = 4) -> list[Row]:
    rng = random.Random(seed)
    return [
        row(i * 2 + rng.randrange(4), rng.randrange(keys), rng.choice("xyz")) for i in range(count)
    ]


ODD = {"far": row(2**62 + 5), "marked": {**row(3), "__retraction__": 1}}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_records_are_joined_as_in_rows_and_nothing_is_lost(folder: Path, odd: Row) -> None:
    """A time that no column holds sends the open windows to the rows. What looks like a retraction
    is data here."""
    path = written(folder / "odd")
    first, second = records(30, 1), records(30, 2)
    story = [
        ("shown", first[:15]),
        ("clicked", second[:15]),
        ("shown", [*first[15:], odd]),
        ("clicked", second[15:]),
    ]
    found = said(path, story, False, JoinOperator)
    assert found == said(path, story, True, WindowJoinOperator)
    assert len(found["matched"]) > 30


def test_pairs_come_in_the_order_of_arrival(folder: Path) -> None:
    with PipelineHarness(written(folder / "order", "inner"), shards=1) as harness:
        for number in range(40):  # segments of several levels
            harness.push("shown", row(9 - number % 4, what=str(number)))
        harness.push("clicked", [row(5, what="a"), row(4, what="b")])
        harness.finish()
        found = [
            (pair["shown"]["what"], pair["clicked"]["what"]) for pair in harness.read("matched")
        ]
        assert found == [(str(number), other) for number in range(40) for other in "ab"]


@pytest.mark.parametrize("most", [32 << 20, 2_000], ids=["in memory", "too large"])
def test_a_crash_at_any_place_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(join_columns, "_MOST_BYTES", most)
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 5)
    monkeypatch.setattr(join_columns, "_FAN", 2)
    path = written(folder / f"crash-{most}")
    story = in_bundles({"shown": records(15, 3), "clicked": records(15, 4)}, 5)
    assert assert_survives_crashes(path, story, every=13) > 3


def test_no_bundle_hands_over_more_than_a_part_of_what_is_too_large(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once takes longer than a worker may be silent, and again after each restart."""
    handed: list[int] = []

    def counted(self: JoinOperator, groups: list[Any], bundle: Any) -> None:
        handed.append(sum(group.count for _, group in groups))
        right(self, groups, bundle)

    right = JoinOperator.take_groups
    monkeypatch.setattr(join_columns, "_MOST_BYTES", 10_000)
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 40)
    monkeypatch.setattr(JoinOperator, "take_groups", counted)
    path = written(folder / "large", window="{tumbling: 1s}")
    story = [
        (stream, [row(number * 10 + at, ad=at * 7 + number) for at in range(10)])
        for number in range(60)
        for stream in ("shown", "clicked")
    ]
    found = said(path, story, False, JoinOperator)
    assert len(handed) > 3
    assert max(handed) < 2 * 40
    monkeypatch.setattr(JoinOperator, "take_groups", right)
    assert found == said(path, story, True, WindowJoinOperator)


def test_a_window_that_closes_while_its_keys_leave_has_each_key_in_one_form(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_columns, "_MOST_BYTES", 1_000)
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 40)
    path = written(folder / "closing", how="inner", window="{tumbling: 1s}")
    story = [
        (stream, [row(ad, ad=ad) for ad in range(200)]) for stream in ("shown", "clicked", "shown")
    ]
    found = said(path, story, False, JoinOperator)
    assert len(found["matched"]) == 400
    assert found == said(path, story, True, WindowJoinOperator)


def test_windows_and_their_state_are_seen_while_they_are_open(folder: Path) -> None:
    with PipelineHarness(written(folder / "open")) as harness:
        harness.push("shown", [row(5), row(6), row(17), row(5, ad="a")])
        assert [tuple(window) for window in harness.open_windows("matched", 1)] == [
            (3, 13),
            (13, 23),
        ]
        assert harness.state("matched", "a").keys() == {(3, 13)}
        harness.crash()
        assert [tuple(window) for window in harness.open_windows("matched", 1)] == [
            (3, 13),
            (13, 23),
        ]
        harness.finish()
        assert harness.open_windows("matched", 1) == []


# --- columns --------------------------------------------------------------------------------------

FILES = """
pipeline: joined
streams:
  shown:
    source: {{files: {{path: "{folder}/shown.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 3us, max_future: null}}
    fields: {{what: str, ad: int, at: int, {more}cost: float}}
  clicked:
    source: {{files: {{path: "{folder}/clicked.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 3us, max_future: null}}
    fields: {{ad: int, cost: float, what: str, at: int}}
computations:
  matched:
    input: {{shown: {{key: {key}}}, clicked: {{key: {key}}}}}
    window: {{tumbling: 40us, offset: 3us}}
    join: {how}
    late: {{side: behind}}
    output: matched
  counted:
    input: {{matched: {{key: ad}}}}
    window: {{tumbling: 80us}}
    aggregate: {{n: count}}
    output: counted
limits: {{record: {most}}}
"""


def of_file(number: int, seed: int) -> Row:
    rng = random.Random(f"{seed}/{number}")
    at = number * 2 + rng.randrange(-9, 4) - 150 * (number % 60 == 59)
    cost = rng.choice([1, 2.5, -0.0])
    return {
        "at": at,
        "ad": rng.randrange(3),
        "what": rng.choice("xyz"),
        "cost": cost,
        "odd": number % 7,
    }


def in_files(
    folder: Path, odd: Row | None = None, most: str = "1MB", how: str = "outer", key: str = "ad"
) -> str:
    folder.mkdir(exist_ok=True)
    for seed, name in enumerate(("shown", "clicked")):
        values = [of_file(number, seed) for number in range(300)]
        if name == "clicked":
            for value in values:
                del value["odd"]
        elif odd is not None:
            values[2] = {
                name: part for name, part in {**values[2], **odd}.items() if part is not ...
            }
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(value)}\n" for value in values))
    path = folder / "pipeline.yaml"
    path.write_text(FILES.format(folder=folder, how=how, key=key, most=most, more="odd: int, "))
    return str(path)


def read_of(path: str, by_record: bool) -> tuple[dict[str, Any], int]:
    """What a run gives, with the order of fields, and how often pairs left in columns."""
    times = 0

    def counted(self: JoinOperator, found: Any, bundle: Any) -> None:
        nonlocal times
        times += 1
        made(self, found, bundle)

    made = JoinOperator._produce_columns
    with pytest.MonkeyPatch.context() as patch, in_rows(by_record):
        patch.setattr(JoinOperator, "_produce_columns", counted)
        patch.setattr(ReadSize, "note", lambda self, was_full: setattr(self, "bytes", 4096))
        patch.setattr(ReadSize, "__init__", lambda self: setattr(self, "bytes", 4096))
        with PipelineHarness(path, shards=1, run_sources=True) as harness:
            harness.advance_processing_time(10**9)
            names = ("matched", "behind", "counted", "dead_letters")
            found: dict[str, Any] = {
                name: sorted(map(json.dumps, harness.read(name))) for name in names
            }
            return {"counters": harness.counters, **found}, times


DIRTY: dict[str, Row | None] = {
    "clean": None,
    "nobody has declared it": {"more": 1.5},
    "a float that is none": {"more": 1},
    "nothing": {"what": None},
    "no field": {"what": ...},
    "no key": {"ad": ...},
    "another type": {"ad": "1"},
}


@pytest.mark.parametrize(
    ("how", "key"), [("inner", "ad"), ("left", "[what, ad]"), ("right", "ad"), ("outer", "ad")]
)
@pytest.mark.parametrize("odd", DIRTY.values(), ids=DIRTY)
def test_results_of_columns_are_those_of_records_one_by_one(
    tmp_path: Path, odd: Row | None, how: str, key: str
) -> None:
    """A read with an odd record comes in rows, and what closes together with any of it is joined in
    rows."""
    path = in_files(tmp_path, odd, how=how, key=key)
    found, times = read_of(path, False)
    assert times or odd
    assert found == read_of(path, True)[0]
    assert len(found["matched"]) > 100


def test_fields_that_are_not_declared_are_passed_on_in_columns_if_all_records_have_them(
    tmp_path: Path,
) -> None:
    path = in_files(tmp_path)
    Path(path).write_text(Path(path).read_text().replace("odd: int, ", ""))
    found, times = read_of(path, False)
    assert times
    assert found == read_of(path, True)[0]
    assert all(
        "odd" in json.loads(row)["shown"] for row in found["matched"] if json.loads(row)["shown"]
    )


def test_a_result_over_the_limit_of_a_record_is_a_dead_letter_in_both_forms(tmp_path: Path) -> None:
    path = in_files(tmp_path, {"what": "w" * 3_000}, most="2kB")
    found, times = read_of(path, False)
    assert times
    assert found == read_of(path, True)[0]
    assert any("record" in letter for letter in found["dead_letters"])


def test_a_crash_at_any_place_changes_nothing_in_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadSize, "note", lambda self, was_full: setattr(self, "bytes", 4096))
    monkeypatch.setattr(join_columns, "_FAN", 2)
    path = in_files(tmp_path, {"what": None})

    def story(harness: PipelineHarness) -> None:
        harness.advance_processing_time(10**9)

    assert assert_survives_crashes(path, story, every=40, run_sources=True) > 3


@pytest.mark.parametrize("levels", [MOST_NESTING - 1, MOST_NESTING])
def test_a_record_as_deep_as_it_may_be_is_no_end_of_its_worker(tmp_path: Path, levels: int) -> None:
    """A result has one level more, which is a letter in both forms."""
    path = in_files(tmp_path, how="left")
    text = "[" * (levels - 1) + "1" + "]" * (levels - 1)
    line = f'{{"at": 5, "ad": 1, "what": "x", "cost": 1.5, "odd": 1, "deep": {text}}}'
    with (tmp_path / "shown.jsonl").open("a") as file:
        file.write(line.replace("5", "700", 1) + "\n")
    found, _ = read_of(path, False)
    assert found == read_of(path, True)[0]
    letters = [letter for letter in found["dead_letters"] if "levels deep" in letter]
    assert len(letters) == (levels == MOST_NESTING)
