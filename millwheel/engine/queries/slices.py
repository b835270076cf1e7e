"""Answers from slices: the slices that answer for a window, the span that they cover, and their
accumulators, read with one call where no record lies beyond the span, and merged.

    covering   [T - H, T) widened to the edges of slices
    inside     [T - H, T) narrowed to them
    exact      [T - H, T) itself, which must end on them

The span is divided into as few slices as possible: at each point the coarsest one that begins
there. The last one may still grow; its accumulator is used even where the slice reaches beyond the
span, as long as none of its records does. 30 days in slices of 5 minutes, 1 hour and 1 day are at
most 11 + 23 + 31 accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from millwheel.adapters.ports import StoreView
from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.aggregates.stored_form import WHOLE
from millwheel.core.formats.store_layout import (
    CLEARED,
    EXPIRED,
    SLICE_KEY,
    number_from8,
    slice_prefix,
)
from millwheel.core.model.damage import checked
from millwheel.core.model.keys import Key
from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME, duration_text
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.core.slices.levels import SliceLevel, slice_levels
from millwheel.core.slices.merge_cache import MergedSpan, MergedSpans
from millwheel.core.slices.slots import slot_stored_key
from millwheel.engine.queries.model import Finding, Mode, Query, QueryError
from millwheel.errors import RecordError


class SlicePiece(NamedTuple):
    """One slice of one level, [start, end)."""

    level: int
    start_us: int
    end_us: int


class SliceSpan(NamedTuple):
    """[start, end) on the edges of slices; empty when they are equal."""

    start_us: int
    end_us: int


def span_of(
    levels: Sequence[SliceLevel], window_us: int | None, until_us: int, mode: Mode
) -> SliceSpan:
    """The span that answers for ``[until - window, until)``. Raises QueryError for an invalid
    window, and in mode ``exact`` for one that is not on edges."""
    if mode is Mode.OPEN:
        raise QueryError(
            "bad_window", "slices are asked for a window, such as 1h; open is for windows that fire"
        )
    if window_us is None or window_us <= 0:
        window = "no window" if window_us is None else f"a window of {window_us}us"
        raise QueryError(
            "bad_window",
            f"{window} was given; slices are asked for a window longer than 0, such as 1h",
        )
    since_us = until_us - window_us
    if since_us < MIN_TIME or until_us > LAST_TIME:
        raise QueryError("bad_window", "the window lies outside of the times that records can have")
    try:
        first, last = levels[0].bounds(since_us), levels[0].bounds(until_us - 1)
    except RecordError as ex:
        raise QueryError("bad_window", str(ex)) from None
    if mode is Mode.COVERING:
        return SliceSpan(first[0], last[1])
    if mode is Mode.INSIDE:
        start = first[0] if first[0] == since_us else first[1]
        end = last[1] if last[1] == until_us else last[0]
        return SliceSpan(start, max(start, end))
    if first[0] != since_us or last[1] != until_us:
        size = duration_text(levels[0].size_us)
        raise QueryError(
            "bad_window",
            f"the window [{since_us}, {until_us}) does not begin and end on edges of slices of"
            f" {size}: the nearest that covers it is [{first[0]}, {last[1]}); ask with mode"
            " covering or inside",
        )
    return SliceSpan(since_us, until_us)


def pieces(
    levels: Sequence[SliceLevel], span: SliceSpan, beyond: bool = False
) -> Iterator[SlicePiece]:
    """The slices that make up a span, in order. ``beyond``: the last one may extend past the end of
    the span; it may be used only if none of its records does."""
    at = span.start_us
    while at < span.end_us:
        piece = _coarsest(levels, at, span.end_us, beyond)
        yield piece
        at = piece.end_us


def _coarsest(levels: Sequence[SliceLevel], at_us: int, end_us: int, beyond: bool) -> SlicePiece:
    for level in reversed(levels[1:]):
        start, end = level.bounds(at_us)
        if start == at_us and (end <= end_us or beyond):
            return SlicePiece(level.number, start, end)
    start, end = levels[0].bounds(at_us)
    return SlicePiece(0, start, end)


MOST_PIECES = 100_000
"""The most accumulators that one answer reads. A span that needs more is refused; more levels
reduce the number."""

_CACHED_SPANS, _CACHED_PIECES = (
    256,
    1_000,
)  # the same span is asked for many keys
_STORED_KEYS = 20_000  # keys whose store keys are cached


class StoredSlice(msgspec.Struct, array_like=True):
    """The accumulator of one key and slice. ``newest_us`` is the highest time of its records."""

    newest_us: int
    acc: Any


class StoredKey(msgspec.Struct, array_like=True):
    """The entry of a key where keys may become idle: the highest time of its records, and the time
    from which on everything is kept."""

    newest_us: int
    since_us: int


encode_slice = WHOLE.encode
decode_slice = checked(
    msgspec.msgpack.Decoder(StoredSlice, ext_hook=WHOLE.decoded).decode, "a slice"
)
decode_key = checked(msgspec.msgpack.Decoder(StoredKey).decode, "a key of slices")


def expired_before(spec: SlicesSpec, watermark_us: int, noted_us: int) -> int:
    """Slices that end at or before this have expired; ``noted_us`` is what :data:`EXPIRED` holds.
    The end of bounded input expires nothing more, so the results can still be asked for."""
    return (
        noted_us
        if watermark_us == MAX_TIME
        else max(noted_us, watermark_us - spec.keep_us, MIN_TIME)
    )


def noted_expiry(stored: bytes | None) -> int:
    """The time in the store's entry :data:`EXPIRED`."""
    return MIN_TIME if stored is None else number_from8(stored)


