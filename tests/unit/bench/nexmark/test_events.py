from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from bench.nexmark.events import drawn, write


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
