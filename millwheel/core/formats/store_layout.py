"""The layout of a shard's store. One byte gives the kind of an entry; per-key entries are ordered
by hash, so that a split is a range of every family.

    m                                   meta: commit number, next sequence number, counters
    c <channel>                         highest sequence number applied from a channel
    s <hash> <key> <state> [<part>]     user state
    t <hash> <key> <domain> <tag>       timers
    d <bucket> <hash> <digest>          an external id seen, by bucket of event time, that is in no
                                        run
    v <bucket> <number> <shard>         external ids seen: a run of many of them, under its writer
    z <bucket> <number> <shard>         values of a dictionary: a run of many of them, under its
                                        writer
    p <chunk>                           pending productions
    o <partition>                       source: committed position of a partition
    e                                   source: it was ordered to read nothing more, and has ended
    g <partition> <position>            source: the decisions about the input that follows a
                                        position
    j <partition> <position>            source: how keys of records behind a position are divided,
                                        and up to where
    f <partition> <position>            source: input that was judged by the clock and dead-lettered
    A                                   source: nothing arrives before this time
    A <partition> <position>            source: up to which position the records behind this one
                                        arrived, and when
    n                                   sink: number of the next batch
    u <hash> <key> [<window>]           sink: the current rows, by identity
    r <batch>                           sink: committables of batches committed, perhaps not yet
                                        published
    R                                   source: the chained sink that has batches in its shard
    w <hash> <key> <slot>               windows of an aggregation
    b <hash> <key> <slot> <number>      entries of the sets of such a window, which are too large
                                        for its value
    h <hash> <key> e <tag>              where its windows hold the watermark
    q <hash> <key> e <tag>              timers of its windows that obey a percentile watermark
    y <hash> <key>                      the newest result of its windows that have fired, where it
                                        is kept for queries
    W <number> [c]                      records that wait for the watermark, many of them; and
                                        which of these have come
    x <shard> <number>                  windows in columns: a columnar segment of many keys, under
                                        its writer
    K <shard> <number>                  kept records of a join that have left memory: a segment of
                                        an archive, under its writer
    B <shard> <number> <block>          a block of its records
    a <level> <start> <hash> <key>      slices: an accumulator, and the time of its newest record
    k                                   slices: up to which time they have expired
    ki                                  slices: up to which watermark idle keys have gone
    l <hash> <key>                      slices with a ttl: the newest time of a key, and since when
                                        its records are kept
    i <time> <hash> <key>               the same keys by the time of a record of each, for those
                                        that go idle
"""

from __future__ import annotations

import msgspec

from millwheel.core.model.damage import checked
from millwheel.core.model.keys import Key, key_bytes, key_from_bytes
from millwheel.core.model.records import Domain

META = b"m"
HASHED = b"sthquwlyb"
"""The families whose entries begin with the hash of their key."""
NEXT_BATCH = b"n"
CHAINED_SINK = b"R"
ENDED = b"e"
WINDOW, HOLD, COLUMNS, ROW, SHARE_TIMER, RESULT = b"w", b"h", b"x", b"u", b"q", b"y"
WINDOW_SET = b"b"
WAITING = b"W"
ARCHIVE, ARCHIVE_BLOCK = b"K", b"B"
CHANNEL, STATE, TIMER, SEEN, PENDING, POSITION, JUDGED, COMMITTABLE = (
    b"c",
    b"s",
    b"t",
    b"d",
    b"p",
    b"o",
    b"f",
    b"r",
)
DECIDED, KEY_EPOCHS, ARRIVED = b"g", b"j", b"A"
RUNS = b"v"
NUMBERS = b"z"
SLICE, EXPIRED, CLEARED, SLICE_KEY, SLICE_IDLE = b"a", b"k", b"ki", b"l", b"i"

_DOMAIN_BYTE = {Domain.EVENT: b"e", Domain.PROCESSING: b"p"}
_DOMAIN_OF = {b"e"[0]: Domain.EVENT, b"p"[0]: Domain.PROCESSING}
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


class Meta(msgspec.Struct, array_like=True):
    """The entry that every commit rewrites. ``watermark`` is the watermark of the inputs at the
    commit. It never goes back for a shard, not even while a new owner has no report of the injector
    yet. ``floor``: the highest watermark that the shard may have reported while processing-time
    timers of callbacks were waiting. ``closed``: the watermark up to which windows in columns have
    been closed, where it differs from ``watermark``: in a merged shard before its first commit."""

    number: int = 0
    next_seq: int = 1
    next_chunk: int = 1
    counters: dict[str, int] = {}
    watermark: int = -(2**63)
    floor: int = -(2**63)
    closed: int | None = None