@dataclass(frozen=True, slots=True)
class SliceAnswers:
    """Answers for one computation."""

    spec: SlicesSpec
    levels: Sequence[SliceLevel]
    aggregation: Aggregation
    stored_key: Callable[[Key], bytes] = slot_stored_key
    """The store key of a key: its hash, which begins with its slot, then its bytes."""
    merged: MergedSpans | None = None
    """Merged results; None where changed keys are not reported."""
    _prefixes: dict[tuple[SliceSpan, bool], Sequence[bytes]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """The part that is the same for all keys asked for one span: see :meth:`_pieces`."""
    _spans: dict[tuple[int | None, int, Mode], SliceSpan] = field(
        default_factory=dict, repr=False, compare=False
    )
    """The span of a window: one moment is asked for many keys."""
    _stored_keys: dict[Key, bytes] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(
        spec: SlicesSpec, aggregation: Aggregation, merged: MergedSpans | None = None
    ) -> SliceAnswers:
        return SliceAnswers(
            spec, slice_levels(spec.levels_us, spec.time_zone), aggregation, merged=merged
        )

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        """The aggregates of the span that the query's window names. Raises QueryError."""
        expired_us = expired_before(self.spec, watermark_us, noted_expiry(state.get(EXPIRED)))
        return self.answer_after(expired_us, query, state, watermark_us)

    def answer_after(
        self, expired_us: int, query: Query, state: StoreView, watermark_us: int
    ) -> Finding:
        """:meth:`answer`, given the time before which slices have expired."""
        until_us = query.until_us if query.until_us is not None else max(watermark_us, 0)
        if query.window_us is not None and query.window_us > self.spec.keep_us:
            raise QueryError(
                "beyond_keep",
                f"{query.computation} keeps slices for a shorter time than this window",
            )
        span = self._span(query.window_us, until_us, query.mode)
        if span.start_us < expired_us:
            self._check_kept(span, expired_us, query.computation)
        whole = span
        stored_key = self._stored_key(query.key)
        if self.spec.ttl_us is not None:
            since_us = self._kept_since(stored_key, state, watermark_us, self.spec.ttl_us)
            if since_us > span.start_us:
                span = SliceSpan(min(since_us, span.end_us), span.end_us)
        values, newest_us = self._merged(stored_key, span, state)
        end_us = span.end_us
        # the running slice has no records at or after the requested end
        if newest_us < until_us < end_us:
            end_us = until_us
        complete = watermark_us >= end_us and span == whole
        return Finding(query.chosen(values), span.start_us, max(end_us, span.start_us), complete)

    def _span(self, window_us: int | None, until_us: int, mode: Mode) -> SliceSpan:
        span = self._spans.get((window_us, until_us, mode))
        if span is None:
            if len(self._spans) >= _CACHED_SPANS:
                self._spans.clear()
            span = self._spans[window_us, until_us, mode] = span_of(
                self.levels, window_us, until_us, mode
            )
        return span

    def _stored_key(self, key: Key) -> bytes:
        encoded = self._stored_keys.get(key)
        if encoded is None:
            if len(self._stored_keys) >= _STORED_KEYS:
                self._stored_keys.clear()
            encoded = self._stored_keys[key] = self.stored_key(key)
        return encoded

    def _check_kept(self, span: SliceSpan, expired_us: int, name: str) -> None:
        first_end = self.levels[0].bounds(span.start_us)[1]
        if first_end <= expired_us and span.start_us < span.end_us:
            raise QueryError(
                "beyond_keep",
                f"the window begins at {span.start_us}, and slices of {name} that end at"
                f" {expired_us} or before are not kept any more (keep)",
            )

    def _kept_since(
        self, stored_key: bytes, state: StoreView, watermark_us: int, ttl_us: int
    ) -> int:
        """The edge of a slice from which on nothing of a key has been cleared for idleness."""
        stored = state.get(SLICE_KEY + stored_key)
        entry = None if stored is None else decode_key(stored)
        if entry is not None and not is_idle(entry.newest_us, watermark_us, ttl_us):
            return entry.since_us
        return since_idle(self.levels[0], watermark_us, state.get(CLEARED), ttl_us)

    def _merged(self, stored_key: bytes, span: SliceSpan, state: StoreView) -> MergedSpan:
        if self.merged is None:
            return self._read(stored_key, span, state)[0]
        merged = self.merged.get(stored_key, span)
        if merged is None:
            merged, read_bytes = self._read(stored_key, span, state)
            self.merged.keep(stored_key, span, merged, read_bytes)
        return merged

    def _read(self, stored_key: bytes, span: SliceSpan, state: StoreView) -> tuple[MergedSpan, int]:
        """The results of a span with the time of its newest record, and how many bytes were
        read."""
        slices = self._stored(self._pieces(span, True), stored_key, state)
        if slices and slices[-1] and decode_slice(slices[-1]).newest_us >= span.end_us:
            # The last slice reaches over the end and has records there.
            slices = self._stored(self._pieces(span, False), stored_key, state)
        acc, newest_us = self.aggregation.create(), MIN_TIME
        for data in slices:
            if data is not None:
                stored = decode_slice(data)
                acc = self.aggregation.merge(acc, stored.acc)
                newest_us = max(newest_us, stored.newest_us)
        return (self.aggregation.result(acc), newest_us), sum(
            [len(data) for data in slices if data is not None]
        )

    def _pieces(self, span: SliceSpan, beyond: bool) -> Sequence[bytes]:
        """The beginnings of the store keys of the slices that make up a span."""
        cached = self._prefixes.get((span, beyond))
        if cached is not None:
            return cached
        prefixes = []
        for piece in pieces(self.levels, span, beyond):
            prefixes.append(slice_prefix(piece.level, piece.start_us))
            if len(prefixes) > MOST_PIECES:
                raise QueryError(
                    "too_much",
                    f"the window has more than {MOST_PIECES} slices; give the computation longer"
                    " levels",
                )
        if len(prefixes) <= _CACHED_PIECES:
            if len(self._prefixes) >= _CACHED_SPANS:
                self._prefixes.clear()
            self._prefixes[span, beyond] = prefixes
        return prefixes

    def _stored(
        self, prefixes: Sequence[bytes], stored_key: bytes, state: StoreView
    ) -> list[bytes | None]:
        return state.get_many([prefix + stored_key for prefix in prefixes])


def since_idle(finest: SliceLevel, watermark_us: int, cleared: bytes | None, ttl_us: int) -> int:
    """The time from which on everything is kept of a key without an entry: a later record would
    have left one."""
    latest_us = MIN_TIME if cleared is None else number_from8(cleared)
    if watermark_us != MAX_TIME:
        latest_us = max(latest_us, watermark_us)
    return MIN_TIME if latest_us <= MIN_TIME + ttl_us else finest.bounds(latest_us - ttl_us)[1]


def is_idle(newest_us: int, watermark_us: int, ttl_us: int) -> bool:
    """Whether a key has had no record for its time to live, by the watermark. The end of bounded
    input makes no key idle."""
    return watermark_us != MAX_TIME and newest_us + ttl_us <= watermark_us
