"""Deliberate mistakes about the first rows of a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millwheel.core.aggregates.families.rows import ChosenRows
from millwheel.core.model.records import Record
from millwheel.core.rows import segments
from millwheel.core.rows.ranking import Ranking
from millwheel.core.rows.segments import Changed, FirstColumns, FirstRowSegments
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=10, features="top", variants="reference")
def rows_that_are_no_more_among_the_first_stay() -> Context:
    """What has left is not taken back."""
    right = Ranking.differences
    return replaced(Ranking, "differences", lambda *parts: ([], right(*parts)[1]))


@mistake(within=10, features="top places", variants="reference")
def rows_keep_the_place_that_they_came_to() -> Context:
    """Of those that others have moved down, nothing is said."""

    def wrong(self: Ranking, before: Sequence[Any], after: Sequence[Any]) -> Any:
        came = [each for each in after if all(each is not one for one in before)]
        gone = [each for each in before if all(each is not one for one in after)]
        return (
            [self._placed(each, before.index(each)) for each in gone],
            [(self._placed(each, after.index(each)), each[1]) for each in came],
        )

    return replaced(Ranking, "_shifted", wrong)


@mistake(within=30, features="top top_of_changes", variants="reference", first=114)
def no_row_waits_behind_the_first() -> Context:
    """Where rows are taken back, the next one is not known."""
    right = Ranking.changed

    def wrong(self: Ranking, *parts: Any) -> Any:
        kept, owed = right(self, *parts)
        return kept[: self._k], owed

    return replaced(Ranking, "changed", wrong)


@mistake(within=20, features="keep", variants="reference")
def the_last_record_is_the_one_that_came_last() -> Context:
    """Whatever its time."""
    right = Ranking.added

    def wrong(self: Ranking, kept: list[Any], records: Sequence[Record]) -> Any:
        return right(self, [] if self._latest else kept, records)

    return replaced(Ranking, "added", wrong)


@mistake(within=30, features="top", variants="reference", first=42)
def rows_as_good_as_the_last_are_left_out() -> Context:
    """A record that the first order puts level with the last of those kept is not looked at,
    though what stands behind that order may put it before."""
    right = ChosenRows.may_precede

    def wrong(self: ChosenRows, values: Sequence[Any], last: Any) -> Any:
        return [index for index in right(self, values, last) if values[index] != last]

    return replaced(ChosenRows, "may_precede", wrong)


@mistake(within=10, features="first_in_columns", variants="together pairs", first=2)
def rows_that_leave_the_first_in_columns_stay() -> Context:
    """What has left is not taken back."""
    right = FirstColumns.changed

    def wrong(self: FirstColumns, *parts: Any) -> Changed | None:
        changed = right(self, *parts)
        return changed and replace(changed, gone=changed.gone.part(0, 0))

    return replaced(FirstColumns, "changed", wrong)


@mistake(within=10, features="first_in_columns", variants="crashes", first=11)
def first_rows_in_columns_are_gone_with_the_worker() -> Context:
    """The next owner begins with nothing."""

    def wrong(self: FirstRowSegments, number: int, *parts: Any) -> None:
        self._changes.gone.append(number)
        self._next_number = max(self._next_number, number + 1)

    return replaced(FirstRowSegments, "restore", wrong)


@mistake(within=10, features="first_in_columns", variants="together pairs", first=2)
def rows_in_older_segments_are_first_rows_still() -> Context:
    """What a newer segment has of a key replaces nothing."""
    right = segments.newest_of  # type: ignore[attr-defined]

    def wrong(keys: Any, kept: Any) -> Any:
        return right(keys, kept[::-1])

    return replaced(segments, "newest_of", wrong)
