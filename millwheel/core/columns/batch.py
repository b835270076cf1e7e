"""Records of one stream as columns: the form of a bundle when no single record has to be looked
at."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from millwheel.core.lazy_polars import pl
from millwheel.core.model.damage import DAMAGE, is_panic
from millwheel.core.model.keys import Key, key_from_bytes
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.errors import CorruptionError, InvariantError

Int64s = npt.NDArray[np.int64]
Compression = Literal["uncompressed", "lz4"]

COLUMN_WEIGHT = 16
"""The number of records in columns that take the credit of one row, because they cost about as
much."""
ID_TYPES = ("int", "str")
"""The types of the fields whose external ids columns carry."""
_INT64 = 2**63  # Fixed: integers from here on are not an int64
_SMALL = 1_000
"""A batch of fewer records is never split."""


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """The column form of a :class:`Batch`, which documents the parts.

    ``frame`` has the fields (Int64, Float64, String, Boolean; null where a value is None), ``keys``
    is Int64 or String, or a Struct of them for keys that are tuples. ``seqs`` is empty for
    unnumbered records. ``ids`` is Int64 or String, null for a record without an id.
    """

    stream: str
    seqs: Int64s
    timestamps: Int64s
    keys: pl.Series
    frame: pl.DataFrame
    born_us: int = 0
    ids: pl.Series | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def last_seq(self) -> int:
        """The number of the last record; 0 when they are unnumbered, or none."""
        return int(self.seqs[-1]) if len(self.seqs) else 0

    @property
    def earliest(self) -> int:
        """The lowest timestamp (MAX_TIME: no records)."""
        return int(self.timestamps.min()) if len(self.timestamps) else MAX_TIME

    @property
    def weight(self) -> int:
        """The credit between two shards that the records take."""
        return len(self.timestamps) // COLUMN_WEIGHT + 1

    def after(self, seq: int) -> ColumnBatch:
        """The records with a number beyond ``seq``; all of them when they are unnumbered."""
        if not len(self.seqs) or self.seqs[0] > seq:
            return self
        return self.part(int(np.searchsorted(self.seqs, seq, side="right")), len(self))

    def part(self, start: int, end: int) -> ColumnBatch:
        """The records from ``start`` to ``end``."""
        return replace(
            self,
            seqs=self.seqs[start:end],
            timestamps=self.timestamps[start:end],
            keys=self.keys[start:end],
            frame=self.frame[start:end],
            ids=None if self.ids is None else self.ids[start:end],
        )

    def where(self, mask: npt.NDArray[np.bool_]) -> ColumnBatch:
        """The records for which ``mask`` is true."""
        picked = pl.Series(mask)
        return replace(
            self,
            seqs=self.seqs[mask] if len(self.seqs) else self.seqs,
            timestamps=self.timestamps[mask],
            keys=self.keys.filter(picked),
            frame=self.frame.filter(picked),
            ids=None if self.ids is None else self.ids.filter(picked),
        )

    def split(self, numbers: npt.NDArray[np.int32]) -> list[tuple[int, ColumnBatch]]:
        """(number, its records in order) for each different number of ``numbers``, in order, in one
        pass over the columns. ``numbers`` has one for each record."""
        names = [str(position) for position in range(self.frame.width)]
        columns = [
            column.alias(name) for name, column in zip(names, self.frame.get_columns(), strict=True)
        ]
        columns += [
            pl.Series(_TIME, self.timestamps),
            self.keys.alias(_KEY),
            pl.Series(_PART, numbers),
        ]
        if len(self.seqs):
            columns.append(pl.Series(_SEQ, self.seqs))
        if self.ids is not None:
            columns.append(self.ids.alias(_ID))
        parts = pl.DataFrame(columns).partition_by(_PART, as_dict=True)
        return [
            (number, self._part(part, names))
            for (number,), part in sorted(parts.items(), key=lambda item: item[0])
        ]

    def _part(self, part: pl.DataFrame, names: Sequence[str]) -> ColumnBatch:
        seqs = part[_SEQ].to_numpy() if len(self.seqs) else self.seqs
        fields = zip(self.frame.columns, names, strict=True)
        return replace(
            self,
            seqs=seqs,
            timestamps=part[_TIME].to_numpy(),
            keys=part[_KEY].alias(self.keys.name),
            frame=pl.DataFrame([part[name].alias(field) for field, name in fields]),
            ids=None if self.ids is None else part[_ID],
        )

    def pieces(self, most: int) -> Iterator[ColumnBatch]:
        """The records in order, in batches of about ``most`` bytes."""
        count = len(self.timestamps)
        size = self.frame.estimated_size() if count > _SMALL else 0
        rows = count if size <= most else max(count * most // int(size), 1)
        if rows >= count:
            yield self
            return
        for start in range(0, count, rows):
            yield self.part(start, start + rows)

    def named(self, stream: str) -> ColumnBatch:
        """The same records of another stream."""
        return replace(self, stream=stream)

    def rows(self) -> Batch:
        """The same records as dicts."""
        return Batch(
            self.stream,
            self.seqs.tolist(),
            self.timestamps.tolist(),
            key_list(self.keys),
            self.frame.to_dicts(),
            None if self.ids is None else self.ids.to_list(),
            self.born_us,
        )


AnyBatch = Batch | ColumnBatch


def key_column(parts: Sequence[pl.Series]) -> pl.Series:
    """A column of keys that are read from one field or, as tuples, from several."""
    return parts[0] if len(parts) == 1 else pl.DataFrame(parts).to_struct(_KEY)


def fits_key(part: Any, kind: Any) -> bool:
    """Whether a key, or a part of one, may be in a column of this type."""
    if kind == pl.String:
        return type(part) is str
    return bool(kind == pl.Int64) and type(part) is int and -_INT64 <= part < _INT64


def key_list(keys: pl.Series) -> list[Key]:
    """The keys of a column, as :class:`Batch` has them. Keys of any kind may be encoded in it."""
    if keys.dtype == pl.Binary:
        return [key_from_bytes(key) for key in keys]
    if isinstance(keys.dtype, pl.Struct):
        return list(zip(*(part.to_list() for part in keys.struct.unnest()), strict=True))
    return keys.to_list()


def joined(batches: Sequence[ColumnBatch]) -> ColumnBatch:
    """The records of several batches of one stream, unnumbered and without their ids."""
    if len(batches) == 1:
        return batches[0]
    # They get the stream of the first batch: records of another one would be taken for its own.
    if any(batch.stream != batches[0].stream for batch in batches):
        raise InvariantError(f"records of {batches[0].stream} are joined with those of another")
    return ColumnBatch(
        batches[0].stream,
        np.array([], np.int64),
        np.concatenate([batch.timestamps for batch in batches]),
        pl.concat([batch.keys for batch in batches]),
        pl.concat([batch.frame for batch in batches]),
    )


COLUMNS_MARK = b"\xc1"
"""The first byte of a batch in columns. msgpack never uses it, so it cannot be mistaken for a batch
in rows."""


class _Plain(msgspec.Struct, array_like=True):
    """A column of numbers without nulls, as they lie in memory."""

    position: int
    name: str
    floats: bool
    values: bytes


class _Form(msgspec.Struct, array_like=True):
    stream: str
    seqs: bytes
    timestamps: bytes
    keys: bytes
    frame: bytes
    born_us: int
    ids: bytes = b""
    key_fields: tuple[str, ...] = ()
    """The fields that are the keys; ``keys`` is then empty."""
    plain: tuple[_Plain, ...] = ()
    """Columns of the frame that are not in ``frame``."""
    plain_keys: tuple[_Plain, ...] = ()
    """The keys, if they are not in ``keys``."""


_BYTES, _ARRAY, _SIZE = b"\xc6", b"\xdd", 4  # Fixed: msgpack's marks, and the bytes of a size
_DIGEST = 8  # Fixed: bytes of the checksum in the stored form
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Form).decode
_KEY, _TIME, _SEQ, _PART, _ID = "key", "time", "seq", "part", "id"


def encode_columns(batch: ColumnBatch, packed: bool = False) -> bytes:
    """Encode for the wire, or ``packed`` for the store: packing a megabyte takes less time than
    writing it."""
    return b"".join(columns_pieces(batch, packed))


def columns_pieces(batch: ColumnBatch, packed: bool = False) -> list[bytes]:
    """:func:`encode_columns` in pieces. Pieces of numbers are views of the columns: nothing is
    copied."""
    # The receiver refuses such a batch as damaged, and the sender repeats it for ever.
    count = len(batch.timestamps)
    if {len(batch.keys), batch.frame.height} != {count} or len(batch.seqs) not in (0, count):
        raise InvariantError(f"{count} records of {batch.stream} have columns of other lengths")
    compression: Compression = "lz4" if packed else "uncompressed"
    key_fields = _key_fields(batch)
    keys = pl.DataFrame() if key_fields else batch.keys.alias(_KEY).to_frame()
    # Numbers go as they are. Arrow's form of them is three copies away.
    plain, plain_keys = ((), ()) if packed else (_plain_of(batch.frame), _plain_of(keys))
    rest = batch.frame.drop([column.name for column in plain]) if plain else batch.frame
    form = _Form(
        batch.stream,
        _view(batch.seqs),
        _view(batch.timestamps),
        b"" if key_fields or plain_keys else frame_bytes(keys, compression),
        b"" if plain and not rest.width else frame_bytes(rest, compression),
        batch.born_us,
        b"" if batch.ids is None else frame_bytes(batch.ids.alias(_ID).to_frame(), compression),
        key_fields,
        plain,
        plain_keys,
    )
    pieces = [b"", *_pieces(form)]
    digest = xxhash.xxh3_64()
    for piece in pieces:
        digest.update(piece)
    pieces[0] = COLUMNS_MARK + digest.digest()
    return pieces


def _pieces(value: Any) -> Iterator[bytes]:
    """The value in msgpack, with its bytes as they are."""
    if isinstance(value, (bytes, memoryview)):
        yield _BYTES + len(value).to_bytes(_SIZE, "big")
        yield value  # type: ignore[misc]
    elif isinstance(value, (tuple, _Form, _Plain)):
        parts = value if isinstance(value, tuple) else msgspec.structs.astuple(value)
        yield _ARRAY + len(parts).to_bytes(_SIZE, "big")
        for part in parts:
            yield from _pieces(part)
    else:
        yield _encode(value)


def _plain_of(frame: pl.DataFrame) -> tuple[_Plain, ...]:
    return tuple(
        _Plain(position, column.name, column.dtype == pl.Float64, _view(column.to_numpy()))
        for position, column in enumerate(frame.get_columns())
        if column.dtype in (pl.Int64, pl.Float64) and not column.null_count()
    )


def _view(numbers: npt.NDArray[Any]) -> bytes:
    """A view of their bytes."""
    return np.ascontiguousarray(numbers).view(np.uint8).data  # type: ignore[return-value]


def decode_columns(data: bytes | memoryview) -> ColumnBatch:
    """The inverse of :func:`encode_columns`; CorruptionError when the bytes are not a batch.
    Arrow's reader trusts its input, so the checksum is verified first."""
    body = memoryview(data)[1 + _DIGEST :]
    if xxhash.xxh3_64_digest(body) != data[1 : 1 + _DIGEST]:
        raise CorruptionError(
            f"a delivery of {len(data)} bytes is not a batch of columns: it fails its checksum"
        )
    try:
        form = _decode(body)
        seqs, timestamps = (
            np.frombuffer(form.seqs, np.int64),
            np.frombuffer(form.timestamps, np.int64),
        )
        frame = _with_plain(frame_from(form.frame) if form.frame else pl.DataFrame(), form.plain)
        keys = _keys_from(form, frame)
        ids = frame_from(form.ids)[_ID] if form.ids else None
    except (CorruptionError, *DAMAGE) as ex:
        raise CorruptionError(
            f"a delivery of {len(data)} bytes is not a batch of columns: {ex}"
        ) from ex
    count = len(timestamps)
    lengths = {len(keys), frame.height, count, count if ids is None else len(ids)}
    if keys.columns != [_KEY] or lengths != {count} or len(seqs) not in (0, count):
        raise CorruptionError(
            f"a delivery on stream {form.stream!r} has columns of different lengths"
        )
    return ColumnBatch(form.stream, seqs, timestamps, keys[_KEY], frame, form.born_us, ids)