class Position(msgspec.Struct, array_like=True):
    """The position up to which a partition has been read and delivered. ``max_timestamp`` decides
    which later records are late. ``note``: any other state that a reader needs to continue.
    ``with_results``: no record was sent as such; groups of them, or the results of a chain, were
    committed with this position. ``counts``: the number of records that each instance has got, for
    each node that divides its keys by these (core/grouping/epochs.py)."""

    position: int = 0
    max_timestamp: int = -(2**63)
    finished: bool = False
    note: bytes = b""
    with_results: bool = False
    counts: dict[str, list[int]] = {}


encode_meta = msgspec.msgpack.Encoder().encode
decode_meta = checked(msgspec.msgpack.Decoder(Meta).decode, "the commit numbers of a shard")
decode_position = checked(msgspec.msgpack.Decoder(Position).decode, "the position of a partition")


class PendingForm(msgspec.Struct, array_like=True):
    """Pending productions: encoded batches, and for each of them, by the nodes that divide their
    keys by tables, the instance of each record, as one byte; nothing where none does."""

    channel: str
    batches: list[bytes]
    instances: list[dict[str, bytes]] = []


decode_pending = checked(msgspec.msgpack.Decoder(PendingForm).decode, "productions of a shard")


def number8(number: int) -> bytes:
    """Eight big-endian bytes, so that byte order is number order (numbers from -2**63)."""
    return (number + 2**63).to_bytes(8, "big")


def number_from8(data: bytes) -> int:
    """The inverse of :func:`number8`."""
    return int.from_bytes(data, "big") - 2**63


def key_prefix(family: bytes, key: Key, hashed: int) -> bytes:
    """The common start of everything stored for one key in one family."""
    return family + hashed.to_bytes(8, "big") + key_bytes(key)


def slice_prefix(level: int, start_us: int) -> bytes:
    """The common start of a slice of all keys. Time comes first, so that slices of one age are one
    range."""
    return SLICE + bytes([level]) + number8(start_us)


SLICE_PREFIX_BYTES = len(slice_prefix(0, 0))
"""Behind it is the store key of the key."""


def timer_key(key: Key, hashed: int, domain: Domain, tag: str) -> bytes:
    """The store key of a timer."""
    return key_prefix(TIMER, key, hashed) + _DOMAIN_BYTE[domain] + tag.encode()


def timer_value(at: int, cause: bytes) -> bytes:
    """The entry of a timer: its time, and the cause that the ids of weak productions need (else
    nothing)."""
    return number8(at) + cause


def parse_timer_value(data: bytes) -> tuple[int, bytes]:
    """The inverse of :func:`timer_value`."""
    return number_from8(data[:8]), data[8:]


def parse_timer(stored: bytes) -> tuple[bytes, Domain, str]:
    """(key bytes, domain, tag) of a timer's store key."""
    end = _msgpack_end(stored, 9)
    return stored[9:end], _DOMAIN_OF[stored[end]], stored[end + 1 :].decode()


def slot_of(stored: bytes) -> object:
    """The slot of a window, of its store key."""
    return _unpack(stored[_msgpack_end(stored, 9) :])


def key_in(stored: bytes) -> Key:
    """The key in the store key of an entry for one key."""
    return key_from_bytes(stored[9 : _msgpack_end(stored, 9)])


def _msgpack_end(data: bytes, start: int) -> int:
    """Where the msgpack value that starts at ``start`` ends. Keys hold only str, int, bytes and
    arrays."""
    first = data[start]
    if first <= 0x7F or first >= 0xE0:
        return start + 1
    if 0x90 <= first <= 0x9F:
        return _array_end(data, start + 1, first & 0x0F)
    if 0xA0 <= first <= 0xBF:
        return start + 1 + (first & 0x1F)
    if first in (0xC4, 0xD9):
        return start + 2 + data[start + 1]
    if first in (0xC5, 0xDA):
        return start + 3 + int.from_bytes(data[start + 1 : start + 3], "big")
    if first in (0xC6, 0xDB):
        return start + 5 + int.from_bytes(data[start + 1 : start + 5], "big")
    if first in (0xCC, 0xD0):
        return start + 2
    if first in (0xCD, 0xD1):
        return start + 3
    if first in (0xCE, 0xD2):
        return start + 5
    if first in (0xCF, 0xD3):
        return start + 9
    if first == 0xDC:
        return _array_end(data, start + 3, int.from_bytes(data[start + 1 : start + 3], "big"))
    if first == 0xDD:
        return _array_end(data, start + 5, int.from_bytes(data[start + 1 : start + 5], "big"))
    raise ValueError(f"byte {first:#x} starts no key")


def _array_end(data: bytes, start: int, count: int) -> int:
    for _ in range(count):
        start = _msgpack_end(data, start)
    return start


def pack(value: object) -> bytes:
    """Plain data as msgpack."""
    return _pack(value)


def unpack(data: bytes) -> object:
    """The inverse of :func:`pack`."""
    return _unpack(data)


def after(prefix: bytes) -> bytes:
    """The first key that no longer starts with ``prefix``; empty when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b""
