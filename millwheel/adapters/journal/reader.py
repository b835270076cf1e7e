"""Reads segments of the append form: the chain of headers, the valid groups, and the rules for
damage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from millwheel.adapters.journal.folder import SegmentFolder
from millwheel.adapters.spaces.durable import read_open
from millwheel.core.formats.journal_segment import (
    JournalEnd,
    OpenedSegment,
    Prefix,
    SegmentKind,
    decode_entries,
    decode_header,
    find_later_group,
    is_room,
    valid_prefix,
)
from millwheel.errors import CorruptionError

_LIST_TRIES = 10  # listings of a folder that changes while it is read


@dataclass(frozen=True, slots=True)
class LoadedSegment:
    """A segment in memory."""

    number: int
    data: bytes
    opened: OpenedSegment


def load_segment(folder: SegmentFolder, number: int, fd: int) -> LoadedSegment:
    """Read a segment and check that it is the one it should be."""
    data = read_open(folder.files, fd)
    try:
        opened = decode_header(data)
    except CorruptionError as ex:
        raise folder.damaged(number, 0, str(ex)) from ex
    header = opened.header
    if (header.incarnation, header.segment, header.kind) != (
        folder.incarnation,
        number,
        SegmentKind.DATA,
    ):
        raise folder.damaged(
            number,
            0,
            f"it is segment {header.segment} of {header.incarnation} ({header.kind.name})",
        )
    return LoadedSegment(number, data, opened)


def valid_part(folder: SegmentFolder, segment: LoadedSegment, fd: int) -> Prefix:
    """The valid groups of the last segment. A torn group may follow them, but no whole one.

    A read is not atomic against a writer that is still alive: it may catch the start of a group
    before it was written, and its end and the next one after. A second look settles that.
    """
    prefix = valid_prefix(segment.data, segment.opened)
    if find_later_group(segment.data, segment.opened, prefix) < 0:
        return prefix
    data = read_open(folder.files, fd)
    again = valid_prefix(data, segment.opened)
    later = find_later_group(data, segment.opened, again)
    if again.end == prefix.end and later >= 0:
        what = f"group {prefix.next_group} fails its checksum, and a whole one follows at {later}"
        raise folder.damaged(segment.number, prefix.end, what)
    return prefix


def open_segments(folder: SegmentFolder) -> dict[int, int]:
    """All segments, opened (number -> fd, oldest first), so that none can vanish while we read."""
    for _ in range(_LIST_TRIES):
        opened: dict[int, int] = {}
        try:
            for number in folder.segments():
                opened[number] = folder.files.open_read(folder.segment_path(number))
        except FileNotFoundError:  # its writer deleted it between the listing and the opening
            close_all(folder, opened.values())
            continue
        except BaseException:
            close_all(folder, opened.values())
            raise
        return opened
    raise CorruptionError(
        f"{folder.path}: segments are listed that cannot be opened. Check the file system"
    )


def close_all(folder: SegmentFolder, fds: Iterable[int]) -> None:
    """Close the files that :func:`open_segments` opened."""
    for fd in list(fds):
        with suppress(OSError):
            folder.files.close(fd)


def check_chain(folder: SegmentFolder, numbers: Sequence[int]) -> None:
    """Check that no segment is missing between existing ones. Older ones may be gone."""
    for number, following in pairwise(numbers):
        if following != number + 1:
            folder.refuse_gap(number + 1)


def read_segments(folder: SegmentFolder, end: JournalEnd | None) -> Iterator[list[bytes]]:
    """The entries of every group before ``end``, or, if that is None, of all groups that are
    durable now."""
    opened = open_segments(folder)
    try:
        numbers = [number for number in opened if end is None or number <= end.segment]
        check_chain(folder, numbers)
        if end is not None and end.segment > 0 and end.segment not in opened:
            folder.refuse_gap(end.segment)
        group = 0
        for number in numbers:
            segment = load_segment(folder, number, opened[number])
            first = segment.opened.header.first_group
            # Groups are missing between two segments, and with them commits of shards that have
            # none behind the gap, so that the number of no commit would show it.
            if group and first != group:
                raise folder.damaged(
                    number,
                    0,
                    f"it starts with group {first}, the segment before ends before {group}",
                )
            prefix = _expected_part(folder, segment, opened[number], end, number == numbers[-1])
            for body in prefix.bodies:
                yield decode_entries(segment.data, body)
            group = prefix.next_group
    finally:
        close_all(folder, opened.values())


def _expected_part(
    folder: SegmentFolder, segment: LoadedSegment, fd: int, end: JournalEnd | None, is_last: bool
) -> Prefix:
    """The groups that must be there: all of an older segment, those before a sealed end, the valid
    ones else."""
    if is_last and end is None:
        return valid_part(folder, segment, fd)
    stop = end.offset if is_last and end is not None else len(segment.data)
    prefix = valid_prefix(segment.data, segment.opened, stop)
    if prefix.end != stop and (is_last or not is_room(segment.data, prefix.end)):
        what = f"group {prefix.next_group} is not whole, but the journal goes on to offset {stop}"
        raise folder.damaged(segment.number, prefix.end, what)
    return prefix
