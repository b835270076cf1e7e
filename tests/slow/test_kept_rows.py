"""The benches of joins that keep rows, small."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import hot_join
from bench.hot_join import Shape
from bench.nexmark.kept import measured


@pytest.mark.slow
def test_each_bid_finds_its_auction_among_those_that_are_kept(tmp_path: Path) -> None:
    found = measured(tmp_path, auctions=2_000, bids=1_000, workers=2)
    assert found.per_s > 0
    assert found.loaded_mb > 0
    assert found.root_mb > 0


@pytest.mark.slow
def test_a_hot_key_has_all_its_pairs(tmp_path: Path) -> None:
    shape = Shape.of("2000x3")
    shape.write(tmp_path / "in")
    found = hot_join.measured(tmp_path, shape)
    figures = hot_join.figures(shape, [found])
    assert list(figures) == ["pairs_per_s", "records_per_s", "worker_cpu_s", "worker_mb"]
    assert min(figures.values()) > 0
