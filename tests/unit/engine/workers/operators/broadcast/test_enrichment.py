"""Records get the rows of a table that each worker holds whole, as they get those of one that is
divided by its key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millwheel.errors import SetupError
from millwheel.testing import PipelineHarness
from tests.search.test_declared_tables import standing

PIPELINE = """
pipeline: shop
streams:
  orders: {source: {files: {path: o.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}ORDERS}
  sides: {source: {files: {path: s.jsonl, format: jsonl}}, table: {key: id, delete: gone}}
computations:
  found:
    input: {orders: {key: "KEY"}, sides: {key: id}}
    enrich: {with: sides, as: side, missing: MISSING, broadcast: BROADCAST}
    output: found
sinks: {found: {stdout: {mode: changelog}}}
"""
Row = dict[str, Any]


def pipeline(
    folder: Path, missing: str = "keep", broadcast: str = "true", orders: str = "", key: str = "k"
) -> Path:
    path = folder / "p.yaml"
    text = PIPELINE.replace("MISSING", missing).replace("BROADCAST", broadcast)
    path.write_text(text.replace("ORDERS", orders).replace("KEY", key))
    return path


def order(at: int, k: Any = 1) -> Row:
    return {"at": at, "k": k, "o": at % 3}


def side(number: Any, v: int, gone: bool = False) -> Row:
    return {"id": number, "v": v, "gone": gone}


Results = tuple[Counter[str], Counter[str], int]


def found_by(harness: PipelineHarness) -> Results:
    """What stands, the records of the letters, and how many found nothing."""
    letters = Counter(str(each["value"]) for each in harness.read("dead_letters"))
    unmatched = harness.counters_of("found").get("unmatched", 0)
    return standing(harness.read("found")), letters, unmatched


def results(path: Path, **ways: Any) -> Results:
    with PipelineHarness(path, **ways) as harness:
        harness.push("sides", [side(1, 1), side(2, 2), side(3, 3)], key="b")
        harness.push("sides", [side(1, 4), side(2, 5), side("1", 6), side(3, 7, True)], key="c")
        harness.push("sides", [side(1, 8), {"v": 9}], key="a")
        harness.push("orders", [order(at, at % 5) for at in range(20)])
        harness.finish("sides")
        harness.push("orders", [order(30, "1"), order(31, None), order(32, "2")], key="z")
        harness.finish()
        return found_by(harness)


WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"crash_every": 3},
    {"workers": 3, "shards": 5, "crash_at": 9},
)


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("missing", ["keep", "drop", "dead_letter"])
@pytest.mark.parametrize("orders", ["", ", table: o"])
def test_results_are_those_of_a_table_that_is_divided_by_its_key(
    ways: dict[str, Any], missing: str, orders: str, tmp_path: Path
) -> None:
    divided = results(pipeline(tmp_path, missing, "false", orders))
    held = results(pipeline(tmp_path, missing, "true", orders), **ways)
    assert held[0] == divided[0]
    assert sum(divided[0].values()) >= 1
    if not orders:
        assert held == divided, "which rows of a table stood meanwhile is chance"


def test_a_record_keeps_the_key_that_it_came_with(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path)) as harness:
        harness.push("sides", side(1, 1))
        harness.finish("sides")
        harness.push("orders", order(1), key="z")
        [record] = harness.records("found")
    assert (record.key, record.timestamp) == ("z", 1)
    assert record.value == {**order(1), "side": side(1, 1)}


def test_a_record_may_have_come_with_the_key_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    made = "  made: {input: {orders: {key: k}}, filter: 'at < 9', output: made}\n  found:"
    text = pipeline(tmp_path).read_text().replace("  found:", made, 1)
    path.write_text(text.replace('input: {orders: {key: "k"}, sides', "input: {made: {}, sides"))
    with PipelineHarness(path) as harness:
        harness.push("sides", [side(1, 1), side(2, 2)])
        harness.finish("sides")
        harness.push("orders", [order(1, 2), order(2, 7), order(9, 1)])
        assert [each["side"] for each in harness.read("found")] == [side(2, 2), None]


def test_a_table_that_is_too_large_ends_the_run(tmp_path: Path) -> None:
    path = pipeline(tmp_path, broadcast="{limit: 1kB}")
    with PipelineHarness(path) as harness:
        harness.push("sides", [side(number, 1) for number in range(100)])
        with pytest.raises(SetupError, match="1,000 bytes that each worker may hold of it"):
            harness.finish("sides")


def test_no_shard_keeps_anything_of_a_table(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path)) as harness:
        harness.push("sides", [side(number, 1) for number in range(100)])
        harness.finish("sides")
        harness.push("orders", [order(number, number) for number in range(50)])
        assert len(harness.read("found")) == 50
        assert harness.remembered()["found"] == {}


INJECTED = """
pipeline: shop
streams:
  orders: {source: {injection: {}}, timestamp: {field: at, unit: us}}
  sides: {source: {files: {path: s.jsonl, format: jsonl}}, table: id}
computations:
  found:
    input: {orders: {key: k}, sides: {key: id}}
    enrich: {with: sides, as: side, missing: drop, broadcast: BROADCAST}
    output: found
  counts:
    input: {found: {key: k}}
    window: {tumbling: 10us}
    aggregate: {n: count, v: {sum: side.v}}
    output: counts
sinks: {found: {stdout: {}}, counts: {stdout: {}}}
"""


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("broadcast", ["true", "false"])
def test_injected_records_wait_for_the_table_and_so_does_their_window(
    broadcast: str, ways: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(INJECTED.replace("BROADCAST", broadcast))
    with PipelineHarness(path, **ways) as harness:
        harness.push("orders", [{"at": at, "k": at % 3} for at in range(6)])
        harness.push("sides", [{"id": 0, "v": 5}, {"id": 1, "v": 7}])
        harness.push("orders", [{"at": at, "k": at % 3} for at in range(6, 9)])
        harness.advance_watermark(100, "orders")
        assert harness.take("found") == harness.take("counts") == []
        harness.push("sides", [{"id": 0, "v": 2}])
        harness.finish("sides")
        assert len(harness.take("found")) == 6
        harness.push("orders", {"at": 110, "k": 1})
        harness.finish()
        found = Counter((row["k"], row["n"], row["v"]) for row in harness.take("counts"))
        assert found == {(0, 3, 6): 1, (1, 3, 21): 1, (1, 1, 7): 1}
        assert harness.counters_of("counts").get("late", 0) == 0
