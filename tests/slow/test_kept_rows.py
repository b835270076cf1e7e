"""The bench of kept auctions, small."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.nexmark.kept import measured


@pytest.mark.slow
def test_each_bid_finds_its_auction_among_those_that_are_kept(tmp_path: Path) -> None:
    found = measured(tmp_path, auctions=2_000, bids=1_000, workers=2)
    assert found.per_s > 0
    assert found.loaded_mb > 0
    assert found.root_mb > 0
