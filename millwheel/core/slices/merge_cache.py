"""Merged accumulators of queried keys and spans, kept until a record changes the key.

A dashboard asks for the same spans of the same keys again and again, and merging the accumulators
of a span takes most of the time of an answer. The cached values are a function of the store alone:
watermark, expiry and idleness are checked anew for each query.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST_BYTES = 4 << 20
"""The most bytes of each shard; beyond that, all are forgotten."""
_LARGE = 4_096  # bytes: an accumulator merged from more is not kept, since it may be as large
_OVERHEAD = 400  # of an entry, in bytes

Span = tuple[int, int]
"""[start, end) on the edges of slices (µs)."""
MergedSpan = tuple[Mapping[str, object], int]
"""The results of all aggregates, and the time of the newest record."""


class MergedSpans:
    """The merged spans of one shard, by store key. Code that changes the slices of a key calls
    :meth:`changed`."""

    __slots__ = ("_bytes", "_kept")

    def __init__(self) -> None:
        self._kept: dict[bytes, dict[Span, MergedSpan]] = {}
        self._bytes = 0

    def get(self, stored_key: bytes, span: Span) -> MergedSpan | None:
        """The kept span; None if there is none."""
        spans = self._kept.get(stored_key)
        return None if spans is None else spans.get(span)

    def keep(self, stored_key: bytes, span: Span, merged: MergedSpan, read_bytes: int) -> None:
        """Keep it, unless it was made of so many bytes that its results may be large."""
        if read_bytes > _LARGE:
            return
        size = _OVERHEAD + len(stored_key)
        if self._bytes + size > MOST_BYTES:
            self.clear()
        self._bytes += size
        self._kept.setdefault(stored_key, {})[span] = merged

    def changed(self, stored_key: bytes) -> None:
        """Forget the spans of a key whose slices have changed."""
        spans = self._kept.pop(stored_key, None)
        if spans is not None:
            self._bytes -= len(spans) * (_OVERHEAD + len(stored_key))

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)
