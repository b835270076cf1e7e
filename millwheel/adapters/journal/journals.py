"""Journals below ``root/journal``: one folder for each incarnation, in one of two forms.

    append   few large segments; a commit is one write and one fdatasync. For local disks, and for
             shared file systems on which all hosts see a write at once.
    create   every commit is an object of its own, created if absent. For object stores, NFS and
             unknown file systems.

The form is a property of the root. The first process to open the root chooses it (by the type of
the storage, unless it is given), and writes it to the file ``journal/FORM`` for all others. A seal
of one form would not fence a writer of the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import chain
from typing import Protocol

from millwheel.adapters.journal.append import AppendForm
from millwheel.adapters.journal.create import CreateForm
from millwheel.adapters.journal.folder import COLLECTED, JournalFolder, segments_in
from millwheel.adapters.ports import Followed, JournalWriter
from millwheel.adapters.spaces.files import Files, explaining
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.core.formats.journal_segment import JournalPosition
from millwheel.core.model.names import WorkerName
from millwheel.errors import CorruptionError, SetupError

SEGMENT_BYTES = 32 << 20
"""A sealer reads the last segment while the dead worker's shards wait: about a millisecond for each
of its megabytes."""

_FORM = "FORM"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
# One host, or all hosts see a write as soon as it returns (strong consistency).
_COHERENT = {
    *(
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "zfs",
        "f2fs",
        "bcachefs",
        "jfs",
        "overlay",
        "tmpfs",
        "ramfs",
    ),
    *("ceph", "lustre", "gpfs", "beegfs", "ocfs2", "gfs2"),
}

_ROOM_BYTES = 128 << 10
"""The zeros that the next groups of a journal overwrite: room for some two hundred groups of a
pipeline with few records."""
_IN_PLACE = {"ext2", "ext3", "ext4", "xfs"}
"""File systems that write over a block where it lies. Those that write elsewhere (btrfs, zfs) gain
nothing by room."""


class JournalForm(str, Enum):
    """How journals are stored. AUTO asks the root, then its file system."""

    AUTO = "auto"
    APPEND = "append"
    CREATE = "create"


class _Form(Protocol):
    """The operations that differ between the forms."""

    def create(self, folder: JournalFolder) -> JournalWriter: ...

    def seal(self, folder: JournalFolder) -> int: ...

    def read(
        self, folder: JournalFolder, upto: int, since: JournalPosition | None
    ) -> Iterator[list[bytes]]: ...

    def follow(self, folder: JournalFolder, since: JournalPosition | None) -> Followed: ...

    def collect(self, folder: JournalFolder) -> None: ...


class FileJournals:
    """The journals port on storage that all workers and masters share: a directory, or ``space``.

    ``form`` is "auto", "append" or "create"; a segment of the append form is closed once it has
    ``segment_bytes``, and small groups overwrite ``room_bytes`` of zeros (None: where the file
    system gains by it). Raises SetupError when the root cannot be used, or holds journals of
    another form than asked for.
    """

    def __init__(
        self,
        root: str,
        form: JournalForm | str = JournalForm.AUTO,
        segment_bytes: int = SEGMENT_BYTES,
        files: Files | None = None,
        space: ObjectSpace | None = None,
        room_bytes: int | None = None,
    ) -> None:
        self._space = space or FolderSpace(root, files)
        self._path = f"{self._space.root}/journal"
        with explaining(f"open the journals below {self._path}"):
            self._space.prepare(self._path)
            self.form = self._settle(JournalForm(form))
        self._form = self._made(segment_bytes, room_bytes)

    def _made(self, segment_bytes: int, room_bytes: int | None) -> _Form:
        if self.form is JournalForm.CREATE:
            return CreateForm()
        if isinstance(self._space, FolderSpace):
            if room_bytes is None:
                room_bytes = _ROOM_BYTES if self._space.kind() in _IN_PLACE else 0
            return AppendForm(self._space.files, segment_bytes, room_bytes)
        raise SetupError(
            f"{self._path} cannot hold journals of the append form, which write into the middle of"
            " files: leave the form on auto"
        )

    def _settle(self, requested: JournalForm) -> JournalForm:
        """The form of this root: that of its file, else ours, which is then published."""
        path = f"{self._path}/{_FORM}"
        if not self._space.exists(path):
            chosen = self._suited() if requested is JournalForm.AUTO else requested
            self._space.create(path, f"{chosen.value}\n".encode())
        self._space.settle(self._path)  # another process may have made it, and died since
        text = self._space.get(path).decode(errors="replace").strip()
        if text not in (JournalForm.APPEND.value, JournalForm.CREATE.value):
            raise CorruptionError(
                f"{path} says {text!r}; write the form of the journals there: append or create"
            )
        if requested not in (JournalForm.AUTO, text):
            raise SetupError(
                f"{self._path} holds journals of the {text} form, but {requested.value} was asked"
                " for: leave the form on auto, or use a new root"
            )
        return JournalForm(text)

    def _suited(self) -> JournalForm:
        return JournalForm.APPEND if self._space.kind() in _COHERENT else JournalForm.CREATE

    def create(self, incarnation: str) -> JournalWriter:
        """See :class:`millwheel.adapters.ports.Journals`."""
        folder = self._folder(incarnation)
        with explaining(f"create the journal {folder.path}"):
            folder.claim()
            return self._form.create(folder)

    def seal(self, incarnation: str) -> int:
        """See :class:`millwheel.adapters.ports.Journals`. Raises CorruptionError, after sealing,
        when the end is damaged."""
        folder = self._folder(incarnation)
        with explaining(f"seal the journal {folder.path}"):
            folder.ensure()
            end = self._form.seal(folder)
            # The seal may come from a master that died before it was durable.
            self._space.settle(folder.path)
            return end

    def read(
        self, incarnation: str, upto: int, since: JournalPosition | None = None, prefix: bytes = b""
    ) -> Iterator[bytes]:
        """See :class:`millwheel.adapters.ports.Journals`. Raises FencedError when the journal was
        collected meanwhile."""
        entries = chain.from_iterable(self._groups(incarnation, upto, since))
        return (entry for entry in entries if entry.startswith(prefix)) if prefix else entries

    def follow(self, incarnation: str, since: JournalPosition | None) -> Followed:
        """See :class:`millwheel.adapters.ports.Journals`."""
        folder = self._folder(incarnation)
        with explaining(f"follow the journal {folder.path}"):
            return self._form.follow(folder, since)

    def _groups(
        self, incarnation: str, upto: int, since: JournalPosition | None
    ) -> Iterator[list[bytes]]:
        folder = self._folder(incarnation)
        with explaining(f"read the journal {folder.path}"):
            if not self._space.claimed(folder.path):
                raise CorruptionError(
                    f"there is no journal {folder.path}, but the range table names it. Restore the"
                    " folder, or start the pipeline on a new root and replay its input"
                )
            if not folder.was_empty():
                yield from self._form.read(folder, upto, since)

    def incarnations(self) -> Sequence[WorkerName]:
        """All incarnations with a journal, except those whose journals are sealed, collected and
        deleted."""
        with explaining(f"list {self._path}"):
            return [
                WorkerName(name)
                for name in sorted(self._space.names(self._path))
                if self._is_kept(name)
            ]

    def _is_kept(self, name: str) -> bool:
        if not _NAME.fullmatch(name) or name == _FORM:
            return False
        names = self._space.names(f"{self._path}/{name}")
        left = 1 if self.form is JournalForm.CREATE else 0  # the seal
        return COLLECTED not in names or len(segments_in(names)) > left

    def collect(self, incarnation: str) -> None:
        """See :class:`millwheel.adapters.ports.Journals`. A crash in the middle is finished by the
        next call."""
        folder = self._folder(incarnation)
        with explaining(f"collect the journal {folder.path}"):
            self._form.collect(folder)

    def _folder(self, incarnation: str) -> JournalFolder:
        if not _NAME.fullmatch(incarnation) or incarnation == _FORM:
            raise SetupError(
                f"{incarnation!r} cannot name a worker: use letters, digits, '_', '-' and '.'"
            )
        return JournalFolder(self._space, f"{self._path}/{incarnation}", incarnation)
