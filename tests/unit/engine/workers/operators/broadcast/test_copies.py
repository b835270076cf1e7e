"""Records get the rows of copies of a table, as they get those of one that is divided by its
key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.errors import SetupError
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.operators.broadcast.test_enrichment import (
    WAYS,
    Results,
    Row,
    found_by,
    order,
)

PIPELINE = """
pipeline: shop
streams:
  orders: {source: {files: {path: o.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}ORDERS}
  sides: {source: {files: {path: s.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}, TABLE}
computations:
  found:
    input: {orders: {key: KEY}, sides: {key: OF}}
    enrich: {with: sides, as: side, missing: MISSING, broadcast: BROADCAST}
    output: found
sinks: {found: {stdout: {mode: changelog}}}
"""


def pipeline(folder: Path, missing: str = "keep", broadcast: str = "true", **more: str) -> Path:
    path = folder / "p.yaml"
    given = {"ORDERS": "", "TABLE": "table: {key: id, delete: gone}", "KEY": "k", "OF": "id"}
    given |= {"MISSING": missing, "BROADCAST": broadcast, **more}
    text = PIPELINE
    for name, value in given.items():
        text = text.replace(name, value)
    path.write_text(text)
    return path


def side(at: int, number: Any, v: int, gone: bool = False) -> Row:
    return {"at": at, "id": number, "v": v, "gone": gone}


def results(path: Path, **ways: Any) -> Results:
    with PipelineHarness(path, **ways) as harness:
        harness.push("orders", [order(at, at % 5) for at in range(20)], key="x")
        harness.push("sides", [side(1, 1, 1), side(7, 2, 2), side(9, 3, 3)], key="b")
        harness.push("orders", [order(at, at % 5) for at in range(20, 30)], key="y")
        harness.push("sides", [side(8, 1, 4), side(8, "1", 6), side(9, 3, 7, True)], key="c")
        harness.advance_watermark(15, "orders")
        harness.push("sides", [side(8, 1, 8), {"at": 8, "v": 9}], key="a")
        harness.advance_watermark(15, "sides")
        harness.push("orders", [order(30, "1"), order(31, None), order(32, "2")], key="z")
        harness.finish()
        return found_by(harness)


DECLARED = "table: {key: id, delete: gone}"


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize(
    ("missing", "orders", "table"),
    [
        ("keep", "", DECLARED),
        ("drop", ", table: o", DECLARED),
        ("dead_letter", ", fields: {at: int, k: int, o: int}", DECLARED),
        ("drop", "", "watermark: {max_delay: 0s}"),
    ],
)
def test_results_are_those_of_a_table_that_is_divided_by_its_key(
    ways: dict[str, Any], missing: str, orders: str, table: str, tmp_path: Path
) -> None:
    more = {"ORDERS": orders, "TABLE": table}
    divided = results(pipeline(tmp_path, missing, "false", **more))
    copied = results(pipeline(tmp_path, missing, "{copies: 4}", **more), **ways)
    assert sum(divided[0].values()) >= 1
    if "table" in orders:
        assert copied[0] == divided[0], "which rows of a table stood meanwhile is chance"
    else:
        assert copied == divided


def test_results_have_the_key_of_their_row(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path)) as harness:
        harness.push("sides", side(1, 7, 1))
        harness.push("orders", order(2, 7), key="z")
        harness.finish()
        [record] = harness.records("found")
    assert (record.key, record.timestamp) == (7, 2)
    assert record.value == {**order(2, 7), "side": side(1, 7, 1)}


def test_keys_of_several_parts_are_found_however_they_are_written(tmp_path: Path) -> None:
    more = {"TABLE": "table: [id, v]", "KEY": '{a: k, b: "o + 1"}', "OF": "[id, v]"}
    with PipelineHarness(pipeline(tmp_path, **more)) as harness:
        harness.push("sides", [side(1, "é", 2), side(1, "é", 3)])
        harness.push("orders", [order(1, "é"), order(2, "é"), order(3, "é")])
        harness.finish()
        found = harness.read("found")
    assert [row["side"] and row["side"]["v"] for row in found] == [2, 3, None]


def test_the_letter_of_a_record_does_not_tell_a_whole_table(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path, "dead_letter")) as harness:
        harness.push("sides", [side(1, number, 1) for number in range(50)])
        harness.push("orders", order(2, 99))
        harness.finish()
        [letter] = harness.read("dead_letters")
    assert "enrich with sides failed" in letter["reason"]
    assert "sides has no value for 99 up to 2" in letter["reason"]
    assert letter["state"] == {}


def test_a_row_without_a_key_is_one_letter(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path, broadcast="{copies: 5}"), shards=3) as harness:
        harness.push("sides", [{"at": 1, "v": 1}, side(1, 1, 1)])
        harness.finish()
        [letter] = harness.read("dead_letters")
    assert letter["computation"] == "copies.found"
    assert "missing key" in letter["reason"]


def test_a_table_that_grows_over_its_limit_ends_the_run(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path, broadcast="{limit: 1kB}")) as harness:
        harness.push("sides", [side(at, at % 5, at) for at in range(100)])
        harness.advance_watermark(50)
    path = pipeline(tmp_path, broadcast="{limit: 1kB}")
    said = "'sides' has more than the 1,000 bytes that each copy may hold of it; leave out"
    with pytest.raises(SetupError, match=said), PipelineHarness(path) as harness:
        harness.push("sides", [side(100, number, 1) for number in range(100)])


@pytest.mark.parametrize("how", ["table: {key: id, delete: gone}", "watermark: {max_delay: 0s}"])
def test_only_rows_that_stand_count_for_the_limit(how: str, tmp_path: Path) -> None:
    path = pipeline(tmp_path, broadcast="{limit: 1kB, copies: 2}", TABLE=how)
    gone = [side(number, number, 1, gone=odd) for number in range(60) for odd in (False, True)]
    with PipelineHarness(path, crash_at=90) as harness:
        for some in (gone[:50], gone[50:]):
            if "table" in how:
                harness.push("sides", some)
            else:
                harness.push("sides", [{**row, "id": row["id"] % 4} for row in some])
        harness.finish()
        assert harness.read("dead_letters") == []


def test_what_is_taken_back_makes_room(tmp_path: Path) -> None:
    path = pipeline(tmp_path, broadcast="{limit: 1kB}", OF="city")
    counts = "  n: {input: {sides: {key: v}}, aggregate: {ids: {max: id}}, output: n}\n"
    text = (
        path.read_text()
        .replace("with: sides", "with: n")
        .replace("sides: {key: city}", "n: {key: v}")
    )
    path.write_text(text.replace("computations:\n", f"computations:\n{counts}"))
    with PipelineHarness(path) as harness:
        for at in range(60):  # each takes the row away from the one before it
            harness.push("sides", side(at, 1, at))
        harness.push("orders", [order(70, 58), order(70, 59)])
        harness.finish()
        found = [row["side"] for row in harness.read("found")]
    assert found == [None, {"v": 59, "ids": 1}]


def test_versions_that_no_record_may_ask_for_are_gone(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path, broadcast="{copies: 2}")) as harness:
        harness.push("sides", [side(at, at % 3, at) for at in range(60)])
        harness.advance_watermark(100)
        rows = harness.remembered()["found"]
        assert len(rows) == 2 * 3, "in each copy the last version of each key"
