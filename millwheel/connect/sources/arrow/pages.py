"""Pages of Parquet files, by their own headers: the metadata of a file may be wrong about them.

A header is a struct of Thrift's compact protocol. Only the fields that bound the memory of a page
are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

ReadAt = Callable[[int, int], bytes]
"""Returns up to so many bytes (the second argument) from an offset (the first) of the file on."""
_FIRST_BYTES = 512  # read for a header; nearly all fit
_HEADER_BYTES = 16 << 20  # of a header: Arrow reads no larger one
_DEEPEST = 16  # structs in a header: real ones are far flatter
_LONGEST_NUMBER = 10  # Fixed: bytes of one
_TRUE, _FALSE, _BYTE, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 6, 7, 8, 9, 10, 12
"""Fixed: types of Thrift's compact protocol; those from a byte to 64 bits are next to each
other."""


class PageKind(IntEnum):
    """Fixed: of Parquet."""

    DATA = 0
    INDEX = 1
    DICTIONARY = 2
    DATA_V2 = 3


_NUMBERS_OF_VALUES: dict[int, tuple[int, int]] = {
    PageKind.DATA: (5, 2),
    PageKind.DICTIONARY: (7, 2),
    PageKind.DATA_V2: (8, 4),
}
"""Fixed: the fields of a header and, within, of the encoding of values."""


class Encoding(IntEnum):
    """Fixed: of Parquet. Those with which a few bytes stand for many."""

    PLAIN_DICTIONARY = 2
    DELTA_BYTE_ARRAY = 7
    RLE_DICTIONARY = 8


class ChunkSpan(NamedTuple):
    """The position of the pages of a column of a row group, and the number of values they claim."""

    start: int
    size: int
    values: int


class ParquetPage(NamedTuple):
    """A page: its values, their encoding, its unpacked size, and the position of its packed
    bytes."""

    kind: int
    values: int
    encoding: int
    plain: int
    start: int
    size: int


def span_of(column: Any) -> ChunkSpan:
    """The pages of a column, from its metadata, as Arrow finds them."""
    start, dictionary = column.data_page_offset, column.dictionary_page_offset
    if column.has_dictionary_page and dictionary and 0 < dictionary < start:
        start = dictionary
    return ChunkSpan(start, column.total_compressed_size, column.num_values)


def pages_of(read: ReadAt, span: ChunkSpan) -> Iterator[ParquetPage]:
    """The pages of a column, up to the last that its reader would read. Raises ValueError for
    damaged headers."""
    at, end, values = span.start, span.start + span.size, 0
    if at < 0 or span.size < 0:
        raise ValueError("its pages lie outside of the file")
    while at < end and values < span.values:
        page = _page(read, at, end)
        yield page
        at = page.start + page.size
        if page.kind in (PageKind.DATA, PageKind.DATA_V2):
            values += page.values


def _page(read: ReadAt, at: int, end: int) -> ParquetPage:
    size = _FIRST_BYTES
    while True:
        data = read(at, min(size, end - at))
        try:
            header, used = _struct(data, 0, _DEEPEST)
            break
        except IndexError:
            if len(data) < size or size > _HEADER_BYTES:
                raise ValueError(f"the page at byte {at} has no whole header") from None
            size *= 16
    kind, plain, packed = (header.get(number) for number in (1, 2, 3))
    if not (isinstance(kind, int) and isinstance(plain, int) and isinstance(packed, int)):
        raise ValueError(f"the header of the page at byte {at} lacks a size")
    if min(plain, packed) < 0 or at + used + packed > end:
        raise ValueError(f"the page at byte {at} claims {packed} bytes that become {plain}")
    values, encoding = _values(header, kind)
    if values < 0:
        raise ValueError(f"the page at byte {at} claims {values} values")
    return ParquetPage(kind, values, encoding, plain, at + used, packed)


def _values(header: dict[int, Any], kind: int) -> tuple[int, int]:
    number, encoding = _NUMBERS_OF_VALUES.get(kind, (0, 0))
    own = header.get(number)
    if not isinstance(own, dict):
        return 0, 0
    return int(own.get(1, 0)), int(own.get(encoding, 0))


def _struct(data: bytes, at: int, deepest: int) -> tuple[dict[int, Any], int]:
    """The numbers and structs of a struct, by their fields. Raises IndexError where bytes are
    missing."""
    if not deepest:
        raise ValueError("a header is nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _number(data, at)
        fields[number], at = _value(data, at, head & 15, deepest)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, deepest: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if _BYTE < kind <= _I64:
        return _number(data, at)
    if kind == _STRUCT:
        return _struct(data, at, deepest - 1)
    if kind == _BINARY:
        size, at = _varint(data, at)
        return None, _within(data, at + size)
    if kind in (_BYTE, _DOUBLE):
        return None, _within(data, at + (1 if kind == _BYTE else 8))
    if kind in (_LIST, _SET):
        return None, _skip_list(data, at, deepest)
    raise ValueError(f"a header has a value of the type {kind}, which none has")


def _skip_list(data: bytes, at: int, deepest: int) -> int:
    size, kind = data[at] >> 4, data[at] & 15
    at += 1
    if size == 15:  # Fixed: a longer list
        size, at = _varint(data, at)
    for _ in range(size):
        at = at + 1 if kind in (_TRUE, _FALSE) else _value(data, at, kind, deepest - 1)[1]
        _within(data, at)
    return at


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError
    return at


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for index in range(1, _LONGEST_NUMBER):
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError("a number has no end")
