"""Deliberate mistakes that the search over followed files must catch, each ``within`` some seeds
from ``first`` on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import millwheel.connect.sources.files.rotation as module
from millwheel.connect.sources.files.rotation import FollowedInput
from millwheel.engine.workers.sources.partition import Part
from millwheel.engine.workers.sources.partitions import Partitions
from millwheel.engine.workers.sources.source import SourceOperator
from tests.search.mistakes import Context, SeededMistakes, replaced

MISTAKES = SeededMistakes()
mistake = MISTAKES.enlist


@mistake(within=20, first=30)
def any_commit_is_the_one_awaited() -> Context:
    """A partition is read on when any commit is durable, not the one that holds a judgement about
    its last read."""

    def wrong(self: SourceOperator, number: int, now_us: int) -> None:
        for part in self.partitions.awake.values():
            part.awaits = 0

    return replaced(SourceOperator, "durable", wrong)


@mistake(within=20)
def a_truncation_is_not_noticed() -> Context:
    """Reading goes on at the old place of a file that was truncated, so what is written first is
    skipped."""
    return replaced(FollowedInput, "_unchanged", lambda self, offset: True)


@mistake(within=30)
def a_truncation_is_forgotten_while_the_file_is_empty() -> Context:
    """What was seen once is not remembered: the file is longer when it is looked at next."""
    right = FollowedInput._truncated

    def wrong(self: FollowedInput, position: int, offset: int) -> Any:
        index = right(self, position, offset)
        self._was_cut = False
        if index.nothing:
            assert self._file is not None
            self._file = module._marked(self._fd, self._file.base, 0)
        return index

    return replaced(FollowedInput, "_truncated", wrong)


@mistake(within=40)
def files_that_are_gone_stay_open() -> Context:
    """No partition is ever forgotten, none falls asleep."""

    @contextmanager
    def never() -> Iterator[None]:
        with (
            replaced(Partitions, "_look_for_gone", lambda self, listed, now_us: None),
            replaced(Partitions, "fall_asleep", lambda self, part, now_us: None),
        ):
            yield

    return never()


@mistake(within=10)
def decisions_are_not_stored() -> Context:
    """Which file goes on where is decided again after a crash, by whoever looks then."""
    return replaced(Part, "decide", lambda self, position, note, overlay: None)


@mistake(within=20, first=40)
def what_goes_on_takes_positions_that_were_used() -> Context:
    """Where a file is gone, the next one has positions that a dead reader may have given to bytes
    of the former."""
    return replaced(module, "_LEAP", 0)


@mistake(within=20)
def a_file_is_known_by_its_number_alone() -> Context:
    """Another file that got the number of a deleted one is read on in its stead."""
    return replaced(module, "_fits", lambda fd, mark: True)


@mistake(within=20, first=345)
def only_the_last_name_counts() -> Context:
    """A file that came and was renamed while the one before it was still being read is never
    read."""

    right = FollowedInput._note_new_file

    def wrong(self: FollowedInput) -> None:
        self._followers.clear()
        right(self)

    return replaced(FollowedInput, "_note_new_file", wrong)
