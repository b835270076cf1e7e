"""One shard of a dictionary by itself: what a new device costs, a known one, the longest bundle of new ones, and
opening the store again.

python -m bench uv_opened [--devices 2500000]

All figures are CPU time of this process, user and system.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time

import numpy as np

from millwheel.adapters.stores.rocksdb import RocksStores
from millwheel.core.formats.number_runs import Int64s
from millwheel.workers.dictionaries.numbers import Numbers
from millwheel.workers.state.overlay import Overlay

_PARTITIONS, _BUNDLE, _KNOWN = 4096, 6_000, 500_000


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench uv_opened", description=__doc__)
    parser.add_argument("--devices", type=int, default=2_500_000)
    print(json.dumps(figures(parser.parse_args().devices)))
    return 0


def figures(devices: int) -> dict[str, float]:
    """The figures, by name."""
    with tempfile.TemporaryDirectory() as folder:
        stores = RocksStores(f"{folder}/stores")
        store = stores.open("ids", None)
        overlay = Overlay(store)
        numbers = Numbers(store, overlay, _PARTITIONS)
        began, longest_s = _cpu_s(), 0.0
        for start in range(0, devices, _BUNDLE):
            asked_s = _cpu_s()
            _ask(numbers, np.arange(start, min(start + _BUNDLE, devices)))
            if start:  # before that, libraries are loaded
                longest_s = max(longest_s, _cpu_s() - asked_s)
            numbers.write()
            store.apply(*overlay.take())
        new_s, began = _cpu_s() - began, _cpu_s()
        rng = np.random.default_rng(1)
        for _ in range(0, _KNOWN, _BUNDLE):
            _ask(numbers, rng.integers(0, devices, _BUNDLE))
        known_s = _cpu_s() - began
        store.checkpoint(f"{folder}/copy")
        began = _cpu_s()
        again = stores.open("heir", f"{folder}/copy")
        Numbers(again, Overlay(again), _PARTITIONS)
        open_s = _cpu_s() - began
        again.close()
        store.close()
    return {
        "devices": devices,
        "new_us": round(new_s / devices * 1e6, 3),
        "longest_ms": round(longest_s * 1e3),
        "known_us": round(known_s / _KNOWN * 1e6, 3),
        "open_s": round(open_s, 2),
    }


def _ask(numbers: Numbers, devices: Int64s) -> None:
    """A bundle, without what it takes to hash texts."""
    low = devices.astype(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    numbers.of((low, ~low), devices % _PARTITIONS, np.zeros(len(devices), np.int64), devices.tolist)


def _cpu_s() -> float:
    return time.process_time()
