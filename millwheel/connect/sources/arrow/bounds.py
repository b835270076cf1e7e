"""Bounds of the memory that rows of a Parquet file take, even with wrong metadata: computed before
they are decoded.

A page is unpacked whole, however large it is, and a few bytes of it may stand for many: a
dictionary has a long text once, to which any number of values refer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millwheel.connect.sources.arrow.pages import (
    ChunkSpan,
    Encoding,
    PageKind,
    ParquetPage,
    ReadAt,
    pages_of,
    span_of,
)

MOST_BYTES, MOST_RATIO = 256 << 20, 100
"""A row group that unpacks to more bytes than the first, and more than so many times its size, is
left out; and only as many rows are decoded at once as fit into the first."""
_UNCHECKED_BYTES = 4 << 20  # that a column may unpack to without a look at its pages
_MOST_RATIOS = {"UNCOMPRESSED": 1, "SNAPPY": 22}
"""Fixed: the most that a codec can unpack a byte to; other codecs can exceed :data:`MOST_RATIO`."""
# of a dictionary whose texts are measured; the whole of a larger one counts as its longest text
_LOOKED_BYTES = 2 << 20
_SHORT = 255  # bytes of a text whose length looks like one: three bytes of zero follow the first
# of a dictionary in which runs of such texts are looked for, and between them
_RUN_BYTES, _MOST_BREAKS = 4_096, 1_000
_MOST_PAGES = 200_000  # of the columns of a row group: a look at each takes some 20 µs
_WIDTH = 16  # bytes of a value without its text: a number, or offsets and levels
_CODECS = {"ZSTD": "zstd", "GZIP": "gzip", "SNAPPY": "snappy", "BROTLI": "brotli", "LZ4": "lz4_raw"}


class Weight(NamedTuple):
    """The pages of a column of a row group, one after the other: their values, the bytes they
    unpack to, and the bytes that one value may take beside those."""

    values: npt.NDArray[np.int64]
    plain: npt.NDArray[np.int64]
    each: npt.NDArray[np.int64]


class ParquetBounds:
    """The bounds of a file, whose bytes ``read`` returns."""

    def __init__(self, metadata: Any, read: ReadAt) -> None:
        self._metadata = metadata
        self._read = read
        self._weights: dict[tuple[int, int], Weight] = {}
        schema = metadata.schema
        self._leaves = [schema.column(at) for at in range(metadata.num_columns)]

    def spans(self, group: int, columns: Sequence[str] | None) -> list[ChunkSpan]:
        """The positions of the pages of ``columns`` (None: all)."""
        return [
            span_of(self._metadata.row_group(group).column(at)) for at in self._read_of(columns)
        ]

    def refused(self, group: int, columns: Sequence[str] | None) -> str | None:
        """The reason why a row group cannot be read within the bounds; None if it can. Raises
        ValueError where it is damaged."""
        plain, pages = 0, 0
        for at in self._read_of(columns):
            weight = self._weight(group, at)
            pages += len(weight.plain)
            if pages > _MOST_PAGES:
                return f"has more than {_MOST_PAGES:,} pages"
            plain += int(weight.plain.sum())
            if self._leaves[at].max_repetition_level:  # one row may have all of its values
                plain += int((weight.values * weight.each).sum())
        meta = self._metadata.row_group(group)
        packed = sum(meta.column(at).total_compressed_size for at in range(meta.num_columns))
        if max(plain, meta.total_byte_size) <= max(MOST_BYTES, MOST_RATIO * packed):
            return None
        return f"unpacks to more than {MOST_BYTES >> 20} MiB and {MOST_RATIO} times its size"

    def plain_bytes(self, group: int, columns: Sequence[str] | None) -> int:
        """The unpacked size of the pages of a row group."""
        return sum(int(self._weight(group, at).plain.sum()) for at in self._read_of(columns))

    def rows(self, groups: Sequence[int], columns: Sequence[str] | None, most: int) -> int:
        """The number of rows that may be decoded at once: ``most`` at most, and one at least."""
        rows = max(most, 1)
        weights = [
            (at, [self._weight(group, at) for group in groups]) for at in self._read_of(columns)
        ]
        total = sum(self._metadata.row_group(group).num_rows for group in groups)
        # its pages: fewer rows do not help
        one = sum(self._bytes(at, each, 1, total) for at, each in weights)
        while rows > 1 and sum(self._bytes(at, each, rows, total) for at, each in weights) > max(
            MOST_BYTES, 2 * one
        ):
            rows //= 2
        return rows

    def _read_of(self, columns: Sequence[str] | None) -> list[int]:
        if columns is None:
            return list(range(len(self._leaves)))
        names = set(columns)
        return [at for at, leaf in enumerate(self._leaves) if leaf.path.partition(".")[0] in names]

    def _bytes(self, at: int, weights: list[Weight], rows: int, total: int) -> int:
        joined = Weight(*(np.concatenate(parts) for parts in zip(*weights, strict=True)))
        values = rows
        if self._leaves[at].max_repetition_level:
            values = max(rows * int(joined.values.sum()) // max(total, 1), 1)
        return most_of(joined, values)

    def _weight(self, group: int, at: int) -> Weight:
        weight = self._weights.get((group, at))
        if weight is None:
            weight = self._weights[group, at] = self._weighed(group, at)
        return weight

    def _weighed(self, group: int, at: int) -> Weight:
        column, leaf = self._metadata.row_group(group).column(at), self._leaves[at]
        text = leaf.physical_type == "BYTE_ARRAY"
        width = _WIDTH + (leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0)
        span = span_of(column)
        bound_bytes = span.size * _MOST_RATIOS.get(column.compression, MOST_BYTES)
        if not text and not leaf.max_repetition_level and bound_bytes <= _UNCHECKED_BYTES:
            return _joined([(span.values, bound_bytes, width)])
        pages = list(islice(pages_of(self._read, span), _MOST_PAGES + 1))
        longest = self._longest_of(pages, column.compression) if text else 0
        return _joined([_weight_of(page, width, longest, text) for page in pages])

    def _longest_of(self, pages: list[ParquetPage], codec: str) -> int:
        """The bytes of the longest text that values may refer to, or a little more."""
        dictionaries = [page for page in pages if page.kind == PageKind.DICTIONARY]
        most = max((page.plain for page in dictionaries), default=0)
        if (
            not dictionaries
            or most > _LOOKED_BYTES
            or most * sum(page.values for page in pages) < _UNCHECKED_BYTES
        ):
            return most
        return max(self._longest_in(page, codec) for page in dictionaries)

    def _longest_in(self, page: ParquetPage, codec: str) -> int:
        data = self._read(page.start, page.size)
        if codec != "UNCOMPRESSED":
            if codec not in _CODECS:
                return page.plain
            try:
                data = pa.decompress(data, page.plain, codec=_CODECS[codec], asbytes=True)
            except (pa.ArrowException, OSError) as ex:
                raise ValueError(f"a dictionary cannot be unpacked: {ex}") from ex
        return min(_longest_text(data), page.plain)


def _longest_text(data: bytes) -> int:
    """The bytes of the longest of texts that have their lengths in front, or 255 if none is
    longer."""
    length = struct.Struct("<I").unpack_from
    longest, at, last, follow = 0, 0, len(data) - 4, _short_texts(data)
    while at <= last:
        (size,) = length(data, at)
        if size > longest:
            longest = size
        at = follow.get(at, at + size + 4)
    return max(longest, _SHORT)


def _short_texts(data: bytes) -> dict[int, int]:
    """Begins and ends of runs of texts that are all short: one step in place of thousands. Bytes
    that look like a length begin a run; it counts only where a text before it ends."""
    values = np.frombuffer(data, np.uint8)
    if len(values) < _RUN_BYTES:
        return {}
    starts = np.flatnonzero((values[1:-2] | values[2:-1] | values[3:]) == 0)
    ends = starts + 4 + values[starts]
    breaks = np.flatnonzero(ends[:-1] != starts[1:])
    if len(breaks) > _MOST_BREAKS:
        return {}
    first = np.concatenate(([0], breaks + 1))
    last = np.concatenate((breaks, [len(ends) - 1]))
    return (
        dict(zip(starts[first].tolist(), ends[last].tolist(), strict=True)) if len(starts) else {}
    )


def most_of(weight: Weight, rows: int) -> int:
    """The most bytes of any ``rows`` values that are next to each other."""
    ends = np.cumsum(weight.values)
    costs = np.concatenate(
        ([0], np.cumsum(weight.plain + np.minimum(weight.values, rows) * weight.each))
    )
    first = np.arange(len(ends))
    last = np.minimum(np.searchsorted(ends, ends - 1 + rows), len(ends) - 1)
    return int((costs[last + 1] - costs[first]).max(initial=0))


def _weight_of(page: ParquetPage, width: int, longest: int, text: bool) -> tuple[int, int, int]:
    """The number of its values, its bytes, and the most bytes that one value takes beside them."""
    repeated = 0
    if text and page.encoding == Encoding.DELTA_BYTE_ARRAY:  # a text may begin like the one before
        repeated = page.plain
    elif text and page.encoding in (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY):
        repeated = longest
    return (0 if page.kind == PageKind.DICTIONARY else page.values), page.plain, width + repeated


def _joined(pages: list[tuple[int, int, int]]) -> Weight:
    columns = np.array(pages, np.int64).reshape(-1, 3)
    return Weight(columns[:, 0], columns[:, 1], columns[:, 2])
