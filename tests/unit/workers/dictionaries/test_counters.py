"""How far partitions have counted: no number twice, none left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millwheel.workers.dictionaries.counters import Counters
from millwheel.workers.dictionaries.singles import Singles
from millwheel.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore


def _opened(store: SimStore, counted: Sequence[int] = (0,) * 5) -> tuple[Counters, Overlay]:
    overlay = Overlay(store)
    return Counters(np.array(counted, np.int64), Singles(store, overlay)), overlay


@given(st.lists(st.lists(st.integers(0, 4), max_size=20)))
def test_each_partition_counts_for_itself_in_the_order_of_the_values(bundles: list[list[int]]) -> None:
    counters, _ = _opened(SimStore({}))
    counted = [0] * 5
    for bundle in bundles:
        numbers = counters.next(np.array(bundle, np.int64)).tolist()
        for partition, number in zip(bundle, numbers, strict=True):
            assert number == counted[partition]
            counted[partition] += 1


def test_it_goes_on_behind_what_runs_tell_and_what_is_stored() -> None:
    store = SimStore({})
    first, overlay = _opened(store, [0, 8, 1, 0, 0])
    assert first.next(np.array([1, 2, 3, 1])).tolist() == [8, 1, 0, 9]
    first.store(np.array([1, 3]))
    first.write()
    store.apply(*overlay.take())
    later, _ = _opened(store, [0, 0, 0, 21, 0])
    assert later.next(np.array([3, 2, 1])).tolist() == [21, 0, 10]
