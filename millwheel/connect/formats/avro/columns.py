"""Many Avro messages of one flat record decoded at once, field by field into columns.

Each field of all messages is read by a few calls of numpy, so that a message costs a fraction of a
microsecond. Everything else (nested types, most logical types, damaged bytes) is left to the
decoder of single messages; both must give the same results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.connect.formats.avro.schema import Schema
from millwheel.core.lazy_polars import dtype, pl

Ints = npt.NDArray[np.int64]
_WORD = 8  # Fixed: bytes of one
_SPARE = bytes(2 * _WORD)
_STOPS, _ONE = np.uint64(0x8080808080808080), np.uint64(1)
_SQUEEZED = (
    (np.uint64(0x007F007F007F007F), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(4)),
)
_SIZES = {"float": 4, "double": 8, "boolean": 1}  # Fixed: bytes, by Avro
_PLAIN_LOGICAL = frozenset(
    {"", "uuid", "time-micros", "timestamp-micros", "local-timestamp-micros"}
)
_TIMES = {
    ("int", "time-millis"): 1_000,
    ("long", "timestamp-millis"): 1_000,
    ("long", "local-timestamp-millis"): 1_000,
    ("long", "timestamp-nanos"): -1_000,
    ("long", "local-timestamp-nanos"): -1_000,
}
"""The conversion to µs: a factor or, if negative, a divisor."""
_AS = {
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "boolean": "bool",
    "string": "str",
}


class _DamagedError(Exception):
    """A message must be decoded by itself."""


@dataclass(frozen=True, slots=True)
class _Field:
    """``null`` is the number of the branch that is null, in a union of two; None: always there.
    ``times``: see :data:`_TIMES`."""

    name: str
    kind: str
    null: int | None = None
    times: int = 1


class AvroColumns:
    """Made by :func:`avro_columns`."""

    def __init__(self, fields: Sequence[_Field], declared: Mapping[str, str]) -> None:
        self._fields = fields
        self._declared = dict(declared)

    def frame(self, messages: Sequence[bytes], skip: int = 0) -> pl.DataFrame | None:
        """The declared fields of all messages; None when one of them does not match its schema. The
        first ``skip`` bytes of each are skipped."""
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        ends = np.cumsum(lengths)
        reading = _Reading(b"".join((*messages, _SPARE)), ends - lengths + skip, ends)
        by_name: dict[str, pl.Series] = {}
        try:
            for each in self._fields:
                column = reading.field(each, each.name in self._declared)
                if column is not None:
                    by_name[each.name] = column
            reading.finish()
        except _DamagedError:
            return None
        columns = []
        for name, kind in self._declared.items():
            series = by_name.get(name)
            whole = (
                pl.Series(name, [None], dtype(kind)).new_from_index(0, len(messages))
                if series is None
                else series
            )
            columns.append(whole.alias(name))
        return pl.DataFrame(columns)


def avro_columns(bare: Schema, full: Schema, declared: Mapping[str, str]) -> AvroColumns | None:
    """The decoder for messages of a parsed schema; None when they, or the ``declared`` fields, must
    be decoded one by one."""
    if not declared or not isinstance(full, dict) or full["type"] not in ("record", "error"):
        return None
    fields = []
    for field, plain in zip(full["fields"], bare["fields"], strict=True):
        avro_field = _field(field["name"], field["type"], plain["type"])
        if avro_field is None or declared.get(avro_field.name, _AS.get(avro_field.kind)) != _AS.get(
            avro_field.kind
        ):
            return None
        fields.append(avro_field)
    return AvroColumns(fields, declared)


def _field(name: str, full: Schema, bare: Schema) -> _Field | None:
    null = None
    if isinstance(bare, list):
        if len(bare) != 2 or bare.count("null") != 1:
            return None
        null = bare.index("null")
        full, bare = full[1 - null], bare[1 - null]
    logical = full.get("logicalType", "") if isinstance(full, dict) else ""
    kind = bare if isinstance(bare, str) else bare["type"]
    times = _TIMES.get((kind, logical), 1)
    if (times == 1 and logical not in _PLAIN_LOGICAL) or (kind not in _AS and kind != "bytes"):
        return None
    return _Field(name, kind, null, times)


class _Reading:
    """The reading offset of each message."""

    def __init__(self, data: bytes, at: Ints, ends: Ints) -> None:
        self._bytes = np.frombuffer(data, np.uint8)
        # A view of the eight bytes that begin at each offset: to gather numbers that lie anywhere.
        self._words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
        self._at = at
        self._ends = ends
        self._within()

    def finish(self) -> None:
        """Check that no bytes are left over."""
        if not np.array_equal(self._at, self._ends):
            raise _DamagedError

    def field(self, field: _Field, needed: bool) -> pl.Series | None:
        """Read the next field of all messages. Returns its values if they are ``needed``, else
        None."""
        there = None if field.null is None else self._there(field.null)
        if field.kind in ("int", "long"):
            values = self._varint(there)
            series = pl.Series(_in_us(values, field.times, there)) if needed else None
        elif field.kind in _SIZES:
            series = pl.Series(self._fixed(field.kind, there))
        else:
            begin, sizes = self._sized(there)
            series = (
                self._texts(begin, sizes) if field.kind == "string" else None
            )  # fields that are not requested may be damaged as well
        if not needed or series is None:
            return None
        return series if there is None else series.set(pl.Series(~there), None)

    def _within(self) -> None:
        if (self._at > self._ends).any():
            raise _DamagedError

    def _there(self, null: int) -> npt.NDArray[np.bool_]:
        branch = self._varint(None)
        if not ((branch == 0) | (branch == 1)).all():
            raise _DamagedError
        there: npt.NDArray[np.bool_] = branch != null
        return there

    def _move(self, by: Ints | int, there: npt.NDArray[np.bool_] | None) -> None:
        self._at = self._at + (by if there is None else np.where(there, by, 0))
        self._within()

    def _varint(self, there: npt.NDArray[np.bool_] | None) -> Ints:
        """Whole numbers: seven bits a byte, the lowest first, the sign in the lowest bit."""
        words = self._words[self._at]
        stops = ~words & _STOPS
        lowest = stops & (~stops + _ONE)
        bits = words & (lowest - _ONE)  # a word without a stop keeps all its bits
        size = (np.bitwise_count(lowest - _ONE).astype(np.int64) + 1) >> 3
        for mask, by in _SQUEEZED:
            bits = (bits & mask) | ((bits & (mask << (by * np.uint64(7)) << by)) >> by)
        if not stops.all():
            self._long(np.flatnonzero(stops == 0), bits, size, there)
        self._move(size, there)
        values: Ints = (bits >> _ONE).view(np.int64) ^ -(bits & _ONE).view(np.int64)
        return values

    def _long(
        self,
        rows: Ints,
        bits: npt.NDArray[np.uint64],
        size: Ints,
        there: npt.NDArray[np.bool_] | None,
    ) -> None:
        """Numbers of nine and ten bytes."""
        ninth, tenth = self._bytes[self._at[rows] + _WORD], self._bytes[self._at[rows] + _WORD + 1]
        longer = ninth >= 128
        bad = longer & (tenth > 1)
        if (bad if there is None else bad & there[rows]).any():
            raise _DamagedError
        top = (ninth & 127).astype(np.uint64) << np.uint64(56)
        bits[rows] |= top | np.where(longer, tenth.astype(np.uint64) << np.uint64(63), np.uint64(0))
        size[rows] = np.where(longer, 10, 9)

    def _fixed(self, kind: str, there: npt.NDArray[np.bool_] | None) -> npt.NDArray[Any]:
        begin, size = self._at, _SIZES[kind]
        self._move(size, there)
        if there is not None:
            begin = np.where(there, begin, 0)
        values: npt.NDArray[Any] = self._words[begin].view(np.float64)
        if kind == "float":
            with np.errstate(invalid="ignore"):  # of NaNs that signal
                values = self._words[begin].astype(np.uint32).view(np.float32).astype(np.float64)
        if kind == "boolean":
            values = self._bytes[begin]
            if ((values > 1) if there is None else (values > 1) & there).any():
                raise _DamagedError
            values = values.astype(np.bool_)
        return values

    def _sized(self, there: npt.NDArray[np.bool_] | None) -> tuple[Ints, Ints]:
        """The offsets of text or bytes, and their lengths."""
        sizes = self._varint(there)
        if there is not None:
            sizes = np.where(there, sizes, 0)
        begin = self._at
        if ((sizes < 0) | (sizes > self._ends - begin)).any():
            raise _DamagedError
        self._move(sizes, None)
        return begin, sizes

    def _texts(self, begin: Ints, sizes: Ints) -> pl.Series:
        import pyarrow as pa

        offsets = np.concatenate(([0], np.cumsum(sizes)))
        data = self._bytes[np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], sizes)]
        firsts = data[offsets[:-1][sizes > 0]]
        # A text that begins in the middle of a character is damaged, although all of them together
        # may not be.
        if (firsts & 0xC0 == 0x80).any():
            raise _DamagedError
        try:
            data.tobytes().decode()
        except UnicodeDecodeError as ex:
            raise _DamagedError from ex
        texts = pa.LargeStringArray.from_buffers(
            len(sizes), pa.py_buffer(offsets), pa.py_buffer(data)
        )
        return pl.Series(pl.from_arrow(texts))


def _in_us(values: Ints, times: int, there: npt.NDArray[np.bool_] | None) -> Ints:
    if times < 0:
        return values // -times
    most = np.iinfo(np.int64).max // times
    beyond = (values > most) | (values < -most)
    if times > 1 and (beyond if there is None else beyond & there).any():
        raise _DamagedError
    return values * times if times > 1 else values
