"""Divided keys: the plan, the instances, and results equal to those of whole keys, also after
crashes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.kinds import build_sink, build_source
from millwheel.core.model.ranges import tile
from millwheel.core.pipeline.keys import INSTANCE, Divided, KeyKind, KeySpec
from millwheel.core.pipeline.skew import (
    divided_keys,
    hash_by_slot,
    instance_of,
    instances_of,
    planned,
)
from millwheel.core.pipeline.spec import AggregationStage
from millwheel.core.slices.slots import WIDTH
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.errors import RecordError
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.testing import PipelineHarness, assert_survives_crashes
from millwheel.tools.testing.memory.cluster import ManualClock

PIPELINE = """
pipeline: skewed
streams:
  events:
    source: injection
    timestamp: {{field: ts, unit: s}}
    {fields}
    watermark: {{max_delay: 5s}}
computations:
  minutes:
    input: {{events: {{key: {key}}}}}
    window: {{tumbling: 10s}}
    aggregate:
      events: count
      spend: {{sum: cost}}
      rare: {{sum: cost, where: "n > 100"}}
      mean: {{mean: cost}}
      most: {{max: n}}
      least: {{min: n}}
      top: {{top_k: n, k: 2}}
      distinct: {{count_distinct: n}}
      near: {{approx_count_distinct: n}}
      p50: {{quantile: cost, q: 0.5}}
      dev: {{stddev: cost}}
    where: "n != 5"
    {more}
    output: minutes
sinks: {{minutes: stdout}}
"""
FIELDS = "fields: {k: str, n: int, cost: float, ts: int}"


def pipeline(folder: Path, skew: str, fields: str = "", key: str = "k", more: str = "") -> str:
    path = folder / "pipeline.yaml"
    given_skew = f"skew: {skew}" if skew else ""
    path.write_text(
        PIPELINE.format(
            fields=fields, key=key, more="\n    ".join(filter(None, (given_skew, more)))
        )
    )
    return str(path)


def records(count: int = 120) -> list[dict[str, Any]]:
    """Nearly all of one key; some are late."""
    late = set(range(40, count, 25))
    return [
        {
            "k": "hot" if i % 10 else f"k{i % 3}",
            "n": i % 7,
            "cost": i * 0.1,
            "ts": i // 4 - (20 if i in late else 0),
        }
        for i in range(count)
    ]


def rows(
    path: str, given_records: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    with PipelineHarness(path) as harness:
        for start in range(0, len(given_records), 9):
            harness.push("events", given_records[start : start + 9])
            harness.advance_watermark(max(start // 4 - 5, 0) * 1_000_000)
        harness.finish()
        return harness.read("minutes"), {
            name: harness.counters.get(name, 0) for name in ("late", "dead_letters")
        }


def as_text(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in found)


@pytest.mark.parametrize("key", ["k", "[k, n]", "all", '{third: "n // 3", name: "lower(k)"}'])
@pytest.mark.parametrize("fields", ["", FIELDS], ids=["rows", "columns"])
def test_all_rows_are_those_of_whole_keys(tmp_path: Path, fields: str, key: str) -> None:
    given_records = [*records(), {"k": "hot", "n": "seven", "cost": None, "ts": 31}]
    whole, counted = rows(pipeline(tmp_path, "", fields, key), given_records)
    divided, counted_divided = rows(pipeline(tmp_path, "scatter(3)", fields, key), given_records)
    assert as_text(divided) == as_text(whole)
    assert counted_divided == counted
    assert counted["late"] > 0
    assert len(whole) > (2 if key == "all" else 5)


@pytest.mark.parametrize("fields", ["", FIELDS], ids=["rows", "columns"])
def test_late_records_change_the_result_that_stands_in_the_end_as_they_do_for_whole_keys(
    tmp_path: Path, fields: str
) -> None:
    """A window fires once more for each instance that a late record comes to; what it fires last is
    the same."""
    more = "allowed_lateness: 1m\n    accumulation: accumulating"

    def standing(skew: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        found, counted = rows(pipeline(tmp_path, skew, fields, more=more), records())
        assert counted["late"] == 0
        return {(row["k"], row["window_start"]): row for row in found}

    assert standing("scatter(3)") == standing("")


@pytest.mark.parametrize(
    "window", ["{session: 3s}", "{session: 900ms}", "{sliding: 10s, every: 3s}"]
)
@pytest.mark.parametrize("skew", ["scatter(3)", "scatter(2)"])
@pytest.mark.parametrize("fields", ["", FIELDS], ids=["rows", "columns"])
def test_sessions_and_sliding_windows_are_those_of_whole_keys(
    tmp_path: Path, fields: str, skew: str, window: str
) -> None:
    found = []
    for way in ("", skew):
        path = Path(pipeline(tmp_path, way, fields))
        path.write_text(path.read_text().replace("{tumbling: 10s}", window))
        found.append(rows(str(path), records()))
    assert as_text(found[1][0]) == as_text(found[0][0])
    assert found[1][1] == found[0][1]
    assert len(found[0][0]) > 5


def in_two_parts(harness: PipelineHarness) -> None:
    harness.push("events", records(40)[:20])
    harness.advance_watermark(4_000_000)
    harness.push("events", records(40)[20:])
    harness.finish()


@pytest.mark.parametrize("fields", ["", FIELDS], ids=["rows", "columns"])
def test_a_divided_session_survives_crashes(tmp_path: Path, fields: str) -> None:
    path = Path(pipeline(tmp_path, "scatter(3)", fields))
    path.write_text(path.read_text().replace("{tumbling: 10s}", "{session: 2s}"))

    assert assert_survives_crashes(str(path), in_two_parts, every=23) > 2


@pytest.mark.parametrize("fields", ["", FIELDS], ids=["rows", "columns"])
def test_a_divided_key_is_silent_where_all_of_its_instances_are(
    tmp_path: Path, fields: str
) -> None:
    found = []
    for skew in ("", "scatter(3)"):
        path = Path(pipeline(tmp_path, skew, fields))
        path.write_text(path.read_text().replace("{tumbling: 10s}", "{tumbling: 2s, emit: empty}"))
        found.append(rows(str(path), records()))
    (whole, counted), (divided, counted_divided) = found
    assert as_text(divided) == as_text(whole)
    assert counted_divided == counted
    assert [row["events"] for row in whole].count(0) > 3


EARLY = "trigger: {after_watermark: {early: {after_processing_time: 5s}}}"


@pytest.mark.parametrize("accumulation", ["accumulating", "discarding"])
@pytest.mark.parametrize("fields", ["", FIELDS], ids=["rows", "columns"])
def test_early_firings_merge_what_has_come_and_the_last_one_is_exact(
    tmp_path: Path, fields: str, accumulation: str
) -> None:
    def story(skew: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        path = pipeline(tmp_path, skew, fields, more=f"{EARLY}\n    accumulation: {accumulation}")
        with PipelineHarness(path) as harness:
            harness.push("events", records(36)[:20])
            for _ in range(3):
                harness.advance_processing_time(harness.now + 6_000_000)
            early = harness.take("minutes")
            harness.push("events", records(36)[20:])
            harness.finish()
            return early, harness.take("minutes")

    (early, late), (early_divided, late_divided) = story(""), story("scatter(3)")
    assert early
    assert _totals(early_divided) == _totals(early)
    assert _last(late_divided) == _last(late)


def _totals(found: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Firings may come in several parts, of which the last, or the sum, is what has come."""
    return Counter({(row["k"], row["window_start"]): row["events"] for row in found})


