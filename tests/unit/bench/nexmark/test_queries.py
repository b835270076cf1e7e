from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.nexmark.events import drawn, write
from bench.nexmark.judge import judged
from bench.nexmark.queries import QUERIES
from millwheel import as_retraction
from millwheel.testing import PipelineHarness


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark") / "events"
    write(folder, 2_500, 2, 7)
    return folder


def as_written(row: Any) -> dict[str, Any]:
    """As a sink of changes writes it."""
    back = as_retraction(row)
    return {"change": "+", **row} if back is None else {"change": "-", **back.value}


@pytest.mark.parametrize("name", QUERIES)
def test_its_rows_are_those_of_duckdb(name: str, events: Path, tmp_path: Path) -> None:
    query = QUERIES[name]
    (tmp_path / "p.yaml").write_text(query.pipeline(name))
    params = {"input": str(events), "output": str(tmp_path / "out")}
    with PipelineHarness(tmp_path / "p.yaml", params=params, run_sources=True, shards=2) as harness:
        harness.advance_processing_time(60_000_000)
        rows = harness.read("rows")
    if query.marked:
        rows = list(map(as_written, rows))
    check = judged(query, events, rows)
    assert check.rows
    assert check.correct, check.example


# events.py


def test_the_shares_are_those_that_are_published() -> None:
    events = list(drawn(20_000, 1))
    kinds = Counter(kind for kind, _ in events)
    assert kinds == {"person": 400, "auction": 1_200, "bid": 18_400}
    bids = [event for kind, event in events if kind == "bid"]
    hot = sum(event["auction"] % 100 == 0 for event in bids)  # half, and one of 100 by chance
    assert 0.48 < hot / len(bids) < 0.53
    assert 0.73 < sum(event["bidder"] % 100 == 1 for event in bids) / len(bids) < 0.78
    assert 0.31 < sum(event["price"] < 10_000 for event in bids) / len(bids) < 0.36
    sizes = [len(msgspec.json.encode(event)) for event in bids]
    assert 130 < sum(sizes) / len(sizes) < 200, "about 100 bytes, and the names of fields"
    ids = {event["id"] for kind, event in events if kind == "auction"}
    assert len(ids) == 1_200, "each auction once"
    later = {event["auction"] for event in bids} - ids
    assert len(later) <= 10, "besides those that come soon"


def test_files_are_in_the_order_of_times_and_the_same_each_time(tmp_path: Path) -> None:
    write(tmp_path / "a", 2_000, 2, 3)
    write(tmp_path / "b", 2_000, 2, 3)
    *files, side = sorted((tmp_path / "a").iterdir())
    assert (len(files), side.name) == (6, "side-1.jsonl")
    for file in files:
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
        times = [msgspec.json.decode(line)["dateTime"] for line in file.read_bytes().splitlines()]
        assert times
        assert times == sorted(times)
