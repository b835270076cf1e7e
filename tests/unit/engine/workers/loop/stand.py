"""A worker's table and shards for tests of the parts of its loop."""

from __future__ import annotations

from typing import Any

from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.workers.loop.shard_handle import Life, Served
from millwheel.engine.workers.loop.table_entries import TableEntries
from tests.unit.engine.workers.bench import Dial, ShardBench, Silent

ME = "w0"


def table(node: str, *owners: tuple[str, int], version: int = 0, **more: Any) -> RangeTable:
    """The shards ``node``-0, -1… of (owner, token) each."""
    rows = zip(owners, tile(len(owners)), strict=True)
    entries = [
        ShardEntry(f"{node}-{i}", where, owner, token, **more)
        for i, ((owner, token), where) in enumerate(rows)
    ]
    return RangeTable(node, tuple(entries), version)


def live(kind: Any = Silent, dial: Dial = Dial(), token: int = 1) -> tuple[ShardBench, Served]:
    """A bench whose shard ``work-0`` is served here and works, under a token."""
    bench = ShardBench(kind, dial)
    while bench.token < token:
        bench.crash()
    served = Served(bench.shard, "work", frozenset({"events"}), 1)
    served.life = Life.LIVE
    return bench, served


def known(*tables: RangeTable, **addresses: str) -> TableEntries:
    """What a worker has heard of tables and workers."""
    entries = TableEntries()
    for each in tables:
        entries.take(each)
    entries.addresses = addresses
    return entries
