"""The byte formats of batches and commits: msgpack, with packed integer columns.

Values inside a batch are kept as they were encoded when they were produced (``msgspec.Raw``), so
that a production is encoded once for the journal, the store and the wire, and every consumer
decodes its own copy.

Decoders count the levels of a value together with the calls that they are in, so a value that can
just be read can be undecodable for the next process, whose calls are a little deeper. So a limit
far below theirs is checked where a value comes in (``nests_too_deeply``), and protects all later
readers."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec
import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import (
    COLUMNS_MARK,
    AnyBatch,
    ColumnBatch,
    columns_pieces,
    decode_columns,
    encode_columns,
)
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.keys import check_key
from millwheel.core.model.limits import DELIVERY_BYTES
from millwheel.core.model.names import ShardName, Token
from millwheel.core.model.records import Batch
from millwheel.errors import CorruptionError, InvariantError, RecordError, invariant

Ints = list[int] | npt.NDArray[np.int64]

encode_value = msgspec.msgpack.Encoder().encode
decode_value = msgspec.msgpack.Decoder().decode


class _BatchForm(msgspec.Struct, array_like=True):
    """``keys`` are packed where they are many numbers, else a list."""

    stream: str
    seqs: bytes
    timestamps: bytes
    keys: Any
    values: msgspec.Raw
    ids: Any
    born_us: int
    labels: bytes = b""


_FEW_BYTES = 64 * 8
"""The most numbers for which a list is quicker than an array."""


class Commit(msgspec.Struct, array_like=True, frozen=True):
    """One commit of one shard, in the form in which the journal stores it: the changes of the
    shard's store.

    ``number`` counts the commits of the shard from 1 across all its owners.
    """

    shard: ShardName
    token: Token
    number: int
    puts: list[tuple[bytes, bytes]]
    deletes: list[bytes]


_raw: Callable[[bytes], msgspec.Raw] = msgspec.Raw
_encode = msgspec.msgpack.Encoder().encode
_decode_batch = msgspec.msgpack.Decoder(_BatchForm).decode
_decode_commit = msgspec.msgpack.Decoder(Commit).decode
_ARRAY_OF_5, _STR8, _FIXED_MAP, _UINT8, _UINT64 = b"\x95", 0xD9, 0x80, 0xCC, 0xCF
_FIXED_ARRAY, _ARRAY16, _ARRAY32 = 0x90, 0xDC, 0xDD


def encode_commit(commit: Commit) -> bytes:
    """A journal entry."""
    return _encode(commit)


def commits_prefix(shard: ShardName, token: Token) -> bytes:
    """The beginning of the commits of a shard under a token in a journal."""
    return _ARRAY_OF_5 + _encode(shard) + _encode(token)


def number_of_commit(data: bytes, prefix: bytes) -> int:
    """The number of an encoded commit that begins with ``prefix``, see :func:`commits_prefix`; -1
    for bytes that are not a commit. Takes a tenth of the time of decoding."""
    at = len(prefix)
    head = data[at] if len(data) > at else 0xFF
    if head < _UINT8:
        return head if head < _FIXED_MAP else -1
    size = 1 << (head - _UINT8)
    return int.from_bytes(data[at + 1 : at + 1 + size], "big") if head <= _UINT64 else -1


FULL_STOP = b"\xc0"
"""A journal entry that is not a commit of any shard. A group is certain once another one is behind
it; where no commits follow, a group with this entry does."""


def shard_of_commit(data: bytes) -> bytes:
    """The beginning of an encoded commit up to the name of the shard: equal for commits of one
    shard only. For bytes that are not a commit it is some other beginning. Much cheaper than
    decoding."""
    head = data[1:3]
    if not head or head[0] < _STR8:  # a text of up to 31 bytes has its length in the first byte
        return data[: 2 + (head[0] & 31 if head else 0)]
    return data[: 3 + head[1]] if len(head) > 1 else data


def decode_commit(data: bytes) -> Commit:
    """The inverse of :func:`encode_commit`; CorruptionError when the bytes are not a commit."""
    try:
        return _decode_commit(data)
    except DAMAGE as ex:
        raise CorruptionError(
            f"a journal entry of {len(data)} bytes passed its checksum but is not a commit: {ex}"
        ) from ex


def pack_ints(numbers: Ints) -> bytes:
    """int64 values as little-endian bytes (all supported platforms are little-endian)."""
    return array("q", numbers).tobytes() if isinstance(numbers, list) else numbers.tobytes()


def unpack_ints(data: bytes) -> list[int]:
    """The inverse of :func:`pack_ints`."""
    numbers = array("q")
    numbers.frombytes(data)
    return numbers.tolist()


def encode_batch(batch: AnyBatch) -> bytes:
    """A batch for the wire or the store. Values that are not ``Raw`` yet are encoded here."""
    if isinstance(batch, ColumnBatch):
        return encode_columns(batch)
    keys = batch.held_keys if batch.numbers is None else pack_ints(batch.numbers)
    seqs, timestamps = pack_ints(batch.held_seqs), pack_ints(batch.held_timestamps)
    # The receiver refuses such a batch as damaged, and the sender repeats it for ever.
    if len(seqs) not in (0, len(timestamps)) or len(keys) not in (len(batch), len(timestamps)):
        raise InvariantError(f"records of {batch.stream} have columns of different lengths")
    form = (batch.stream, seqs, timestamps, keys, batch.held_values, batch.ids, batch.born_us)
    return _encode(form if batch.labels is None else (*form, pack_ints(batch.labels)))


def batch_pieces(batch: AnyBatch) -> Sequence[bytes]:
    """:func:`encode_batch` in pieces, which saves a copy."""
    return columns_pieces(batch) if isinstance(batch, ColumnBatch) else [encode_batch(batch)]


def decode_batch(data: bytes | memoryview) -> AnyBatch:
    """The inverse of :func:`encode_batch`, with values still encoded (``Raw``) and keys as they
    were. Columns that came in a view may be parts of it.

    Raises CorruptionError when the bytes are not a batch or its columns differ in length.
    """
    if data[:1] == COLUMNS_MARK:
        return decode_columns(data)
    data = bytes(data)  # values are parts of it, and may be kept for long
    try:
        form = _decode_batch(data)
        seqs, timestamps = _numbers(form.seqs), _numbers(form.timestamps)
        labels = _numbers(form.labels) if form.labels else None
        keys = np.frombuffer(form.keys, np.int64) if type(form.keys) is bytes else _batch_keys(form)
    except DAMAGE as ex:
        raise CorruptionError(f"a delivery of {len(data)} bytes is not a batch: {ex}") from ex
    ids = form.ids
    lengths = {len(timestamps), _length(form.values), len(seqs) or len(timestamps)}
    lengths.add(-1 if keys is None else len(keys))
    if ids is not None:
        lengths.add(len(ids) if type(ids) is list else -1)
    if labels is not None:
        lengths.add(len(labels))
    if len(lengths) != 1 or keys is None:
        raise CorruptionError(
            f"a delivery on stream {form.stream!r} has columns of different lengths"
        )
    return Batch(
        form.stream, seqs, timestamps, keys, form.values, ids, form.born_us, len(data), labels
    )


def _numbers(data: bytes) -> Ints:
    return np.frombuffer(data, np.int64) if len(data) > _FEW_BYTES else unpack_ints(data)


def _length(values: msgspec.Raw) -> int:
    """How many elements an encoded array has; -1 for anything else."""
    head = bytes(memoryview(values)[:5])
    if head[0] & 0xF0 == _FIXED_ARRAY:
        return head[0] & 0x0F
    size = {_ARRAY16: 2, _ARRAY32: 4}.get(head[0])
    return -1 if size is None else int.from_bytes(head[1 : 1 + size], "big")


def deliveries(batch: AnyBatch, most: int = DELIVERY_BYTES) -> list[AnyBatch]:
    """The batch in pieces of about ``most`` bytes, in order: itself if it is small. No record is
    cut."""
    if isinstance(batch, ColumnBatch):
        return list(batch.pieces(most))
    if batch.size <= most:
        return [batch]
    raws = [
        value if type(value) is msgspec.Raw else _raw(encode_value(value)) for value in batch.values
    ]
    held = batch.held_seqs, batch.held_timestamps, batch.held_keys
    whole = Batch(batch.stream, *held, raws, batch.ids, batch.born_us, batch.size, batch.labels)
    pieces: list[AnyBatch] = []
    start, size = 0, 0
    for index, raw in enumerate([*raws, None]):
        if raw is None or (index > start and size + len(raw) > most):
            piece = whole.pick(list(range(start, index)))
            piece.size = size
            pieces.append(piece)
            start, size = index, 0
        size += 0 if raw is None else len(raw)
    # A record in no piece would never be sent, and its chunk would be done without it.
    invariant(
        sum(map(len, pieces)) == len(batch),
        f"{len(batch)} records of {batch.stream} are cut into {list(map(len, pieces))}",
    )
    return pieces


def _batch_keys(form: _BatchForm) -> list[Any] | None:
    """The keys of a delivery, None when they are not a list. Raises CorruptionError for values that
    cannot be keys: they would end the worker much later, where their origin is unknown."""
    keys = form.keys
    if type(keys) is not list:
        return None
    if _KEY_KINDS.issuperset(map(type, keys)):
        return keys
    try:
        return [check_key(key) for key in keys]
    except (RecordError, RecursionError) as ex:
        raise CorruptionError(
            f"a delivery on stream {form.stream!r} has an invalid key: {ex}"
        ) from ex


_KEY_KINDS = frozenset({str, int, bytes})


def tuple_key(key: Any) -> Any:
    """msgpack has no tuples: lists inside keys become tuples again."""
    return tuple(tuple_key(part) for part in key) if type(key) is list else key


def stream_decoder(kinds: Mapping[str, Any]) -> Callable[[str, list[Any] | msgspec.Raw], list[Any]]:
    """(stream, received values) -> values for a consumer: ``Raw`` ones are decoded, into the type
    that ``kinds`` names for the stream, others (from a source in the same process) stay as they
    are."""
    plain = _decode_list(Any)
    typed = {stream: _decode_list(kind) for stream, kind in kinds.items()}

    def decode(stream: str, values: list[Any] | msgspec.Raw) -> list[Any]:
        if not isinstance(values, msgspec.Raw) and (
            not values or type(values[0]) is not msgspec.Raw
        ):
            return values
        return typed.get(stream, plain)(values)

    return decode


def handed_out(
    batch: Batch, decode: Callable[[str, list[Any] | msgspec.Raw], list[Any]]
) -> list[Any]:
    """The values of a batch for a caller that may change them, as user code may: the batch keeps
    them encoded, for a retry, a dead letter, or another owner. Encoding them takes a tenth of the
    time of copying them."""
    held = batch.held_values
    if not are_objects(held):
        return decode(batch.stream, held)
    batch.keep_encoded(_raw(encode_value(held)))
    return held


def apart(batch: Batch) -> Batch:
    """The same records, whose values share no object with those of the batch."""
    values = batch.held_values
    if not are_objects(values):
        return batch
    copy = batch.named(batch.stream)
    copy.keep_encoded(_raw(encode_value(values)))
    return copy


def are_objects(values: list[Any] | msgspec.Raw) -> TypeGuard[list[Any]]:
    """Whether values are as their source has read them, and not encoded."""
    return (
        not isinstance(values, msgspec.Raw)
        and len(values) > 0
        and type(values[0]) is not msgspec.Raw
    )


def _decode_list(kind: Any) -> Callable[[list[Any] | msgspec.Raw], list[Any]]:
    """Decodes encoded values as one msgpack array: one call for all of them takes half the time of
    a call for each."""
    decode: Callable[[Any], list[Any]] = msgspec.msgpack.Decoder(list[kind]).decode
    joined = b"".join
    return lambda values: decode(
        joined((b"\xdd", len(values).to_bytes(4, "big"), *values))
        if isinstance(values, list)
        else values
    )


MOST_NESTING = 500
"""Half of the levels that Python's decoders take: dead letters, rows of windows and messages wrap a
value in a few levels more."""
_OPENERS = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])
"""Fixed: the bytes of msgpack with which a list or a map begins. Text and numbers may have them,
too."""
_decode_nested = msgspec.msgpack.Decoder().decode
_encode_nested = msgspec.msgpack.Encoder().encode


def nests_too_deeply(data: bytes, most: int = MOST_NESTING) -> bool:
    """Whether an encoded value has more than ``most`` levels of lists and maps. It has at least as
    many bytes that could open one; nearly all values have fewer, and are not decoded."""
    if len(data) <= most or len(data) - len(data.translate(None, _OPENERS)) <= most:
        return False
    try:
        value = _decode_nested(data)
        # The encoder is faster: most values that are checked here are long, and not deep.
        return not (most >= MOST_NESTING and all_nest_little([value])) and not _within(value, most)
    except RecursionError:
        return True


def all_nest_little(values: list[Any]) -> bool:
    """Whether the encoder takes all values within so many further levels. True proves that they are
    within the limit; False proves nothing. Costs as much as encoding them."""
    around: Any = values
    for _ in range(MOST_NESTING):
        around = [around]
    try:
        _encode_nested(around)
    except RecursionError:
        return False
    return True


def _within(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most + 1):
        level = [
            part
            for each in level
            if type(each) is list or type(each) is dict
            for part in _parts(each)
        ]
        if not level:
            return True
    return False


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if type(value) is dict else value
