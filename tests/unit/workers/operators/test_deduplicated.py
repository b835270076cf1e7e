"""deduplicate in the real runtime, against plain Python, and through crashes at every place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.workers.operators.combinations import hit, hits, written

DEDUPLICATE = """
computations:
  unique:
    input: {hits: {key: user}}
    deduplicate: {by: [page], within: 10us}
    output: unique_hits
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("combinations")


@given(records=hits)
@settings(max_examples=20, deadline=None)
def test_a_copy_is_dropped_until_the_horizon_has_passed(folder: Path, records: list[dict[str, Any]]) -> None:
    expected, last = [], {}
    for record in records:
        who = (record["user"], record["page"])
        if who in last and record["at"] < last[who] + 10:
            continue
        last[who] = record["at"]
        expected.append(record)
    with PipelineHarness(written(folder / "unique", DEDUPLICATE)) as harness:
        for record in records:
            harness.push("hits", record)
        for user in ("ann", "bob"):
            got = [record for record in harness.read("unique_hits") if record["user"] == user]
            assert got == [record for record in expected if record["user"] == user]
        assert harness.counters.get("deduplicated", 0) == len(records) - len(expected)


def test_what_was_seen_is_forgotten_behind_the_watermark(folder: Path) -> None:
    with PipelineHarness(written(folder / "unique", DEDUPLICATE)) as harness:
        harness.push("hits", hit(5))
        assert harness.timers("unique", "ann") == []
        before = harness.remembered()["unique"]
        harness.advance_watermark(16)
        assert len(harness.remembered()["unique"]) < len(before)
        harness.push("hits", hit(17))
        assert len(harness.read("unique_hits")) == 2


def test_a_record_without_the_field_is_a_dead_letter(folder: Path) -> None:
    with PipelineHarness(written(folder / "unique", DEDUPLICATE)) as harness:
        harness.push("hits", [{"at": 1, "user": "ann"}, hit(2)])
        [letter] = harness.read("dead_letters")
        assert "page" in letter["reason"]
        assert harness.read("unique_hits") == [hit(2)]


def test_without_fields_the_whole_value_counts(folder: Path) -> None:
    whole = DEDUPLICATE.replace("by: [page], ", "")
    with PipelineHarness(written(folder / "whole", whole)) as harness:
        harness.push(
            "hits", [hit(1), hit(1), hit(1, size=2), {**hit(1), "more": "x" * 100}, {"more": "x" * 100, **hit(1)}]
        )
        assert len(harness.read("unique_hits")) == 3


def test_duplicates_survive_crashes_once(folder: Path) -> None:
    records = [hit(1), hit(4), hit(2, page="b"), hit(14), hit(15, user="bob"), hit(12)]
    assert assert_survives_crashes(written(folder / "unique", DEDUPLICATE), {"hits": records}, every=3) > 10
