"""A root with journals, on a real directory or on a disk in memory that can lose power."""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.adapters.durable import make_dirs
from millwheel.adapters.files import Files
from millwheel.adapters.journal_files import FileJournals
from tests.fakes.faulty_files import FaultyFiles
from tests.fakes.memory_disk import MemoryDisk

FORMS = ("append", "create")


@dataclass
class World:
    """A root, the files it is on, and the form of its journals."""

    root: str
    files: Files
    form: str

    def journals(self, files: Files | FaultyFiles | None = None, segment_bytes: int = 64 << 20) -> FileJournals:
        return FileJournals(self.root, self.form, segment_bytes, files or self.files)

    def read(self, incarnation: str = "w1", upto: int = -1) -> list[bytes]:
        return list(self.journals().read(incarnation, upto))

    def path(self, segment: int, incarnation: str = "w1") -> str:
        return f"{self.root}/journal/{incarnation}/{segment:08d}.log"

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


def memory_world(form: str) -> World:
    disk = MemoryDisk()
    make_dirs(disk, "/root")
    return World("/root", disk, form)
