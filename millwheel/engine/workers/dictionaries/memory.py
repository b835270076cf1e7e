"""Memory for a growing number of rows: it grows in place, without copies."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", bound=np.generic)
# bytes from which large pages pay: fewer faults, and fewer misses of the table of pages
_HUGE = 4 << 20


class GrowingArray(Generic[Number]):
    """``array`` has rows of ``width`` numbers of 8 bytes. Untouched pages take no memory.

    Views of ``array`` are to be dropped before :meth:`grow`; otherwise the rows are copied once.
    """

    def __init__(self, rows: int, width: int, dtype: type[Number]) -> None:
        self._width = width
        self._dtype = np.dtype(dtype)
        self._memory = self._made(rows)
        self.array = self._seen(rows)

    @property
    def size_bytes(self) -> int:
        """The memory of all rows, if all have been touched."""
        return self.array.nbytes

    def grow(self, rows: int) -> None:
        """Make room for this many rows; the existing ones stay."""
        old = self.array
        if rows <= len(old):
            return
        del self.array
        count, memory = len(old), self._memory
        try:
            del old
            memory.resize(self._bytes(rows))
        # a view exists, or the system cannot
        except (BufferError, OSError, SystemError, ValueError):
            self._memory = self._made(rows)
            self.array = self._seen(rows)
            self.array[:count] = np.frombuffer(memory, self._dtype, count * self._width).reshape(
                count, self._width
            )
            return
        self._advise(memory)
        self.array = self._seen(rows)

    def _made(self, rows: int) -> mmap.mmap:
        memory = mmap.mmap(-1, self._bytes(rows), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._advise(memory)
        return memory

    def _advise(self, memory: mmap.mmap) -> None:
        if sys.platform == "linux" and len(memory) >= _HUGE:
            with suppress(OSError):  # a kernel may have no large pages
                memory.madvise(mmap.MADV_HUGEPAGE)

    def _seen(self, rows: int) -> npt.NDArray[Number]:
        return np.frombuffer(self._memory, self._dtype, rows * self._width).reshape(
            rows, self._width
        )

    def _bytes(self, rows: int) -> int:
        return max(rows * self._width * self._dtype.itemsize, 1)