def _last(found: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {(row["k"], row["window_start"]): row for row in found}


@pytest.mark.parametrize("fields", ["", FIELDS], ids=["rows", "columns"])
def test_a_crash_at_any_time_changes_nothing(tmp_path: Path, fields: str) -> None:
    assert (
        assert_survives_crashes(pipeline(tmp_path, "scatter(3)", fields), in_two_parts, every=23)
        > 2
    )


def test_the_plan_has_a_partial_computation_by_key_and_instance_and_a_final_one_by_key(
    tmp_path: Path,
) -> None:
    spec = load_pipeline(pipeline(tmp_path, "scatter(3)", key="[k, n]"))
    partial, final = spec.computations
    assert (partial.name, partial.outputs) == ("partial.minutes", ("partial.minutes",))
    assert partial.stage is AggregationStage.PARTIAL
    assert partial.inputs[0].key.fields == ("k", "n", INSTANCE)
    assert (final.name, final.stage, final.condition) == ("minutes", AggregationStage.FINAL, "")
    assert final.inputs[0].key == KeySpec(KeyKind.FIELDS, ("k", "n"))
    assert planned(spec) == spec


@pytest.mark.parametrize(
    ("key", "merged"),
    [
        ("all", KeySpec(KeyKind.ALL)),
        ('{third: "n // 3"}', KeySpec(KeyKind.FIELD, ("third",))),
        ("k, null_key: group", KeySpec(KeyKind.FIELD, ("k",), nulls=True)),
    ],
)
def test_the_final_computation_takes_the_names_of_expressions_from_partial_results(
    tmp_path: Path, key: str, merged: KeySpec
) -> None:
    _, final = load_pipeline(pipeline(tmp_path, "scatter(3)", key=key)).computations
    assert final.inputs[0].key == merged


def test_without_skew_the_plan_is_the_pipeline(tmp_path: Path) -> None:
    for skew in ("", "hash"):
        assert [each.name for each in load_pipeline(pipeline(tmp_path, skew)).computations] == [
            "minutes"
        ]


def test_a_hot_key_is_worked_on_by_all_instances(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path, "scatter(3)")) as harness:
        harness.push("events", records(60))
        windows = [
            harness.open_windows("partial.minutes", ("hot", instance)) for instance in range(3)
        ]
    assert all(windows)


