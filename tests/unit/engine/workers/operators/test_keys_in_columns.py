"""Each key is kept in columns or in rows, whichever computation keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.engine.workers.operators.key_forms import KeptOperator
from millwheel.engine.workers.operators.ranked import columns, over_columns
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.operators.column_runs import of_events, small_bundles

COMPUTATIONS = """\
  plain: {{input: events, map: {{ad: ad, n: ts % 1000}}, output: plain}}
  c: {{input: {{plain: {{key: n}}}}, {work}, output: rows}}
"""
WORK = {
    "over": "over: {rows: 2}, aggregate: {total: {sum: ad}}",
    "top": "top: {by: ad, k: 2}",
}


@pytest.mark.parametrize("room", [None, 1])
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_what_is_too_much_for_columns_goes_on_in_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, room: int | None
) -> None:
    small_bundles(monkeypatch, 300)
    for module in (columns, over_columns) if room is not None else ():
        monkeypatch.setattr(module, "_MOST_BYTES", room)
    path = of_events(tmp_path, COMPUTATIONS.format(work=work))
    with PipelineHarness(path, run_sources=True, shards=1) as harness:
        harness.advance_processing_time(10**9)
        [shard] = harness._cluster.shards_of("c")
        assert isinstance(shard.operator, KeptOperator)
        assert shard.operator._has_rows() == (room is not None)
        assert bool(shard.operator._kept) == (room is None)
