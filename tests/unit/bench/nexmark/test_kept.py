from __future__ import annotations

from pathlib import Path

import pytest

from bench.nexmark.kept import Kept, measured


@pytest.mark.slow
def test_each_bid_finds_its_auction_among_those_that_are_kept(tmp_path: Path) -> None:
    found = measured(tmp_path, auctions=2_000, bids=1_000, workers=2)
    assert found.per_s > 0
    assert found.loaded_mb > 0
    assert found.root_mb > 0


def test_a_line_tells_rate_and_memory() -> None:
    assert str(Kept(100_000, 42_131.4, 310.2, 420.7, 150.0)) == (
        "100,000 auctions kept: 42,131 rows/s; a worker has 310 MB behind the auctions and 421 MB"
        " behind the bids, the root 150 MB"
    )
