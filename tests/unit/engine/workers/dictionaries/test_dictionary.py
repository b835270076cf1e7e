"""dictionary in the real runtime: one number for each value, the same one for ever, in rows and in
columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from millwheel.core.pipeline.dictionaries import partition_of
from millwheel.engine.workers.dictionaries.dictionary import DictionaryOperator
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.combinations import hit, hits, written

DICTIONARY = """
computations:
  ids:
    input: hits
    dictionary: {of: page, as: id, partitions: 4}
    output: with_ids
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("combinations")


def _check(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Ids by value: one each, no two alike, each in the partition of its value, without gaps."""
    pairs = {(row["page"], row["id"]) for row in rows}
    ids = dict(pairs)
    assert len(pairs) == len(ids) == len(set(ids.values()))
    for at in range(4):
        mine = sorted(number for value, number in ids.items() if partition_of(value, 4) == at)
        assert mine == [at + 4 * number for number in range(len(mine))]
    return ids


@given(records=hits)
@settings(max_examples=15, deadline=None)
def test_every_value_has_one_number_and_records_go_on_with_it(
    folder: Path, records: list[dict[str, Any]]
) -> None:
    with PipelineHarness(written(folder / "ids", DICTIONARY)) as harness:
        for record in records:
            harness.push("hits", record)
        rows = harness.read("with_ids")
        _check(rows)
        bare = [{name: value for name, value in row.items() if name != "id"} for row in rows]
        assert sorted(map(json.dumps, bare)) == sorted(map(json.dumps, records))


def test_numbers_are_the_same_after_a_crash_at_any_moment(folder: Path) -> None:
    records = [hit(at, page=f"page {at * 7 % 5}") for at in range(9)]
    assert (
        assert_survives_crashes(written(folder / "ids", DICTIONARY), {"hits": records}, every=10)
        > 3
    )


def test_what_has_no_number_is_a_dead_letter_and_the_others_go_on(folder: Path) -> None:
    long = hit(1, page="x" * 70_000)
    odd = [hit(2) | {"page": 1.5}, {"at": 3, "user": "ann"}]
    with PipelineHarness(written(folder / "ids", DICTIONARY)) as harness:
        harness.push("hits", [long, *odd, hit(4)])
        assert [row["at"] for row in harness.read("with_ids")] == [4]
        reasons = " ".join(letter["reason"] for letter in harness.read("dead_letters"))
    assert "a dictionary needs text" in reasons
    assert "missing key" in reasons
    assert "a key" in reasons


def test_columns_get_the_numbers_that_rows_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [hit(at, page=f"page {at * 31 % 47}") for at in range(300)]
    (tmp_path / "hits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    declared = "    fields: {at: int, page: str, user: str, size: int}\n"
    taken = []
    right = DictionaryOperator._take_columns

    def noted(self: DictionaryOperator, batch: Any, bundle: Any) -> None:
        taken.append(len(batch))
        right(self, batch, bundle)

    monkeypatch.setattr(DictionaryOperator, "_take_columns", noted)
    found = []
    for fields in ("", declared):
        path = written(tmp_path, DICTIONARY)
        text = Path(path).read_text()
        Path(path).write_text(text.replace("    timestamp:", fields + "    timestamp:"))
        with PipelineHarness(path, run_sources=True) as harness:
            harness.advance_processing_time(10**9)
            found.append(sorted(harness.read("with_ids"), key=lambda row: row["at"]))
            assert not harness.read("dead_letters")
    assert sum(taken) == 300
    assert _check(found[0]).keys() == _check(found[1]).keys()
    assert [{**row, "id": 0} for row in found[0]] == [{**row, "id": 0} for row in found[1]]


def test_rows_have_the_declared_fields_that_columns_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read with one damaged record goes by rows, and a sink of the stream makes all reads go by
    rows."""
    rows = [hit(at, page=f"page {at % 3}") | {"undeclared": at} for at in range(200)]
    declared = "    fields: {at: int, page: str, size: int}\n"
    by_rows = []
    right = DictionaryOperator._take_rows

    def noted(self: DictionaryOperator, batch: Any, bundle: Any) -> None:
        by_rows.append(len(batch.values))
        right(self, batch, bundle)

    monkeypatch.setattr(DictionaryOperator, "_take_rows", noted)
    found = []
    for folder, damaged in (("columns", ""), ("rows", '{"at": "soon"}\n')):
        path = Path(written(tmp_path / folder, DICTIONARY))
        (path.parent / "hits.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows) + damaged
        )
        path.write_text(path.read_text().replace("    timestamp:", declared + "    timestamp:"))
        with PipelineHarness(path, run_sources=True) as harness:
            harness.advance_processing_time(10**9)
            found.append(sorted(harness.read("with_ids"), key=lambda row: row["at"]))
            assert len(harness.read("dead_letters")) == bool(damaged)
        assert sum(by_rows) == (200 if damaged else 0)
    assert found[0] == found[1]
    assert all(row.keys() == {"at", "page", "size", "id"} for row in found[0])


def test_of_a_stream_without_declared_fields_all_fields_go_on(folder: Path) -> None:
    with PipelineHarness(written(folder / "ids", DICTIONARY)) as harness:
        harness.push("hits", hit(1) | {"undeclared": 2})
        assert [row["undeclared"] for row in harness.read("with_ids")] == [2]
