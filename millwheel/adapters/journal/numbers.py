"""Numbers of the create form: which objects have one, and how a sealer takes one that its writer
cannot pass.

The end of a journal is the number behind its newest group, once a seal has it. Three things make
that less simple than to create it:

- A writer that is alive may be quicker than the sealer, for ever. After losing one number, the
  sealer puts a seal further ahead, with free numbers below it. The writer cannot come past it;
  whether it runs into it, or is dead and never fills what lies between, the number behind the
  newest group is then taken in a few tries.
- A number is free again once its group was deleted. Between a sealer's look and its create the
  writer may have come past it and deleted it; a seal there fences nobody. But the newest groups are
  never deleted, so there is a newer group above it, which the next look finds.
- A sealer may die in between, and leave seals that are not the end: below the groups, or ahead of a
  free number. Their positions show which is which. Before groups of dead workers are deleted, the
  end is noted, so that nothing depends on such seals any more.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from millwheel.adapters.journal.folder import JournalFolder, segment_name
from millwheel.core.formats.journal_segment import (
    PUT_ID_BYTES,
    OpenedSegment,
    SegmentHeader,
    SegmentKind,
    decode_header,
    encode_header,
)
from millwheel.errors import CorruptionError, UnavailableError, invariant

KEPT_GROUPS = 8
"""The newest groups are kept even if they are not needed. One would be enough if a listing were
atomic."""
_FURTHER = 4  # how many times further ahead a sealer tries when the writer was quicker
_TRIES = 100  # attempts to seal: the last ones are far ahead of any writer


@dataclass(frozen=True, slots=True)
class Top:
    """The newest group (0: none), the seals above it from low to high, all numbers there are, and
    where the sealed journal ends (0: it is not sealed)."""

    newest: int
    seals: Sequence[int]
    numbers: Sequence[int]
    end: int


def top_of(folder: JournalFolder) -> Top:
    """Look at the upper end of a journal."""
    for _ in range(_TRIES):
        numbers = folder.segments()
        seals: list[int] = []
        for number in reversed(numbers):
            kind = _kind(folder, number)
            if kind is None:
                break
            if kind is SegmentKind.DATA:
                return _judged(folder, number, seals[::-1], numbers)
            seals.append(number)
        else:
            return _judged(folder, 0, seals[::-1], numbers)
    raise UnavailableError(
        f"objects that {folder.path} lists are repeatedly gone when they are read; look at the"
        " store"
    )


def _judged(
    folder: JournalFolder, newest: int, seals: Sequence[int], numbers: Sequence[int]
) -> Top:
    """The end is noted before groups are deleted: afterwards it cannot be derived from them."""
    end = (folder.collected_end() or (seals[0] if seals[0] == newest + 1 else 0)) if seals else 0
    return Top(newest, seals, numbers, end)


def take_end(folder: JournalFolder) -> int:
    """Seal the journal, and return its end, which is the same for all sealers. Our other seals are
    removed."""
    seals: list[int] = []
    ahead = 1
    while not (top := top_of(folder)).end:
        candidate = top.newest + (1 if top.seals else ahead)
        if _create_seal(folder, candidate):
            seals.append(candidate)
        ahead = min(ahead * _FURTHER, 1 << 20)
    # A seal below a group fences nobody: its writer has come past it.
    invariant(top.end > top.newest, f"{folder.path} ends at {top.end}, and has group {top.newest}")
    for number in seals:
        if number != top.end:
            folder.delete(segment_name(number))
    return top.end


def load(folder: JournalFolder, number: int) -> tuple[bytes, OpenedSegment]:
    """A number's content. Raises CorruptionError, or FencedError when the journal was collected, if
    there is none."""
    content = look(folder, number)
    if content is None:
        folder.refuse_gap(number)
    return content


def look(folder: JournalFolder, number: int) -> tuple[bytes, OpenedSegment] | None:
    """A number's content, None when it is free."""
    try:
        data = folder.space.get(folder.segment_path(number))
    except FileNotFoundError:
        return None
    return data, _opened(folder, number, data)


def first_group(folder: JournalFolder, top: Top, end: int) -> int:
    """The oldest group before ``end``; ``end`` when there is none. Numbers below the groups belong
    to seals of sealers that were too slow, and died."""
    present = (number for number in top.numbers if number < end)
    return next(
        (number for number in present if _kind(folder, number) is not SegmentKind.SEAL), end
    )


def _kind(folder: JournalFolder, number: int) -> SegmentKind | None:
    """The object with a number. None if it is gone: it was a group, which its writer has
    deleted."""
    content = look(folder, number)
    return None if content is None else content[1].header.kind


def _opened(folder: JournalFolder, number: int, data: bytes) -> OpenedSegment:
    try:
        opened = decode_header(data)
    except CorruptionError as ex:
        raise folder.damaged(number, 0, str(ex)) from ex
    if (opened.header.incarnation, opened.header.segment) != (folder.incarnation, number):
        raise folder.damaged(
            number, 0, f"it is number {opened.header.segment} of {opened.header.incarnation}"
        )
    return opened


def _create_seal(folder: JournalFolder, number: int) -> bool:
    # With an id of its own: of two sealers of one number only one may regard the seal as its own,
    # and remove it where the end is elsewhere.
    header = SegmentHeader(
        folder.incarnation, number, number, os.urandom(PUT_ID_BYTES), SegmentKind.SEAL
    )
    return folder.create(segment_name(number), encode_header(header))
