"""A sink behind the chain of a source gives what its own shards give, in the commits of the source,
also where workers die, and where it is chained for some owners of a shard only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.core.model.failures import chained_counter
from millwheel.core.pipeline.graph import Graph
from millwheel.core.pipeline.spec import SinkSpec
from millwheel.engine.workers.host import assembly
from millwheel.engine.workers.sinks.chain_end import former_sink
from millwheel.testing import PipelineHarness
from millwheel.tools.testing import rewiring, taps
from tests.unit.engine.workers.operators.column_runs import in_rows, small_reads
from tests.unit.engine.workers.operators.test_chains import (
    apart,
    bids,
    written,
)

PIPELINE = """
  made:
    input: bids
    map: {auction: auction, price: price, ratio: "1000 / price"}
    output: made
  some:
    input: made
    filter: "100 / (price - 5) < 40"
    output: some
sinks:
  some: {files: {path: out, format: jsonl}}
"""


def found(path: str, **options: Any) -> tuple[list[Any], int, int]:
    """Results, letters and counters; how many records the sink counts, and commits it makes."""
    with PipelineHarness(path, run_sources=True, **options) as harness:
        harness.advance_processing_time(10**9)
        rows = [(each.key, each.timestamp, each.value) for each in harness.records("some")]
        letters = [repr(letter) for letter in harness.read("dead_letters")]
        counters = [harness.counters_of(name) for name in ("made", "some")]
        sinks, sources = map(harness._cluster.shards_of, ("sink.some", "source.bids"))
        totals = [shard.meta.counters for shard in (*sinks, *sources)]
        counts = [
            each.get(name, 0)
            for each in totals
            for name in ("records_out", chained_counter("sink.some", "records_out"))
        ]
        found = [sorted(map(repr, rows)), sorted(letters), counters]
        return found, sum(counts), sum(shard.commits.made for shard in sinks)


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taps pass for sinks of files, and there are no others than those of the pipeline."""
    monkeypatch.setattr(taps, "KIND", "files")
    monkeypatch.setattr(rewiring, "streams_of", lambda spec: ["some", "dead_letters"])


@pytest.mark.parametrize("every", [None, 5, 13])
@pytest.mark.parametrize("form", ["columns", "rows"])
def test_a_chained_sink_gives_what_its_own_shards_give(
    tmp_path: Path, form: str, every: int | None
) -> None:
    path = written(tmp_path, bids(2_000), PIPELINE)
    options = {} if every is None else {"crash_every": every, "workers": 2, "shards": 2}
    with in_rows(form == "rows"):
        behind, count, commits = found(path, **options)
        with apart():
            wanted, _, own = found(path)
    assert behind == wanted
    assert count == len(wanted[0]) > 1_000
    assert len(wanted[1]) > 10
    assert own > 0
    assert commits == 0 or every is not None  # who dies before it begins is followed by no chain


@pytest.mark.parametrize("before", [True, False])
def test_a_chained_sink_comes_or_goes_between_two_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    small_reads(monkeypatch)
    path = written(tmp_path, bids(2_000), PIPELINE)
    with apart():
        wanted = found(path)[0]
    right, lives, former = Graph.sink_behind, [0], set[str]()

    def sometimes(self: Graph, node: str) -> SinkSpec | None:
        lives[0] += 1
        return right(self, node) if (lives[0] // 2 % 2 == 0) is before else None

    def noted(store: Any) -> str:
        former.add(stream := former_sink(store))
        return stream

    monkeypatch.setattr(Graph, "sink_behind", sometimes)
    monkeypatch.setattr(assembly, "former_sink", noted)
    assert found(path, crash_every=40)[0] == wanted
    assert lives[0] > 8
    assert "some" in former  # committed by a former owner, and perhaps not visible
