"""A disk in memory that distinguishes written from synced data, for the simulator and the contract
tests.

Directory operations keep their order, as in journaling file systems: after a power cut a directory
has the synced operations and some prefix of the later ones. Of an unsynced file, any part of the
data appended or written over since its last sync may survive.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from millwheel.adapters.spaces.files import FileIdentity

Choice = Callable[[int], int]
"""Given n, how many of n unsynced bytes or operations survive."""


UNLIMITED = 1 << 40  # Fixed: more bytes than there are


def nothing(_: int) -> int:
    """The choice of a power cut that loses everything unsynced."""
    return 0


@dataclass(eq=False)
class _File:
    inode: int
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    modified: int = 0


@dataclass(eq=False)
class _Folder:
    """``pending`` are operations since the last sync: (name, node or None when it was removed)."""

    entries: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)
    pending: list[tuple[str, _File | _Folder | None]] = field(default_factory=list)

    def put(self, name: str, node: _File | _Folder) -> None:
        self.entries[name] = node
        self.pending.append((name, node))

    def drop(self, name: str) -> None:
        del self.entries[name]
        self.pending.append((name, None))

    def sync(self) -> None:
        self.synced = dict(self.entries)
        self.pending = []

    def crash(self, choose: Choice) -> None:
        survived = dict(self.synced)
        for name, node in self.pending[: choose(len(self.pending))]:
            if node is None:
                survived.pop(name, None)
            else:
                survived[name] = node
        self.entries = survived
        self.sync()


class MemoryDisk:
    """Implements :class:`millwheel.adapters.spaces.files.Files`. One disk is shared by all
    processes of a test.

    ``room`` limits the total bytes of all files; writes beyond it fail with ENOSPC.
    """

    def __init__(self, room: int = UNLIMITED) -> None:
        self.room = room
        self._root = _Folder()
        self._known: dict[str, _Folder] = {}  # folders by path, since the last one went
        self._fds: dict[int, _File] = {}
        self._numbers = 0

    # --- faults of a disk

    def crash(self, lose_unsynced: bool = True, choose: Choice = nothing) -> None:
        """End every process and close every file. With ``lose_unsynced`` (a power cut), unsynced
        data is lost as well, except the part that ``choose`` keeps."""
        self._fds.clear()
        if not lose_unsynced:
            return
        self._known.clear()
        # With nothing to choose, what is synced is left alone: most of an old disk is.
        every = choose is not nothing
        for folder in self._folders():
            if every or folder.pending:
                folder.crash(choose)
        for file in {file.inode: file for file in self._files()}.values():
            if every or file.data != file.synced:
                synced = _written_over(file.synced, bytes(file.data[: len(file.synced)]), choose)
                tail = bytes(file.data[len(file.synced) :])
                file.data = bytearray(synced + tail[: choose(len(tail))])
                file.synced = bytes(file.data)

    def _folders(self) -> list[_Folder]:
        """All folders, each before those in it."""
        folders, rest = [], [self._root]
        while rest:
            folder = rest.pop()
            folders.append(folder)
            rest += [node for node in folder.entries.values() if type(node) is _Folder][::-1]
        return folders

    def _files(self) -> Iterator[_File]:
        for folder in self._folders():
            yield from (node for node in folder.entries.values() if type(node) is _File)

    # --- names

    def make_dir(self, path: str) -> None:
        folder, name = self._entry_of(path)
        if name in folder.entries:
            raise _error(errno.EEXIST, path)
        folder.put(name, _Folder())

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._folder(path).entries)

    def remove_dir(self, path: str) -> None:
        if self._folder(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        folder, name = self._entry_of(path)
        folder.drop(name)
        self._known.clear()

    def sync_dir(self, path: str) -> None:
        self._folder(path).sync()

    def exists(self, path: str) -> bool:
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    def identity(self, path: str) -> FileIdentity:
        file = self._file(path)
        return FileIdentity(1, file.inode, len(file.data), file.modified)

    def link(self, source: str, target: str) -> None:
        file = self._file(source)
        folder, name = self._entry_of(target)
        if name in folder.entries:
            raise _error(errno.EEXIST, target)
        folder.put(name, file)

    def unlink(self, path: str) -> None:
        self._file(path)
        folder, name = self._entry_of(path)
        folder.drop(name)

    def rename(self, source: str, target: str) -> None:
        file = self._file(source)
        folder, name = self._entry_of(target)
        folder.put(name, file)
        before, old = self._entry_of(source)
        before.drop(old)

    # --- content

    def create(self, path: str) -> int:
        folder, name = self._entry_of(path)
        if name in folder.entries:
            raise _error(errno.EEXIST, path)
        self._numbers += 1
        folder.put(name, _File(self._numbers))
        return self.open_write(path)

    def open_write(self, path: str) -> int:
        file = self._file(path)
        self._numbers += 1
        self._fds[self._numbers] = file
        return self._numbers

    open_read = open_write

    def write_at(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        file = self._opened(fd)
        fits = len(data) if self.room == UNLIMITED else self._fitting(file, len(data), offset)
        if data and not fits:
            raise _error(errno.ENOSPC, f"fd {fd}")
        file.data.extend(b"\0" * (offset - len(file.data)))
        file.data[offset : offset + fits] = bytes(data[:fits])
        self._numbers += 1
        file.modified = self._numbers
        return fits

    def _fitting(self, file: _File, size: int, offset: int) -> int:
        return max(0, min(size, self.room - self._used() + max(0, len(file.data) - offset)))

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        return bytes(self._opened(fd).data[offset : offset + size])

    def size(self, fd: int) -> int:
        return len(self._opened(fd).data)

    def truncate(self, fd: int, size: int) -> None:
        del self._opened(fd).data[size:]

    def sync_data(self, fd: int) -> None:
        file = self._opened(fd)
        file.synced = bytes(file.data)

    sync = sync_data

    def close(self, fd: int) -> None:
        self._opened(fd)
        del self._fds[fd]

    def free_bytes(self, path: str) -> int:
        return self.room - self._used()

    def kind(self, path: str) -> str:
        return "tmpfs"

    # --- finding things

    def flip_bit(self, path: str, bit: int) -> None:
        """Damage a file, synced content and all. ``bit`` counts from its start and wraps around."""
        file = self._file(path)
        if file.data:
            index = bit // 8 % len(file.data)
            file.data[index] ^= 1 << bit % 8
            file.synced = bytes(file.data[: len(file.synced)])

    def paths(self, below: str) -> list[str]:
        """Every file below a folder, in order."""
        node = self._node(below)
        if isinstance(node, _File):
            return [below]
        return [path for name in sorted(node.entries) for path in self.paths(f"{below}/{name}")]

    def open_files(self) -> int:
        """How many file descriptors are open: a test may check that none leaks."""
        return len(self._fds)

    def _used(self) -> int:
        return sum(len(file.data) for file in {file.inode: file for file in self._files()}.values())

    def _opened(self, fd: int) -> _File:
        file = self._fds.get(fd)
        if file is None:
            raise _error(errno.EBADF, f"fd {fd}")
        return file

    def _node(self, path: str) -> _File | _Folder:
        parent, _, name = path.rpartition("/")
        if not name:
            return self._folder(parent) if parent else self._root
        node = self._folder(parent).entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _folder(self, path: str) -> _Folder:
        known = self._known.get(path)
        if known is not None:
            return known
        node = self._node(path)
        if not isinstance(node, _Folder):
            raise _error(errno.ENOTDIR, path)
        self._known[path] = node
        return node

    def _file(self, path: str) -> _File:
        node = self._node(path)
        if not isinstance(node, _File):
            raise _error(errno.EISDIR, path)
        return node

    def _entry_of(self, path: str) -> tuple[_Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name


def _written_over(synced: bytes, written: bytes, choose: Choice) -> bytes:
    """The content after a power cut of bytes that were written over synced ones: some of the first
    ones are new."""
    if synced[: len(written)] == written:
        return synced
    changed = [at for at, (old, new) in enumerate(zip(synced, written, strict=False)) if old != new]
    length = changed[0] + choose(changed[-1] + 1 - changed[0])
    return written[:length] + synced[length:]


def _error(number: int, where: str) -> OSError:
    return OSError(number, errno.errorcode[number], where)
