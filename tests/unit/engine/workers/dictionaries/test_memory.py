"""Memory that grows where it lies."""

from __future__ import annotations

import errno
import mmap

import numpy as np
import pytest

from millwheel.engine.workers.dictionaries.memory import GrowingArray


def test_what_was_written_is_there_after_it_has_grown_and_the_rest_is_zero() -> None:
    memory = GrowingArray(1_000, 3, np.uint64)
    memory.array[:] = np.arange(3_000, dtype=np.uint64).reshape(-1, 3)
    memory.grow(500)
    assert memory.array.shape == (1_000, 3)
    for rows in (1_001, 50_000, 3_000_000):
        memory.grow(rows)
        assert memory.array.shape == (rows, 3)
        assert memory.size_bytes == rows * 24
        assert (memory.array[:1_000].ravel() == np.arange(3_000)).all()
        assert not memory.array[1_000::997].any()
    memory.array[-1] = 7


def test_it_also_grows_while_somebody_looks_at_it() -> None:
    memory = GrowingArray(10, 1, np.int64)
    memory.array[:, 0] = np.arange(10)
    view = memory.array[3:5]
    memory.grow(100_000)
    assert memory.array[:10, 0].tolist() == list(range(10))
    assert view.ravel().tolist() == [3, 4]
    memory.array[3] = 30
    assert view[0] == 3  # what was looked at is the array before


def test_a_kernel_without_large_pages_gives_memory_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class WithoutLargePages(mmap.mmap):
        def madvise(self, *advice: int) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", WithoutLargePages)
    memory = GrowingArray(1_000_000, 1, np.int64)
    memory.grow(2_000_000)
    memory.array[-1] = 7
    assert memory.array.sum() == 7
