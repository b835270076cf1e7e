"""Answers from slices: reads the accumulators of a span, with one call where no record lies beyond it, and merges
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.aggregates.stored_form import WHOLE
from millwheel.core.formats.store_layout import CLEARED, EXPIRED, SLICE_KEY, number_from8, slice_prefix
from millwheel.core.model.damage import checked
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import SlicesSpec
from millwheel.core.slices.levels import SliceLevel, slice_levels
from millwheel.core.slices.slots import slot_stored_key
from millwheel.ports import StoreView
from millwheel.queries.model import Finding, Query, QueryError
from millwheel.queries.span import SliceSpan, pieces, span_of

MOST_PIECES = 100_000
"""The most accumulators that one answer reads. A span that needs more is refused; more levels reduce the number."""

_KNOWN_SPANS, _KNOWN_PIECES = 256, 1_000  # sizes of the cache: the same span is asked for many keys


class StoredSlice(msgspec.Struct, array_like=True):
    """The accumulator of one key and slice. ``newest_us`` is the highest time of its records."""

    newest_us: int
    acc: Any


class StoredKey(msgspec.Struct, array_like=True):
    """The entry of a key where keys may become idle: the highest time of its records, and the time from which on
    everything is kept."""

    newest_us: int
    since_us: int


encode_slice = WHOLE.encode
decode_slice = checked(msgspec.msgpack.Decoder(StoredSlice, ext_hook=WHOLE.decoded).decode, "a slice")
decode_key = checked(msgspec.msgpack.Decoder(StoredKey).decode, "a key of slices")


def expired_before(spec: SlicesSpec, watermark_us: int, stored: bytes | None) -> int:
    """Slices that end at or before this have expired. The end of bounded input expires nothing more, so the results can
    still be asked for."""
    before = MIN_TIME if stored is None else number_from8(stored)
    return before if watermark_us == MAX_TIME else max(before, watermark_us - spec.keep_us, MIN_TIME)


@dataclass(frozen=True, slots=True)
class SliceAnswers:
    """Answers for one computation."""

    spec: SlicesSpec
    levels: Sequence[SliceLevel]
    aggregation: Aggregation
    stored_key: Callable[[Key], bytes] = slot_stored_key
    """The store key of a key: its hash, which begins with its slot, then its bytes."""
    _known: dict[tuple[SliceSpan, bool], Sequence[bytes]] = field(default_factory=dict, repr=False, compare=False)
    """The part that is the same for all keys asked for one span: see :meth:`_pieces`."""

    @staticmethod
    def of(spec: SlicesSpec, aggregation: Aggregation) -> SliceAnswers:
        return SliceAnswers(spec, slice_levels(spec.levels_us, spec.time_zone), aggregation)

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        """The aggregates of the span that the query's window names. Raises QueryError."""
        until_us = query.until_us if query.until_us is not None else max(watermark_us, 0)
        if query.window_us is not None and query.window_us > self.spec.keep_us:
            raise QueryError("beyond_keep", f"{query.computation} keeps slices for a shorter time than this window")
        span = span_of(self.levels, query.window_us, until_us, query.mode)
        self._check_kept(span, expired_before(self.spec, watermark_us, state.get(EXPIRED)), query.computation)
        whole = span
        kept = self._kept_since(query.key, state, watermark_us)
        if kept > span.start_us:
            span = SliceSpan(min(kept, span.end_us), span.end_us)
        acc, newest_us = self._merged(query.key, span, state)
        end_us = span.end_us
        if newest_us < until_us < end_us:  # the running slice has no records at or after the requested end
            end_us = until_us
        complete = watermark_us >= end_us and span == whole
        return Finding(query.chosen(self._result(acc)), span.start_us, max(end_us, span.start_us), complete)

    def _result(self, acc: Any) -> Mapping[str, object]:
        found: Mapping[str, object] = self.aggregation.result(acc)
        return found

    def _check_kept(self, span: SliceSpan, expired_us: int, name: str) -> None:
        first_end = self.levels[0].bounds(span.start_us)[1]
        if first_end <= expired_us and span.start_us < span.end_us:
            raise QueryError(
                "beyond_keep",
                f"the window begins at {span.start_us}, and slices of {name} that end at {expired_us} or before are "
                "not kept any more (keep)",
            )

    def _kept_since(self, key: Key, state: StoreView, watermark_us: int) -> int:
        """The edge of a slice from which on nothing of a key has been cleared for idleness."""
        ttl_us = self.spec.ttl_us
        if ttl_us is None:
            return MIN_TIME
        stored = state.get(SLICE_KEY + self.stored_key(key))
        known = None if stored is None else decode_key(stored)
        if known is not None and not is_idle(known.newest_us, watermark_us, ttl_us):
            return known.since_us
        return since_idle(self.levels[0], watermark_us, state.get(CLEARED), ttl_us)

    def _merged(self, key: Key, span: SliceSpan, state: StoreView) -> tuple[Any, int]:
        """The accumulator of a span, and the time of its newest record."""
        stored_key = self.stored_key(key)
        found = self._read(self._pieces(span, True), stored_key, state)
        if found and found[-1] is not None and found[-1].newest_us >= span.end_us:
            # The last slice reaches over the end and has records there.
            found = self._read(self._pieces(span, False), stored_key, state)
        acc, newest_us = self.aggregation.create(), MIN_TIME
        for stored in found:
            if stored is not None:
                acc = self.aggregation.merge(acc, stored.acc)
                newest_us = max(newest_us, stored.newest_us)
        return acc, newest_us

    def _pieces(self, span: SliceSpan, beyond: bool) -> Sequence[bytes]:
        """The beginnings of the store keys of the slices that make up a span."""
        known = self._known.get((span, beyond))
        if known is not None:
            return known
        found = []
        for piece in pieces(self.levels, span, beyond):
            found.append(slice_prefix(piece.level, piece.start_us))
            if len(found) > MOST_PIECES:
                raise QueryError(
                    "too_much", f"the window has more than {MOST_PIECES} slices; give the computation longer levels"
                )
        if len(found) <= _KNOWN_PIECES:
            if len(self._known) >= _KNOWN_SPANS:
                self._known.clear()
            self._known[span, beyond] = found
        return found

    def _read(self, wanted: Sequence[bytes], stored_key: bytes, state: StoreView) -> list[StoredSlice | None]:
        store_keys = [prefix + stored_key for prefix in wanted]
        return [None if data is None else decode_slice(data) for data in state.get_many(store_keys)]


def since_idle(finest: SliceLevel, watermark_us: int, cleared: bytes | None, ttl_us: int) -> int:
    """The time from which on everything is kept of a key without an entry: a later record would have left one."""
    known_us = MIN_TIME if cleared is None else number_from8(cleared)
    if watermark_us != MAX_TIME:
        known_us = max(known_us, watermark_us)
    return MIN_TIME if known_us <= MIN_TIME + ttl_us else finest.bounds(known_us - ttl_us)[1]


def is_idle(newest_us: int, watermark_us: int, ttl_us: int) -> bool:
    """Whether a key has had no record for its time to live, by the watermark. The end of bounded input makes no key
    idle."""
    return watermark_us != MAX_TIME and newest_us + ttl_us <= watermark_us
