"""Reads an append-form journal from a position in the middle: as it grows, or the rest of a sealed
one.

A reader of a growing journal may trust a group once another group or segment follows it.
A writer continues only after it has made a group durable and has then found no seal, so a later
sealer counts that group. The newest group may have been written behind a sealed end, or be lost
with the power: it is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millwheel.adapters.journal.folder import SegmentFolder
from millwheel.adapters.ports import Followed
from millwheel.core.formats.journal_segment import (
    GROUP_HEADER_BYTES,
    HEADER_BYTES,
    JournalEnd,
    JournalPosition,
    OpenedSegment,
    Prefix,
    SegmentKind,
    decode_entries,
    decode_header,
    is_room,
    unpack_end,
    valid_prefix,
)
from millwheel.errors import CorruptionError, invariant


def certain_groups(folder: SegmentFolder, since: JournalPosition | None) -> Followed:
    """The certain groups of one segment behind ``since`` (None: from the oldest segment).

    Raises FencedError or CorruptionError if the segments there were deleted.
    """
    numbers = folder.segments()
    if since is None:
        if not numbers:
            return Followed([], None)
        since = JournalPosition(numbers[0], 0, 0)
    # Listed before it is read: a segment with another one behind it does not grow.
    finished = since.segment < max(numbers, default=0)
    data, opened = _rest(folder, since)
    prefix = valid_prefix(data, opened)
    if finished:
        _check_whole(folder, since, prefix, len(data), data)
        return Followed(
            _entries(data, prefix),
            JournalPosition(since.segment + 1, 0, prefix.next_group),
            whole=False,
        )
    return _without_newest(since, data, opened, prefix)


def _without_newest(
    since: JournalPosition, data: bytes, opened: OpenedSegment, prefix: Prefix
) -> Followed:
    # Not the newest: its writer may find a seal behind it, and then it never counted. A standby
    # that had applied it could not take it back (mutation newest_group_believed).
    certain = prefix.bodies[:-1]
    end = prefix.bodies[-1][0] - GROUP_HEADER_BYTES if prefix.bodies else opened.start
    position = JournalPosition(
        since.segment, since.offset + end, opened.header.first_group + len(certain)
    )
    # Position and groups go on together: a follower that skips a group lacks its commits.
    invariant(position >= since or not since.offset, f"{since} is followed by {position}")
    return Followed([decode_entries(data, body) for body in certain], position)


def groups_between(
    folder: SegmentFolder, since: JournalPosition, upto: int
) -> Iterator[list[bytes]]:
    """The entries of every group from ``since`` to the sealed end. Raises CorruptionError when the
    end lies before ``since``."""
    end = unpack_end(upto)
    if JournalEnd(since.segment, since.offset) > end and since.offset:
        raise CorruptionError(f"{folder.path} was followed to {since}, but it was sealed at {end}")
    while (since.segment, since.offset) < (end.segment, end.offset):
        data, opened = _rest(folder, since)
        stop = end.offset - since.offset if since.segment == end.segment else len(data)
        prefix = valid_prefix(data, opened, stop)
        _check_whole(folder, since, prefix, stop, data if since.segment < end.segment else b"")
        yield from _entries(data, prefix)
        since = JournalPosition(since.segment + 1, 0, prefix.next_group)


def _entries(data: bytes, prefix: Prefix) -> list[list[bytes]]:
    return [decode_entries(data, body) for body in prefix.bodies]


def _check_whole(
    folder: SegmentFolder, since: JournalPosition, prefix: Prefix, stop: int, data: bytes
) -> None:
    """``data``: all of a segment that is not the last, and may end in unused room; b"" for another
    one."""
    if prefix.end != stop and not (data and is_room(data, prefix.end)):
        what = f"group {prefix.next_group} is not whole, but the journal goes on"
        raise folder.damaged(since.segment, since.offset + prefix.end, what)


def _rest(folder: SegmentFolder, position: JournalPosition) -> tuple[bytes, OpenedSegment]:
    """The bytes behind a position, and the segment's header as if the segment began there."""
    try:
        fd = folder.files.open_read(folder.segment_path(position.segment))
    except FileNotFoundError:
        folder.refuse_gap(position.segment)
    try:
        opened = decode_header(_read(folder, fd, 0, HEADER_BYTES))
        header = opened.header
        if (header.incarnation, header.segment, header.kind) != (
            folder.incarnation,
            position.segment,
            SegmentKind.DATA,
        ):
            raise folder.damaged(
                position.segment, 0, f"it is segment {header.segment} of {header.incarnation}"
            )
        if not position.offset and position.group not in (0, header.first_group):
            raise folder.damaged(
                position.segment,
                0,
                f"it starts with group {header.first_group}, not {position.group}",
            )
        data = _read(folder, fd, position.offset, folder.files.size(fd) - position.offset)
    finally:
        folder.files.close(fd)
    if not position.offset:
        return data, opened
    return data, replace(opened, start=0, header=replace(header, first_group=position.group))


def _read(folder: SegmentFolder, fd: int, offset: int, size: int) -> bytes:
    """Up to ``size`` bytes, fewer at the end of the file."""
    parts: list[bytes] = []
    while size > 0 and (part := folder.files.read_at(fd, size, offset)):
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)
