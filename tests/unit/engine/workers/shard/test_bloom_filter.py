from __future__ import annotations

import numpy as np
import pytest

from millwheel.engine.workers.shard.bloom_filter import BitsOf, BucketFilter


def test_a_filter_grows_and_never_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millwheel.engine.workers.shard.bloom_filter._CAPACITY", 50)
    one = BucketFilter()
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2**64, size=(40, 2, 30), dtype=np.uint64)
    for low, high in words:
        one.add(low, high)
    assert all(len(one.maybe(BitsOf(low, high))) == len(low) for low, high in words)
    others = rng.integers(0, 2**64, size=(2, 10_000), dtype=np.uint64)
    assert len(one.maybe(BitsOf(*others))) < 500


def test_many_bits_are_set_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    words = rng.integers(0, 2**64, size=(3, 2, 5_000), dtype=np.uint64)
    found = []
    for dense in (0, 10**9):
        monkeypatch.setattr("millwheel.engine.workers.shard.bloom_filter._DENSE", dense)
        one = BucketFilter()
        for low, high in words:
            one.add(low, high)
        [(bloom, view, _)] = one._filters
        found.append(view.tobytes())
        assert bloom.bitarray.count() > 140_000
    assert found[0] == found[1]


def test_few_ids_are_doubted_that_were_never_added() -> None:
    rng = np.random.default_rng(3)
    one = BucketFilter()
    one.add(*rng.integers(0, 2**64, size=(2, 99_000), dtype=np.uint64))
    others = rng.integers(0, 2**64, size=(2, 100_000), dtype=np.uint64)
    assert len(one.maybe(BitsOf(*others))) < 200
