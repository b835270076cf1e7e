"""One shard with much state, for part D, in a process of its own.

``python -m bench.state_process KEYS VALUE_BYTES UPDATES``: the real machine of a shard over a real
RocksDB, journal and snapshots, in the working folder. First every key gets a value, then keys drawn
at random get new ones, in bundles of 10,000 records; a snapshot is published in between. In the end
the shard is recovered into another store, as after a kill, and compared. Prints its figures as one
line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import psutil

from bench.stats import quantile
from millwheel import Computation, Context, Record, ValueState
from millwheel.adapters.clock import SystemClock
from millwheel.adapters.durable_store import open_journals, open_snapshots
from millwheel.adapters.stores.rocksdb import RocksStore, RocksStores
from millwheel.core.formats.store_layout import STATE
from millwheel.core.model.names import ChannelName, NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import Ancestor, RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import CallbackSpec
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.process import GC_THRESHOLDS
from millwheel.engine.workers.recovery.recovery import recover
from millwheel.engine.workers.shard.in_flight import PendingCommit
from millwheel.engine.workers.shard.shard import Shard

BUNDLE = 10_000
NODE, SHARD, WORKER = NodeName("work"), ShardName("work-0"), WorkerName("w0")
_SAMPLE = 200_000


class Keep(Computation):
    """Replaces the value of a key. Values are cut from noise, so that they do not compress away."""

    kept: ValueState[bytes] = ValueState(bytes, default=bytes)
    size = 100
    noise = b""

    def process_record(self, ctx: Context, record: Record) -> None:
        self.kept.get()
        self.kept.set(self.noise[record.value % 4096 :][: self.size])


class Work:
    """A shard and its journal."""

    def __init__(self, root: str) -> None:
        given = (InputSpec("events", KeySpec(KeyKind.FIELD, ("key",))),)
        spec = PipelineSpec(
            "state",
            (StreamSpec("events", SourceSpec("memory"), timestamp="ts"),),
            (ComputationSpec(NODE, given, (), CallbackSpec("it:It")),),
            (),
            root,
        )
        outside = Factories(lambda *_: None, lambda *_: None, lambda name, folder: Keep)  # type: ignore[arg-type]
        assembly = Assembly(spec, root, SystemClock(), outside)
        router = TableRouter()
        self.entry = ShardEntry(SHARD, tile(1)[0], WORKER, Token(1))
        router.update(RangeTable(NODE, (self.entry,), 0))
        self.journals, self.snapshots = open_journals(root), open_snapshots(root)
        self.writer = self.journals.create(WORKER)
        self.shard: Shard = assembly.make_shard(
            NODE, self.entry, RocksStores("store").open(SHARD, None), router
        )
        self.shard.start()
        self.commits_s: list[float] = []
        self.sent = 0

    def bundle(self, keys: list[int]) -> None:
        """One delivery, its bundle and its durable commit."""
        count, first = len(keys), self.sent + 1
        self.sent += count
        seqs = list(range(first, first + count))
        batch = Batch("events", seqs, seqs, list(keys), [number * 31 for number in seqs], None, 1)
        self.shard.offer(ChannelName("up"), first, 0, batch, None)
        self.shard.run(time.time_ns() // 1_000)
        ready: list[tuple[PendingCommit, bytes]] = list(self.shard.commits.submittable(0))
        began = time.perf_counter()
        self.writer.commit([entry for _, entry in ready if entry])
        self.commits_s.append(time.perf_counter() - began)
        for pending, _ in ready:
            self.shard.durable(pending, 0)

    def publish(self) -> None:
        """A snapshot of all there is."""
        self.shard.checkpoint("checkpoint")
        self.snapshots.publish(SHARD, Token(1), self.shard.commits.made, "checkpoint", lambda: None)
        for segment in list(self.writer.segments())[:-1]:
            self.writer.delete_segment(segment)

    def recovered(self) -> RocksStore:
        """The same shard, restored by another owner."""
        end = self.journals.seal(WORKER)
        entry = ShardEntry(
            SHARD,
            self.entry.range,
            WorkerName("w1"),
            Token(2),
            (Ancestor(WORKER, Token(1), end, -1),),
        )
        found = recover(entry, RocksStores("restored"), self.snapshots, self.journals, "scratch")
        assert isinstance(found, RocksStore)
        return found


def digest(entries: Iterator[tuple[bytes, bytes]]) -> str:
    """Of the first entries of a store."""
    found = blake2b(digest_size=16)
    for key, value in islice(entries, _SAMPLE):
        found.update(key)
        found.update(value)
    return found.hexdigest()


def size_mb(*folders: str) -> float:
    """Of all files in the folders; what is linked counts once."""
    found = {}
    for folder in folders:
        for path in Path(folder).rglob("*"):
            if path.is_file():
                stat = path.stat()
                found[stat.st_ino] = stat.st_size
    return sum(found.values()) / 1e6


def main() -> None:
    """See the module."""
    keys, Keep.size, updates = (int(given) for given in sys.argv[1:4])
    rng = random.Random(1)
    Keep.noise = rng.randbytes(Keep.size + 4096)
    Path("scratch").mkdir()
    gc.set_threshold(*GC_THRESHOLDS)
    work = Work(os.path.abspath("root"))
    began = time.perf_counter()
    for first in range(0, keys, BUNDLE):
        work.bundle(
            [index * 2_654_435_761 % 2**32 for index in range(first, min(first + BUNDLE, keys))]
        )
    filled = time.perf_counter()
    work.publish()
    published = time.perf_counter()
    work.commits_s.clear()
    for _ in range(updates // BUNDLE):
        work.bundle([rng.randrange(keys) * 2_654_435_761 % 2**32 for _ in range(BUNDLE)])
    updated = time.perf_counter()
    rss_mb = psutil.Process().memory_info().rss / 1e6
    commits = sorted(work.commits_s)
    expected, disk_mb = digest(work.shard.store.scan(STATE)), size_mb("root", "store")
    work.shard.close()
    again = time.perf_counter()
    store = work.recovered()
    recovered = time.perf_counter()
    figures = {
        "records_per_s": updates // BUNDLE * BUNDLE / (updated - published),
        "fill_per_s": keys / (filled - began),
        "commit_p50_ms": quantile(commits, 0.5) * 1e3,
        "commit_p99_ms": quantile(commits, 0.99) * 1e3,
        "snapshot_s": published - filled,
        "recovery_s": recovered - again,
        "rss_mb": rss_mb,
        "disk_mb": disk_mb,
    }
    print(
        json.dumps({"figures": figures, "correct": digest(store.scan(STATE)) == expected}),
        flush=True,
    )


if __name__ == "__main__":
    main()
