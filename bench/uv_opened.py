"""One shard of a dictionary by itself: what a new device costs, a known one, the longest bundle of
new ones, and opening the store again. Then one with a time to live: the longest bundle, and to
forget an eighth of its devices.

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
from millwheel.core.pipeline.dictionaries import TTL_PARTS
from millwheel.engine.workers.dictionaries.numbers import Numbers
from millwheel.engine.workers.state.overlay import Overlay

_PARTITIONS, _BUNDLE, _KNOWN = 4096, 6_000, 500_000
_EIGHTH_US = 3_600_000_000


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench uv_opened", description=__doc__)
    parser.add_argument("--devices", type=int, default=2_500_000)
    devices = parser.parse_args().devices
    print(json.dumps({**figures(devices), **forgetting(devices)}))
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
        again = stores.open("successor", f"{folder}/copy")
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


def forgetting(devices: int) -> dict[str, float]:
    """About so many devices are known at a time; each eighth of the time to live brings as many new
    ones as go."""
    with tempfile.TemporaryDirectory() as folder:
        store = RocksStores(f"{folder}/stores").open("ids", None)
        overlay, each = Overlay(store), devices // TTL_PARTS
        numbers = Numbers(store, overlay, _PARTITIONS, ttl_us=TTL_PARTS * _EIGHTH_US)
        forget_s = longest_s = 0.0
        for start in range(0, 2 * devices, _BUNDLE):
            now_us, began = start // each * _EIGHTH_US, _cpu_s()
            numbers.forget(now_us)
            forgot = _cpu_s()
            _ask(numbers, np.arange(start, start + _BUNDLE), now_us)
            numbers.write()
            if start:
                forget_s, longest_s = (
                    max(forget_s, forgot - began),
                    max(longest_s, _cpu_s() - began),
                )
            store.apply(*overlay.take())
        store.close()
    return {"forget_ms": round(forget_s * 1e3), "longest_with_ttl_ms": round(longest_s * 1e3)}


def _ask(numbers: Numbers, devices: Int64s, at_us: int = 0) -> None:
    """A bundle, without what it takes to hash texts."""
    low = devices.astype(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    numbers.of((low, ~low), devices % _PARTITIONS, np.full(len(devices), at_us), devices.tolist)


def _cpu_s() -> float:
    return time.process_time()
