"""How long a shard's state takes to be there again: ``python -m bench restore --mb 100 --mb 1000
[--scratch FOLDER]``.

It publishes a snapshot of random values and restores it as a new owner does, up to the first value
read, with files that the system does not have in memory. With ``--scratch`` on another file system
than the root, or a root in an object store, files are copied.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from millwheel.adapters.durable_store import open_snapshots
from millwheel.adapters.stores.rocksdb import RocksStore, RocksStores
from millwheel.core.model.names import ShardName, Token

_VALUE_BYTES = 1000
_BATCH = 1000


def main() -> None:
    """Measure each size so many times and print a line of JSON for each."""
    os.environ.setdefault("AWS_REGION", "us-east-1")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--mb", type=int, action="append", help="MB of state; may be given more than once"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--root", default="", help="a folder, or s3://bucket/prefix; default: a temporary folder"
    )
    parser.add_argument(
        "--scratch", default="", help="where local stores are; default: beside the root"
    )
    arguments = parser.parse_args()
    for mb in arguments.mb or [100]:
        with tempfile.TemporaryDirectory(prefix="restore-") as folder:
            scratch = arguments.scratch or folder
            found = measure(
                f"{arguments.root or folder}/{mb}", Path(scratch) / "scratch", mb, arguments.runs
            )
            sys.stdout.write(json.dumps({"mb": mb, **found}) + "\n")
            sys.stdout.flush()


def measure(root: str, scratch: Path, mb: int, runs: int) -> dict[str, float]:
    """Seconds: median and longest restore, and the next snapshot of what was restored."""
    shard = ShardName("bench-0")
    store = RocksStores(str(scratch / "first")).open(shard, None)
    _fill(store, mb)
    store.checkpoint(str(scratch / "checkpoint"))
    store.close()
    manifest = open_snapshots(root).publish(
        shard, Token(1), 1, str(scratch / "checkpoint"), lambda: None
    )
    shutil.rmtree(scratch)
    took: list[float] = []
    for number in range(runs):
        snapshots, stores = open_snapshots(root), RocksStores(str(scratch / f"owner-{number}"))
        _forget(Path(root))
        began = time.perf_counter()
        snapshots.restore(manifest, str(scratch / "restore"))
        store = stores.open(shard, str(scratch / "restore"))
        assert store.get(_key(7)) is not None
        took.append(time.perf_counter() - began)
        began = time.perf_counter()
        store.apply([(_key(7), b"changed")], [])
        store.checkpoint(str(scratch / "next"))
        snapshots.publish(shard, Token(2 + number), 2 + number, str(scratch / "next"), lambda: None)
        next_s = time.perf_counter() - began
        manifest = snapshots.latest(shard) or manifest
        store.close()
        shutil.rmtree(scratch)
    seconds = {"restore_s": statistics.median(took), "longest_s": max(took), "next_s": next_s}
    return {name: round(value, 4) for name, value in seconds.items()}


def _forget(root: Path) -> None:
    """Take the files of a folder out of the memory of the system, as on a machine that has not seen
    them."""
    for path in root.rglob("*") if root.is_dir() else ():
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _fill(store: RocksStore, mb: int) -> None:
    rng = random.Random(1)
    for first in range(0, mb * 1_000_000 // _VALUE_BYTES, _BATCH):
        store.apply(
            [
                (_key(number), rng.randbytes(_VALUE_BYTES))
                for number in range(first, first + _BATCH)
            ],
            [],
        )


def _key(number: int) -> bytes:
    return b"k%010d" % number
