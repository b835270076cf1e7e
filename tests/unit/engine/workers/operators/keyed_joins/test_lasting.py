"""Joins of all records go on in columns beside what rows keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.formats.store_layout import STATE
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.engine.workers.operators.keyed_joins import in_columns
from millwheel.engine.workers.operators.keyed_joins.lasting import LastingJoinOperator
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.operators.keyed_joins.test_in_columns import (
    ALL,
    in_files,
    read_of,
    row,
    said,
    written,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lasting")


def test_new_records_of_keys_in_rows_are_joined_in_columns(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what rows keep of the other stream, as columns, too."""
    monkeypatch.setattr(in_columns, "_MOST_BYTES", 1)
    path = in_files(folder / "recalled", within=ALL)
    found, in_whole, one_by_one = read_of(path, False, monkeypatch)
    assert in_whole > 0
    assert one_by_one == 0
    assert found == read_of(path, True, monkeypatch)[0]


def test_to_meet_what_rows_keep_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it stay in memory."""
    with PipelineHarness(written(folder / "read", ALL), shards=1) as harness:
        [shard] = harness._cluster.shards_of("matched")
        assert isinstance(shard.operator, LastingJoinOperator)
        harness.push("shown", [row(number, ad=number % 5) for number in range(40)])
        with monkeypatch.context() as patch:
            patch.setattr(shard.operator._form, "most_bytes", 1)
            harness.push("shown", [row(50, ad=9)])
        assert not shard.operator._kept
        before = dict(shard.store.scan(STATE))
        harness.push("clicked", [row(60, ad=3), row(61, ad=9)])
        harness.push("clicked", [row(62, ad=3)])
        assert len(harness.take("matched")) == 8 + 1 + 8
        assert dict(shard.store.scan(STATE)) == before
        assert not any(handle.cells for handle in shard.operator._state.handles.values())
        harness.crash()
        harness.push("shown", [row(63, ad=3)])
        assert len(harness.take("matched")) == 2


def test_a_retraction_that_waits_in_rows_goes_with_its_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which came in columns."""
    monkeypatch.setattr(in_columns, "_MOST_BYTES", 1)
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
