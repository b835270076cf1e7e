"""Deliberate mistakes in joins without a window that take whole bundles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from millwheel.core.columns.pairs import INPUT
from millwheel.core.columns.state.alone_rows import AloneRows
from millwheel.core.columns.state.near_pairs import NearPairing, NearRows
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.engine.workers.operators.keyed_joins import regular_columns
from millwheel.engine.workers.operators.keyed_joins.interval import NearRow
from millwheel.engine.workers.operators.keyed_joins.regular import RegularJoined
from millwheel.engine.workers.operators.keyed_joins.regular_columns import LastingJoinOperator
from millwheel.engine.workers.state import archive
from millwheel.engine.workers.state.archive import Archive
from millwheel.engine.workers.state.keyed_state import KeyedState
from millwheel.engine.workers.state.overlay import Overlay
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=10, features="near_in_columns", variants="together pairs", first=8)
def in_columns_all_records_of_a_key_are_near_each_other() -> Context:
    """Whole bundles are joined by their keys alone."""

    def wrong(self: Any, side: int, at: Any, values: Any) -> Any:
        return at * 0 + MIN_TIME, at * 0 + MAX_TIME

    return replaced(NearPairing, "_partners", wrong)


@mistake(within=10, features="near_in_columns", variants="together pairs")
def records_of_one_bundle_do_not_meet_each_other_in_columns() -> Context:
    """New records meet only those that were kept before."""
    right = NearPairing.pairs

    def wrong(
        self: NearPairing, new: Sequence[pl.DataFrame], kept: Any, watermark: Any
    ) -> pl.DataFrame | None:
        found = [right(self, [each], kept, watermark) for each in new]
        frames = [each for each in found if each is not None]
        return pl.concat(frames) if frames else None

    return replaced(NearPairing, "pairs", wrong)


@mistake(within=1, features="near_in_columns", variants="crashes", first=12)
def what_columns_keep_for_a_join_is_gone_with_the_worker() -> Context:
    """The next owner begins with nothing. (A crash between two records that are near.)"""

    def wrong(self: NearRows, number: int, *parts: Any) -> None:
        self._changes.gone.append(number)
        self._next_number = max(self._next_number, number + 1)

    return replaced(NearRows, "restore", wrong)


@mistake(within=4, features="near_in_columns", first=6, variants="large large-crashes")
def keys_that_rows_have_are_joined_in_columns_as_well() -> Context:
    """Nobody asks which keys are in rows. (Some have left the columns.)"""

    def wrong(self: KeyedState, keys: Sequence[Key]) -> set[Key]:
        return set()

    return replaced(KeyedState, "held", wrong)


@mistake(within=4, features="all_in_columns", first=7, variants="large-little")
def records_in_columns_do_not_meet_those_in_rows() -> Context:
    """Nobody asks what rows keep. (Some has left the columns.)"""

    def wrong(self: LastingJoinOperator, batches: Any, taken: Any) -> set[Key]:
        return set()

    return replaced(LastingJoinOperator, "_recall", wrong)


@mistake(within=4, features="all_in_columns", first=4, variants="large large-crashes")
def records_in_columns_do_not_meet_the_archive() -> Context:
    """What has left memory has no partners any more."""
    return replaced(Archive, "of_keys", lambda self, *parts: [])


@mistake(within=4, features="all_in_columns", first=5, variants="large large-crashes")
def what_leaves_memory_forgets_equal_records() -> Context:
    """Of equal records of a key, the archive keeps one."""
    right = Archive.add

    def wrong(self: Archive, groups: Iterable[pl.DataFrame], overlay: Overlay) -> None:
        right(self, [frame.unique(maintain_order=True) for frame in groups], overlay)

    return replaced(Archive, "add", wrong)


@mistake(within=4, features="all_in_columns", first=2, variants="large large-crashes")
def what_leaves_memory_replaces_what_the_archive_has() -> Context:
    """Records leave for the second time, and what has left before is gone."""
    right = Archive.add

    def wrong(self: Archive, *parts: Any) -> None:
        self._segments.clear()
        right(self, *parts)

    return replaced(Archive, "add", wrong)


@mistake(within=4, features="all_in_columns", first=4, variants="large-little")
def rows_do_not_find_what_the_archive_has_of_their_keys() -> Context:
    """It stays there as a key goes on in rows."""
    return replaced(Archive, "taken_out", lambda self, *parts: [])


@mistake(within=4, features="all_in_columns", first=16, variants="large-little")
def a_block_goes_whole_as_one_of_its_keys_does() -> Context:
    """The other keys have lost what the archive had of them."""

    def wrong(segment: Any, store_key: bytes, rest: Any, overlay: Overlay) -> None:
        overlay.delete(store_key)

    return replaced(archive, "_rewrite", wrong)


@mistake(within=4, features="all_in_columns", first=1, variants="large-crashes")
def an_archive_is_gone_with_the_worker() -> Context:
    """The next owner begins with nothing."""
    right = Archive.__init__

    def wrong(self: Archive, *parts: Any) -> None:
        right(self, *parts)
        self._segments.clear()

    return replaced(Archive, "__init__", wrong)


@mistake(within=4, features="all_in_columns", first=5, variants="large-little")
def what_goes_on_in_rows_forgets_equal_records() -> Context:
    """Of equal records of a key, rows keep one."""
    right = RegularJoined.keep

    def wrong(self: RegularJoined, ctx: Any, side: int, rows: Sequence[NearRow]) -> None:
        right(self, ctx, side, list({row.data: row for row in rows}.values()))

    return replaced(RegularJoined, "keep", wrong)


@mistake(within=4, features="all_in_columns", first=6, variants="large large-crashes")
def a_join_keeps_an_entry_for_a_stream_without_rows() -> Context:
    """What was read is written, whether or not there is anything."""
    right = RegularJoined._store

    def wrong(self: RegularJoined, side: int) -> None:
        right(self, side)
        for each, own in enumerate(self._sides):
            self._side(each).set(own)

    return replaced(RegularJoined, "_store", wrong)


def _told(change: Callable[[list[AloneRows]], list[AloneRows]]) -> Context:
    """What stands alone is told otherwise."""
    right = regular_columns.alone_changes  # type: ignore[attr-defined]
    return replaced(regular_columns, "alone_changes", lambda *given: change(right(*given)))


@mistake(within=4, features="alone_in_columns", variants="reference", first=9)
def what_stood_alone_in_columns_is_not_taken_back() -> Context:
    """Its first partner comes in another bundle."""
    return _told(lambda found: [each for each in found if each.sign > 0])


@mistake(within=4, features="alone_in_columns", variants="reference", first=8)
def nothing_stands_alone_in_columns() -> Context:
    """Only pairs are said, as of an inner join."""
    return _told(lambda found: [])


@mistake(within=4, features="alone_in_columns", variants="reference")
def each_partner_takes_back_what_stands_alone_in_columns() -> Context:
    """Nobody asks whether there was a partner before."""
    right = regular_columns.alone_changes  # type: ignore[attr-defined]

    def wrong(kind: Any, new: Any, kept: Sequence[pl.DataFrame]) -> list[AloneRows]:
        found: list[AloneRows] = []
        for side in range(2):
            own = [frame.filter(pl.col(INPUT) == side) for frame in kept]
            found += [each for each in right(kind, new, own) if each.side == side]
        return found

    return replaced(regular_columns, "alone_changes", wrong)


@mistake(within=8, features="alone_in_columns", variants="large-little", first=5)
def rows_forget_who_stands_alone_as_it_leaves_the_columns() -> Context:
    """All of them are taken for records with a partner."""

    def wrong(self: RegularJoined, side: int, by_key: Mapping[Key, Any]) -> set[Key]:
        return set(by_key)

    return replaced(RegularJoined, "with_partners", wrong)


@mistake(within=8, features="alone_in_columns", variants="large-little", first=7)
def what_stands_alone_in_columns_does_not_ask_rows_for_partners() -> Context:
    """Only what is in columns counts."""

    def wrong(self: LastingJoinOperator, batches: Any, taken: Any) -> set[Key]:
        return set()

    return replaced(LastingJoinOperator, "_recall", wrong)
