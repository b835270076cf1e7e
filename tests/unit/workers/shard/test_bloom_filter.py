from __future__ import annotations

import numpy as np
import pytest

from millwheel.workers.shard.bloom_filter import BitsOf, BucketFilter


def test_a_filter_grows_and_never_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millwheel.workers.shard.bloom_filter._CAPACITY", 64)
    one = BucketFilter()
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2**64, size=(40, 2, 30), dtype=np.uint64)
    for low, high in words:
        one.add(low, high)
    assert all(len(one.maybe(BitsOf(low, high))) == len(low) for low, high in words)
    others = rng.integers(0, 2**64, size=(2, 10_000), dtype=np.uint64)
    assert len(one.maybe(BitsOf(*others))) < 500


def test_a_filter_has_room_for_a_batch_that_is_larger_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millwheel.workers.shard.bloom_filter._CAPACITY", 64)
    rng = np.random.default_rng(2)
    low, high = rng.integers(0, 2**64, size=(2, 5_000), dtype=np.uint64)
    one = BucketFilter()
    one.add(low, high)
    assert one.size_bytes >= 2 * 5_000
    assert len(one.maybe(BitsOf(low, high))) == len(low)


def test_few_ids_are_doubted_that_were_never_added() -> None:
    rng = np.random.default_rng(3)
    one = BucketFilter()
    one.add(*rng.integers(0, 2**64, size=(2, 65_536), dtype=np.uint64))
    others = rng.integers(0, 2**64, size=(2, 100_000), dtype=np.uint64)
    assert len(one.maybe(BitsOf(*others))) < 600
    one.add(*rng.integers(0, 2**64, size=(2, 65_536), dtype=np.uint64))
    assert len(one.maybe(BitsOf(*others))) < 900
