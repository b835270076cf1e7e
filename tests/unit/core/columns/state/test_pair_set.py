"""A pair is new once."""

from __future__ import annotations

import numpy as np
import pytest

from millwheel.core.columns.state.pair_set import PairSet


@pytest.mark.parametrize("seed", range(3))
def test_one_record_of_each_new_pair_is_first(seed: int) -> None:
    rng, pairs = np.random.default_rng(seed), PairSet()
    seen: set[tuple[int, int]] = set()
    for count in rng.integers(0, 3_000, 20):
        left, right = (rng.integers(0, most, count, np.uint64) for most in (900, 2**64 - 1))
        right %= np.uint64(7)
        fresh = pairs.add(left, right)
        first = list(zip(left[fresh].tolist(), right[fresh].tolist(), strict=True))
        new = set(zip(left.tolist(), right.tolist(), strict=True)) - seen
        assert sorted(first) == sorted(new)
        seen |= new
        assert len(pairs) == len(seen)
