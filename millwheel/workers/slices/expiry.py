"""Expiry: slices are deleted once the watermark is far enough past their end, as ranges of the store, without reading
any.

Two commits take part. One notes up to where slices have expired; once it is in the store, the next bundle deletes them.
The deletion is not part of a commit: expired slices are never read, so their presence has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence

from millwheel.core.formats.store_layout import EXPIRED, SLICE, number8, slice_prefix
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import SlicesSpec
from millwheel.core.slices.levels import SliceLevel
from millwheel.ports import StateStore
from millwheel.queries.slices import expired_before, noted_expiry
from millwheel.workers.state.overlay import Overlay

_EXPIRIES = 100
"""Slices expire in steps of this fraction of the time that is kept: each step leaves marks in the store, which slow
reads."""


class Expiry:
    """The expired slices of one shard."""

    def __init__(self, spec: SlicesSpec, levels: Sequence[SliceLevel], store: StateStore, overlay: Overlay) -> None:
        self._spec = spec
        self._levels = levels
        self._store = store
        self._overlay = overlay
        self._noted_us = noted_expiry(store.get(EXPIRED))
        self._dropped_us = MIN_TIME
        self._waits = store.first(SLICE, SLICE) is not None
        self._step_us = max(spec.levels_us[0], spec.keep_us // _EXPIRIES)

    def wake(self) -> None:
        """There are slices."""
        self._waits = True

    def due_at(self) -> int:
        """Some slices have expired once the watermark has passed this; MAX_TIME means never."""
        if not self._waits:
            return MAX_TIME
        return min(self._noted_us + self._spec.keep_us + self._step_us, MAX_TIME)

    def before(self, watermark_us: int) -> int:
        """Slices that end at or before this have expired."""
        return expired_before(self._spec, watermark_us, noted_expiry(self._overlay.get(EXPIRED)))

    def before_noted(self, watermark_us: int) -> int:
        """:meth:`before`, between two bundles: without a look into the store."""
        return expired_before(self._spec, watermark_us, self._noted_us)

    def note(self, watermark_us: int) -> None:
        """Note, with the commit of this bundle, up to where slices have expired."""
        self._waits = self._waits and watermark_us != MAX_TIME  # at the end of input, nothing more expires
        before = expired_before(self._spec, watermark_us, MIN_TIME)
        if before >= self._noted_us + self._step_us:
            self._noted_us = before
            self._overlay.put(EXPIRED, number8(before))

    def drop(self) -> None:
        """Delete what expired with an earlier commit.

        Not with the commit that notes it: a checkpoint between the two would lack slices that its own watermark still
        keeps, and its next owner would count late records into what is left of them."""
        expired_us = noted_expiry(self._store.get(EXPIRED))
        if expired_us <= self._dropped_us:
            return
        for level in self._levels:
            until_us = level.bounds(expired_us)[0]
            self._store.delete_range(slice_prefix(level.number, MIN_TIME), slice_prefix(level.number, until_us))
        self._dropped_us = expired_us