@given(st.lists(st.integers(0, 2**62), max_size=30), st.integers(1, 64))
def test_rows_and_columns_agree_on_the_instance(numbers: list[int], instances: int) -> None:
    found = [instance_of(number, instances) for number in numbers]
    assert found == instances_of(np.array(numbers, np.int64), instances).tolist()
    assert all(0 <= each < instances for each in found)


@pytest.mark.parametrize("step", [1, 2, 64, 97])
def test_numbers_at_any_distance_are_spread_evenly(step: int) -> None:
    """Positions in a file may be offsets, which share factors."""
    counts = Counter(instance_of(number * step, 4) for number in range(4000))
    assert max(counts.values()) < 1.1 * 1000


KEY = KeySpec(KeyKind.FIELD, ("k",), 4)


def test_the_instance_follows_the_number_of_a_record_not_its_batch() -> None:
    keys, seqs = ["a"] * 20, list(range(20))
    whole = divided_keys(KEY, keys, seqs, None, seqs)
    halves = divided_keys(KEY, keys[:7], seqs[:7], None, [0] * 7) + divided_keys(
        KEY, keys[7:], seqs[7:], None, [9] * 13
    )
    assert whole == halves
    assert len(set(whole)) == 4


def test_copies_of_a_record_come_to_one_instance_whatever_their_numbers() -> None:
    first, second = divided_keys(KEY, ["a", "a"], [1, 2], ["id", "id"], [0, 0])
    assert first == second
    assert divided_keys(KEY, ["a"], [7], [None], [0]) == divided_keys(KEY, ["a"], [7], None, [0])


def test_of_keys_that_are_not_hot_all_records_go_to_the_first_instance() -> None:
    seqs = list(range(20))
    whole = divided_keys(KEY, ["a"] * 20, seqs, None, seqs)
    hot = [seq % 2 == 0 for seq in seqs]
    assert divided_keys(KEY, ["a"] * 20, seqs, None, seqs, hot) == [
        key if is_hot else ("a", 0) for key, is_hot in zip(whole, hot, strict=True)
    ]


def test_the_instance_is_the_last_part_of_a_key() -> None:
    several = KeySpec(KeyKind.FIELDS, ("k", "n"), 4)
    instance = instance_of(5, 4)
    assert divided_keys(several, [("a", 1)], [5], None, [0]) == [("a", 1, instance)]
    assert divided_keys(KeySpec(KeyKind.RECORD, (), 4), [("a", 1)], [5], None, [0]) == [
        (("a", 1), instance)
    ]


def test_files_are_read_into_columns_and_shards_are_warmed_up_with_divided_keys(
    tmp_path: Path,
) -> None:
    lines = [json.dumps(each) + "\n" for each in records()]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    found = []
    for skew in ("", "scatter(3)", *(f"{each.value}(3)" for each in Divided if each.by_tables)):
        path = Path(pipeline(tmp_path, skew, FIELDS))
        source = f"{{files: {{path: '{tmp_path}/*.jsonl', format: jsonl}}}}"
        path.write_text(path.read_text().replace("source: injection", f"source: {source}"))
        Assembly(
            load_pipeline(path), str(tmp_path), ManualClock(0), Factories(build_source, build_sink)
        ).warm_up()
        with PipelineHarness(path, run_sources=True) as harness:
            harness.advance_processing_time(10**9)
            found.append(as_text(harness.read("minutes")))
    assert all(each == found[0] for each in found)
    assert found[0]


@given(
    st.integers(2, 64), st.integers(1, 64), st.lists(st.text(max_size=3), min_size=1, max_size=20)
)
def test_all_keys_of_an_instance_that_is_a_place_are_in_one_range(
    instances: int, shards: int, keys: list[str]
) -> None:
    hashed = hash_by_slot(instances)
    ranges = tile(shards, WIDTH)
    where = [
        {next(r for r in ranges if hashed((key, i)) in r) for key in keys} for i in range(instances)
    ]
    assert all(len(each) == 1 for each in where)
    if instances % shards == 0:  # then each shard has as many of them
        assert Counter(one for (one,) in where) == dict.fromkeys(ranges, instances // shards)
    assert sorted(hashed((keys[0], i)) for i in range(instances)) == [
        hashed((keys[0], i)) for i in range(instances)
    ]


def test_a_key_without_an_instance_is_told_apart() -> None:
    with pytest.raises(
        RecordError, match="'path' is not a divided key: its last part is its instance, 0 to 3"
    ):
        hash_by_slot(4)("path")
