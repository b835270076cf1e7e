"""A root with journals: on a real directory, on a disk in memory that can lose power, or in an
object store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from millwheel.adapters.journal.journals import FileJournals
from millwheel.adapters.spaces.durable import make_dirs
from millwheel.adapters.spaces.files import Files
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.fakes.faulty_files import FaultyFiles, Hook, ignore

FORMS = ("append", "append in room", "create")
_ROOM = 1_600  # bytes: groups of up to 200 are written over zeros, others make the file grow


@dataclass
class World:
    """A root, the form of its journals with its room, and what it is on: ``files``, or
    ``space``."""

    root: str
    files: Files
    form: str
    space: ObjectSpace | None = None
    room: int = 0

    def faulty(self, before: Hook = ignore, after: Hook = ignore) -> FaultyFiles:
        """What a process of its own sees of the root."""
        return FaultyFiles(self.space or self.files, before, after)

    def journals(
        self, through: Files | FaultyFiles | None = None, segment_bytes: int = 64 << 20
    ) -> FileJournals:
        if self.space is not None:
            return FileJournals(
                self.root, self.form, segment_bytes, space=cast("Any", through or self.space)
            )
        return FileJournals(
            self.root, self.form, segment_bytes, through or self.files, room_bytes=self.room
        )

    def read(self, incarnation: str = "w1", upto: int = -1) -> list[bytes]:
        return list(self.journals().read(incarnation, upto))

    def path(self, segment: int, incarnation: str = "w1") -> str:
        return f"{self.root}/journal/{incarnation}/{segment:08d}.log"

    def content(self, path: str) -> bytes:
        return self._objects().get(path)

    def replace(self, path: str, data: bytes) -> None:
        """Somebody tampers with what is there."""
        self.remove(path)
        self._objects().create(path, data)

    def remove(self, path: str) -> None:
        self._objects().delete(path)

    def _objects(self) -> ObjectSpace:
        return self.space or FolderSpace(self.root, self.files)

    def patch(self, path: str, offset: int, data: bytes) -> None:
        fd = self.files.open_write(path)
        self.files.write_at(fd, data, offset)
        self.files.sync(fd)
        self.files.close(fd)

    def cut(self, path: str, size: int) -> None:
        fd = self.files.open_write(path)
        self.files.truncate(fd, size)
        self.files.sync(fd)
        self.files.close(fd)


def world_on(root: str, files: Files, form: str) -> World:
    """One of the forms: in the second, there is room for groups that follow."""
    return World(root, files, form.partition(" ")[0], room=_ROOM if form.endswith("room") else 0)


def memory_world(form: str) -> World:
    disk = MemoryDisk()
    make_dirs(disk, "/root")
    return world_on("/root", disk, form)
