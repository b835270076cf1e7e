"""Deliberate mistakes about slices: what is kept, and what of it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from millwheel.core.pipeline.work import SlicesSpec
from millwheel.core.slices.levels import SliceLevel
from millwheel.engine.queries import slices as slices_module
from millwheel.engine.queries.slices import SlicePiece, SliceSpan, StoredSlice, pieces
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.slices import computation as expiry_module
from millwheel.engine.workers.operators.slices.cells import SliceCells
from millwheel.engine.workers.shard.commit_building import CommitBuilding
from tests.search.generate.sliced import NAME
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=40, features="slices stated", variants="crash crashes restart")
def slices_are_committed_without_their_high_water_marks() -> Context:
    """What a record changes is durable, and not that it was applied: delivered again after a crash,
    it counts twice."""
    right = CommitBuilding._write_high_water_marks

    def wrong(self: CommitBuilding, arrivals: list[Arrival]) -> None:
        if not self.identity.shard.startswith(NAME):
            right(self, arrivals)

    return replaced(CommitBuilding, "_write_high_water_marks", wrong)


@mistake(within=10, features="slices stated", variants="reference")
@contextmanager
def slices_expire_one_slice_early() -> Iterator[None]:
    """What is kept is a slice less than it should be. (A watermark that makes slices expire.)"""
    right = slices_module.expired_before

    def wrong(spec: SlicesSpec, watermark_us: int, stored: bytes | None) -> int:
        early = SlicesSpec(
            spec.levels_us, spec.keep_us - spec.levels_us[0], spec.time_zone, spec.ttl_us
        )
        return right(early, watermark_us, stored)

    with (
        replaced(slices_module, "expired_before", wrong),
        replaced(expiry_module, "expired_before", wrong),
    ):
        yield


@mistake(within=40, features="slices stated", variants="reference", first=19)
def a_longer_slice_is_taken_where_it_ends_one_too_far() -> Context:
    """At the end of a span, a slice of a longer level is taken although it reaches one short slice
    over the end."""

    def wrong(
        levels: Sequence[SliceLevel], span: SliceSpan, beyond: bool = False
    ) -> Iterator[SlicePiece]:
        longer = SliceSpan(span.start_us, span.end_us + levels[0].size_us * (len(levels) > 1))
        for piece in pieces(levels, longer, beyond):
            if piece.start_us < span.end_us:
                yield piece

    return replaced(slices_module, "pieces", wrong)


@mistake(within=40, features="slices columns", variants="pairs shards")
def a_bundle_in_columns_replaces_what_a_slice_holds() -> Context:
    """Of a slice that a bundle in columns touches, the accumulator is the bundle's alone."""
    right = SliceCells.merge

    def wrong(self: SliceCells, parts: Iterable[tuple[bytes, StoredSlice]]) -> bool:
        found = dict(parts)
        for cell_key in found:
            self._overlay.delete(cell_key)
        self.forget(found)
        return right(self, found.items())

    return replaced(SliceCells, "merge", wrong)