def _with_plain(frame: pl.DataFrame, plain: Sequence[_Plain]) -> pl.DataFrame:
    if not plain:
        return frame
    columns = frame.get_columns()
    for each in plain:
        values = np.frombuffer(each.values, np.float64 if each.floats else np.int64)
        columns.insert(each.position, pl.Series(each.name, values))
    try:
        return pl.DataFrame(columns)
    except pl.exceptions.PolarsError as ex:
        raise CorruptionError(f"its columns are not a frame: {ex}") from ex


def _key_fields(batch: ColumnBatch) -> tuple[str, ...]:
    """The fields that the keys were read from, if the records have them still."""
    keys, fields = batch.keys, batch.frame
    names = keys.struct.fields if isinstance(keys.dtype, pl.Struct) else [keys.name]
    if not set(names) <= set(fields.columns):
        return ()
    parts = keys.struct.unnest() if isinstance(keys.dtype, pl.Struct) else [keys]
    same = all(
        part.dtype == fields[part.name].dtype and part.equals(fields[part.name]) for part in parts
    )
    return tuple(names) if same else ()


def _keys_from(form: _Form, frame: pl.DataFrame) -> pl.DataFrame:
    if not form.key_fields:
        return _with_plain(frame_from(form.keys) if form.keys else pl.DataFrame(), form.plain_keys)
    if missing := set(form.key_fields) - set(frame.columns):
        raise CorruptionError(f"no field {min(missing)!r}, which is a key")
    return key_column([frame[name] for name in form.key_fields]).alias(_KEY).to_frame()


def frame_bytes(frame: pl.DataFrame, compression: Compression = "uncompressed") -> bytes:
    """A frame as an Arrow stream."""
    buffer = io.BytesIO()
    # As offsets and bytes. Views of text in structs would come with all the text of the frame that
    # they were cut from, however few of them are left.
    frame.write_ipc_stream(buffer, compression=compression, compat_level=pl.CompatLevel.oldest())
    return buffer.getvalue()


def frame_from(data: bytes) -> pl.DataFrame:
    """The inverse of :func:`frame_bytes`; CorruptionError when the bytes are not a frame."""
    try:
        return pl.read_ipc_stream(io.BytesIO(data), use_pyarrow=False)
    except (pl.exceptions.PolarsError, OSError, ValueError) as ex:
        raise CorruptionError(f"{len(data)} bytes are not an Arrow stream: {ex}") from ex
    except BaseException as ex:
        if is_panic(ex):
            raise CorruptionError(f"{len(data)} bytes are not an Arrow stream: {ex}") from ex
        raise
