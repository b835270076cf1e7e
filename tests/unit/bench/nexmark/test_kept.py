from __future__ import annotations

from bench.nexmark.kept import Kept


def test_a_line_tells_rate_and_memory() -> None:
    assert str(Kept(100_000, 42_131.4, 310.2, 420.7, 150.0)) == (
        "100,000 auctions kept: 42,131 rows/s; a worker has 310 MB behind the auctions and 421 MB"
        " behind the bids, the root 150 MB"
    )
