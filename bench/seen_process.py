"""The ids that one shard remembers, for part H, in a process of its own: a real RocksDB, and what
asks it.

``python -m bench.seen_process IDS SHARE`` gives ids in bundles of 10,000, over one hour of event
time and as many keys as part B has; ``SHARE`` of them are copies of any earlier one. All are
remembered: the horizon is that hour. Prints its figures as one line of JSON:

- ``filter_alone``: the share of ids that the Bloom filters called new without asking the store;
- ``asked_exactly``: that of the ids that had to be looked up in the store;
- ``false_positives``: that of the new ids among those that were looked up in vain;
- per million ids remembered: the filters in memory, the growth of the process, and the files of the
  store.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import numpy as np
import psutil

from bench.state_process import size_mb
from millwheel.adapters.stores.rocksdb import RocksStores
from millwheel.core.model.records import Batch
from millwheel.core.model.times import duration_us
from millwheel.engine.workers.shard.seen_ids import SeenIds
from millwheel.engine.workers.state.overlay import Overlay

BUNDLE, KEYS = 10_000, 10_000
HOUR = duration_us("1h")
_MIX = 0x9E3779B97F4A7C15


def drawn(ids: int, share: float) -> list[int]:
    """Numbers of records: each is new, or that of an earlier one."""
    rng, found, new = random.Random(1), [], 0
    for _ in range(ids):
        if new and rng.random() < share:
            found.append(rng.randrange(new))
        else:
            found.append(new)
            new += 1
    return found


def bundle(numbers: list[int], most: int) -> Batch:
    """The records of these numbers. Those of one number are equal, their time included."""
    stamps = [number * HOUR // most for number in numbers]
    ids = [f"{number * _MIX % 2**64:016x}" for number in numbers]
    return Batch("events", [], stamps, [number * 31 % KEYS for number in numbers], [], ids)


def figures(ids: int, share: float, folder: Path) -> dict[str, float]:
    """All of them, and whether each id was taken exactly once."""
    store = RocksStores(str(folder)).open("seen-0", None)
    overlay = Overlay(store)
    seen = SeenIds(store, overlay, HOUR)
    numbers = drawn(ids, share)
    before, spent, fresh = psutil.Process().memory_info().rss, 0.0, 0
    for first in range(0, ids, BUNDLE):
        batch = bundle(numbers[first : first + BUNDLE], ids)
        began = time.process_time()
        fresh += int(np.count_nonzero(seen.fresh(batch)))
        store.apply(*overlay.take())
        spent += time.process_time() - began
    grown = psutil.Process().memory_info().rss - before
    store.checkpoint(str(folder / "checkpoint"))
    distinct, millions = max(numbers) + 1, fresh / 1e6
    vain = seen.doubted - seen.confirmed
    found = {
        "ids_per_s": ids / spent,
        "filter_alone_percent": 100 * (1 - seen.doubted / seen.asked),
        "asked_exactly_percent": 100 * seen.doubted / seen.asked,
        "false_positives_percent": 100 * vain / fresh,
        "filters_mb_per_million": seen.filter_bytes / 1e6 / millions,
        "grown_mb_per_million": grown / 1e6 / millions,
        "disk_mb_per_million": size_mb(str(folder / "checkpoint")) / millions,
        "missed": float(fresh - distinct),
    }
    store.close()
    return found


def main() -> None:
    """See the module."""
    found = figures(int(sys.argv[1]), float(sys.argv[2]), Path("store").absolute())
    missed = found.pop("missed")
    print(json.dumps({"figures": found, "correct": missed == 0}), flush=True)


if __name__ == "__main__":
    main()
