from __future__ import annotations

import numpy as np
import pytest

from millwheel.workers.shard.bloom_filter import BucketFilter


def test_a_filter_grows_and_never_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millwheel.workers.shard.bloom_filter._CAPACITY", 50)
    one = BucketFilter()
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2**64, size=(40, 2, 30), dtype=np.uint64)
    for low, high in words:
        one.add(low, high)
    assert all(one.maybe(low, high).all() for low, high in words)
    others = rng.integers(0, 2**64, size=(2, 10_000), dtype=np.uint64)
    assert one.maybe(*others).mean() < 0.05
