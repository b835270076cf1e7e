"""Records that a test pushes are a source that can be read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.testing import PipelineHarness
from tests.unit.tools.testing.test_pipeline_harness import Make, S, _of_keys, order


def test_copies_count_once(make: Make) -> None:
    harness = make()
    harness.push("orders", [order(1), order(1), order(2)])
    harness.push("orders", order(1))
    assert harness.state("accounts", "ann")["account"].worth == 10
    assert harness.counters["duplicates"] == 2
    assert harness.counters["records_in"] == 4


def test_streams_have_watermarks_of_their_own(make: Make) -> None:
    harness = make()
    harness.advance_watermark(100 * S, "orders")
    assert (harness.watermark("minutes"), harness.watermark("accounts")) == (100 * S, -(2**63))
    harness.advance_watermark(70 * S, "returns")
    assert harness.watermark("accounts") == 70 * S


def test_a_record_changed_after_it_was_pushed_or_by_a_callback_stays_what_it_was(
    make: Make,
) -> None:
    harness = make()
    record = order(1)
    harness.push("orders", record)
    record["worth"] = 1000
    harness.crash()
    assert harness.read("orders") == [order(1)]
    harness.read("orders")[0]["worth"] = 7
    harness.push("orders", order(2))
    assert harness.state("accounts", "ann")["account"].worth == 10


def test_a_key_of_its_own_is_the_name_of_where_records_come_from(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "pipeline: p\nstreams: {s: {source: {files: {path: '*.csv', format: csv}}, timestamp: t}}\n"
        "computations: {c: {input: [s], window: global, aggregate: {n: count}, output: out}}\n"
    )
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        for name in ("a.csv", "b.csv", "c.csv"):
            harness.push("s", [{"t": 1}, {"t": 2}], key=name)
        harness.push("s", {"t": 3})
        harness.finish()
        assert sorted((row["key"], row["n"]) for row in harness.read("out")) == [
            ("a.csv", 2), ("b.csv", 2), ("c.csv", 2), ("pushed", 1),
        ]  # fmt: skip


def test_a_stream_stands_where_the_slowest_of_its_partitions_stands(tmp_path: Path) -> None:
    with PipelineHarness(_of_keys(tmp_path, "default")) as harness:
        harness.push("s", {"t": 1}, key="a.csv")
        harness.push("s", {"t": 2}, key="b.csv")
        harness.advance_watermark(10, "s", "a.csv")
        harness.push("s", {"t": 5}, key="a.csv")
        harness.push("s", {"t": 6}, key="b.csv")
        assert harness.counters["late"] == 1, "a.csv was complete up to 10"
        assert harness.watermark("c") < 10
        with pytest.raises(ValueError, match="that of 's' is 10"):
            harness.advance_watermark(9, "s")
        harness.advance_watermark(10, "s")
        assert sorted((row["key"], row["n"]) for row in harness.read("out")) == [
            ("a.csv", 1),
            ("b.csv", 2),
        ]
