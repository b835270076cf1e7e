"""What a shard that comes of a split or merge must find in its store, from the histories of its
parents.

Written anew, entry by entry, so that a mistake of the real code is not made here as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from millwheel.core.formats.store_layout import META, decode_meta
from millwheel.core.model.keys import key_hash
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import KeyRange

_ID_HASH = 9
_ROW = 24
"""The bytes of a value of a dictionary, the last two of its first eight being its partition."""
_COMPARED = (b"s", b"t", b"h", b"q", b"w", b"u", b"c", b"p")
"""Families that are compared one by one; ids are forgotten locally, and segments are compared by
their results."""


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The content that must be there. Pending productions may lie anywhere: ``pending`` is what
    they say, in order. ``numbered``: the values of dictionaries, each as it is stored."""

    number: int
    state: dict[bytes, bytes]
    pending: list[bytes]
    counters: Counter[str]
    watermark: int
    marks: dict[tuple[bytes, KeyRange], int]
    numbered: Counter[bytes]

    def differences(self, content: dict[bytes, bytes]) -> str:
        """What is wrong with a store; "" when nothing is."""
        if META not in content:
            return "it has no numbers"
        meta = decode_meta(content[META])
        if (meta.number, meta.watermark, Counter(meta.counters)) != (
            self.number,
            self.watermark,
            self.counters,
        ):
            return (
                f"it begins with {meta}, not with {self.number}, {self.watermark}, {self.counters}"
            )
        pending = [value for store_key, value in sorted(content.items()) if store_key[:1] == b"p"]
        if pending != self.pending or meta.next_chunk <= len(pending):
            return f"{len(pending)} productions are pending, not {len(self.pending)}"
        keyed = {
            k: v for k, v in content.items() if k[:1] in _COMPARED and k[:1] not in (b"c", b"p")
        }
        wanted = {k: v for k, v in self.state.items() if k[:1] in _COMPARED}
        if keyed != wanted:
            return (
                f"{[k for k in {*keyed, *wanted} if keyed.get(k) != wanted.get(k)][:3]} are missing"
                " or differ"
            )
        if _rows(content) != self.numbered:
            return (
                f"it knows {len(_rows(content))} values, not {len(self.numbered)}, or has other"
                " numbers for them"
            )
        found = {store_key: data for store_key, data in content.items() if store_key[:1] == b"c"}
        for (store_key, piece), mark in self.marks.items():
            if _mark_at(found.get(store_key), piece) != mark:
                return (
                    f"the mark of {store_key!r} is {_mark_at(found.get(store_key), piece)} in"
                    f" {piece}, not {mark}"
                )
        return (
            f"it knows {len(found)} channels"
            if set(found) != {store_key for store_key, _ in self.marks}
            else ""
        )


def expected(entry: ShardEntry, parents: dict[str, dict[bytes, bytes]]) -> Inheritance:
    """``parents``: the folds of the parents' commits."""
    state: dict[bytes, bytes] = {}
    pending: list[bytes] = []
    counters: Counter[str] = Counter()
    marks: dict[tuple[bytes, KeyRange], int] = {}
    channels = {
        store_key for fold in parents.values() for store_key in fold if store_key[:1] == b"c"
    }
    numbers, watermarks = [0], []
    numbered: Counter[bytes] = Counter()
    for parent in entry.parents:
        fold = parents[parent.shard]
        mine = KeyRange(max(parent.range.lo, entry.range.lo), min(parent.range.hi, entry.range.hi))
        for store_key, value in fold.items():
            at = 1 if store_key[:1] in b"sthqwu" else _ID_HASH if store_key[:1] == b"d" else 0
            if at and int.from_bytes(store_key[at : at + 8], "big") in mine:
                state[store_key] = value
        numbered += Counter({row: count for row, count in _rows(fold).items() if _is_in(row, mine)})
        for store_key in channels:
            for piece in _pieces(fold.get(store_key), mine):
                marks[store_key, piece] = _mark_at(fold.get(store_key), piece)
        meta = decode_meta(fold[META]) if META in fold else None
        watermarks.append(meta.watermark if meta else -(2**63))
        if meta is not None:
            numbers.append(meta.number)
        if parent.range.lo in entry.range:
            pending += [value for store_key, value in sorted(fold.items()) if store_key[:1] == b"p"]
            counters.update(meta.counters if meta else {})
    return Inheritance(max(numbers), state, pending, counters, max(watermarks), marks, numbered)


def _rows(content: dict[bytes, bytes]) -> Counter[bytes]:
    """Each value of a dictionary that a store has, with its bucket."""
    runs = [(store_key[:9], run) for store_key, run in content.items() if store_key[:1] == b"z"]
    return Counter(
        bucket + run[at : at + _ROW] for bucket, run in runs for at in range(0, len(run), _ROW)
    )


def _is_in(row: bytes, mine: KeyRange) -> bool:
    return key_hash(int.from_bytes(row[9:][6:8], "little")) in mine


def _pieces(data: bytes | None, within: KeyRange) -> list[KeyRange]:
    found: Any = 0 if data is None else msgspec.msgpack.decode(data)
    if isinstance(found, int):
        return [within]
    edges = [(max(lo, within.lo), min(last + 1, within.hi)) for lo, last, _ in found]
    return [KeyRange(lo, hi) for lo, hi in edges if lo < hi]


def _mark_at(data: bytes | None, piece: KeyRange) -> int:
    """The mark that a store gives for a piece of its range."""
    found: Any = 0 if data is None else msgspec.msgpack.decode(data)
    if isinstance(found, int):
        return found
    return next((mark for lo, last, mark in found if lo <= piece.lo and piece.hi <= last + 1), -1)
