"""The create form: group commit *n* is the object *n*, created if absent; the seal is the number
behind the newest.

The writer has one create in flight at a time, so the numbers have no holes, and the number that the
sealer takes is the one the writer would take next: one of the two creates fails. Nothing is ever
written in place. How a sealer gets that number is described in
:mod:`millwheel.adapters.journal.numbers`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence

from millwheel.adapters.journal.folder import COLLECTED, JournalFolder, segment_name
from millwheel.adapters.journal.numbers import (
    KEPT_GROUPS,
    first_group,
    load,
    look,
    take_end,
    top_of,
)
from millwheel.adapters.ports import Followed
from millwheel.adapters.spaces.files import explained
from millwheel.core.formats.journal_segment import (
    PUT_ID_BYTES,
    JournalEnd,
    JournalPosition,
    OpenedSegment,
    SegmentHeader,
    SegmentKind,
    decode_entries,
    decode_header,
    encode_group,
    encode_header,
    unpack_end,
    valid_prefix,
)
from millwheel.errors import CorruptionError, InvariantError, MillwheelError, invariant

_AT_ONCE = 1_000
"""The most groups that are followed in one call."""


class CreateForm:
    """One object for each group commit."""

    def create(self, folder: JournalFolder) -> CreateWriter:
        return CreateWriter(folder)

    def seal(self, folder: JournalFolder) -> int:
        return JournalEnd(take_end(folder), 0).packed()

    def read(
        self, folder: JournalFolder, upto: int, since: JournalPosition | None = None
    ) -> Iterator[list[bytes]]:
        """The entries of all groups before the seal; of a live journal those that exist now."""
        if since is not None and upto >= 0:
            first, end = since.group, unpack_end(upto).segment
            if first > end:
                raise CorruptionError(
                    f"{folder.path} was followed to group {first}, but it was sealed at {end}"
                )
        else:
            top = top_of(folder)
            end = unpack_end(upto).segment if upto >= 0 else top.newest + 1
            first = _still_there(folder, first_group(folder, top, end), end)
            if upto >= 0 and first >= end > 1:
                folder.refuse_gap(end - 1)
        for number in range(first, end):
            data, opened = load(folder, number)
            if opened.header.kind is SegmentKind.SEAL:
                raise folder.damaged(number, 0, f"it is a seal, but the journal goes on to {end}")
            yield _entries(folder, number, data, opened)

    def follow(self, folder: JournalFolder, since: JournalPosition | None) -> Followed:
        """A group counts once there is another one behind it: its create has returned, so its name
        is durable, too."""
        number = since.group if since is not None else _oldest(folder)
        groups: list[list[bytes]] = []
        newest = _group(folder, number)
        while (
            newest is not None
            and len(groups) < _AT_ONCE
            and (after := _group(folder, number + 1)) is not None
        ):
            groups.append(newest)
            newest, number = after, number + 1
        # At every number but the first there was a group.
        if (
            newest is None
            and (number > 1 or top_of(folder).newest)
            and _group(folder, number) is None
        ):
            folder.refuse_gap(number)
        return Followed(groups, JournalPosition(number, 0, number), whole=len(groups) < _AT_ONCE)

    def collect(self, folder: JournalFolder) -> None:
        end = top_of(folder).end
        if not end:
            raise InvariantError(
                f"{folder.path} is not sealed: only journals of dead workers are collected"
            )
        folder.begin_collecting(self.read(folder, JournalEnd(end, 0).packed()), end)
        for name in folder.names():
            if name not in (COLLECTED, segment_name(end)):
                folder.delete(name)


def _still_there(folder: JournalFolder, first: int, end: int) -> int:
    """The oldest group, which was ``first`` in a listing. Its writer deletes unneeded groups,
    oldest first, and its last request may arrive after its death: see
    test_the_last_delete_of_a_dead_writer_is_no_gap."""
    while first < end - 1 and not folder.exists(segment_name(first)):
        first += 1
    return first


def _oldest(folder: JournalFolder) -> int:
    top = top_of(folder)
    return first_group(folder, top, top.newest + 1)


def _group(folder: JournalFolder, number: int) -> list[bytes] | None:
    """The entries of a group; None when the number is free, or a seal has it."""
    content = look(folder, number)
    if content is None or content[1].header.kind is SegmentKind.SEAL:
        return None
    return _entries(folder, number, *content)


def _entries(folder: JournalFolder, number: int, data: bytes, opened: OpenedSegment) -> list[bytes]:
    prefix = valid_prefix(data, opened)
    if len(prefix.bodies) != 1 or prefix.end != len(data):
        raise folder.damaged(number, prefix.end, "its group fails its checksum")
    return decode_entries(data, prefix.bodies[0])


class CreateWriter:
    """The writer of one incarnation. ``commit`` is for one thread, the rest for any."""

    quick = False

    def __init__(self, folder: JournalFolder) -> None:
        self._folder = folder
        self._put_id = os.urandom(PUT_ID_BYTES)
        self._lock = threading.Lock()  # guards the two collections of groups
        self._groups: list[int] = []
        self._forgotten: set[int] = set()
        self._broken: MillwheelError | None = None
        self._next = 1
        # Takes number 1. If a sealer has it, this journal has ended before it began.
        self.commit(())

    def commit(self, entries: Sequence[bytes]) -> int:
        """See :class:`millwheel.adapters.ports.JournalWriter`. A group that may have been created
        is tried again by the next call with the same entries: the same bytes under the same number
        are the same group.

        Without entries this creates an empty group. To look for the seal would be cheaper, but a
        network file system may answer from a cache that the name is free; a create is never
        answered from one.
        """
        if self._broken is not None:
            raise self._broken
        try:
            self._create(entries)
        except OSError as ex:
            raise explained(ex, f"create {self._folder.segment_path(self._next)}") from ex
        return self._next - 1

    def _create(self, entries: Sequence[bytes]) -> None:
        head = encode_header(
            SegmentHeader(self._folder.incarnation, self._next, self._next, self._put_id)
        )
        group = encode_group(decode_header(head).seed, self._next, entries)
        if not self._folder.create(segment_name(self._next), head + group):
            # A sealer has the number: readers stop there, and would never see our later groups.
            self._broken = self._folder.fenced()
            raise self._broken
        with self._lock:
            # To a sealer, a hole is the end of the journal.
            invariant(
                not self._groups or self._groups[-1] == self._next - 1,
                f"{self._folder.path}: group {self._next} follows {self._groups[-1:]}",
            )
            self._groups.append(self._next)
            self._next += 1

    def segments(self) -> Sequence[int]:
        """See :class:`millwheel.adapters.ports.JournalWriter`. Every group is a segment of its
        own."""
        with self._lock:
            return [group for group in self._groups if group not in self._forgotten]

    def delete_segment(self, segment: int) -> None:
        """See :class:`millwheel.adapters.ports.JournalWriter`. A group stays while an older one is
        needed, or as one of the newest :data:`KEPT_GROUPS`."""
        with self._lock:
            invariant(segment < self._next - 1, f"group {segment} is the newest one and stays")
            if segment in self._groups:
                self._forgotten.add(segment)
            while len(self._groups) > KEPT_GROUPS and self._groups[0] in self._forgotten:
                self._unlink(self._groups[0])
                self._forgotten.discard(self._groups.pop(0))

    def _unlink(self, group: int) -> None:
        try:
            self._folder.delete(segment_name(group))
        except OSError as ex:
            raise explained(ex, f"delete {self._folder.segment_path(group)}") from ex

    def close(self) -> None:
        """See :class:`millwheel.adapters.ports.JournalWriter`."""
        self._broken = self._broken or InvariantError(f"the journal {self._folder.path} is closed")
