"""A root that is a folder: names are claimed by hard links, files that never change are shared by
them."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

from millwheel.adapters.spaces.durable import (
    copy_file,
    create_if_absent,
    make_dirs,
    read_whole,
    sync_file,
)
from millwheel.adapters.spaces.files import Files, PosixFiles

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class FolderSpace:
    """:class:`millwheel.adapters.spaces.object_space.ObjectSpace` on a directory that all processes
    share."""

    def __init__(self, root: str, files: Files | None = None) -> None:
        self.root = str(Path(root).absolute())
        self.files = files or PosixFiles()

    def kind(self) -> str:
        return self.files.kind(self.root)

    def prepare(self, folder: str) -> None:
        make_dirs(self.files, folder)

    def claim(self, folder: str) -> bool:
        ours = True
        try:
            self.files.make_dir(folder)
        except FileExistsError:
            ours = False
        # Also for a folder of another process, which may have died before the name was durable: the
        # contents, a seal for example, must not go with it.
        self.files.sync_dir(folder.rpartition("/")[0])
        return ours

    def claimed(self, folder: str) -> bool:
        return self.files.exists(folder)

    def names(self, folder: str) -> list[str]:
        return self.files.list_dir(folder) if self.files.exists(folder) else []

    def settle(self, folder: str) -> None:
        self.files.sync_dir(folder)

    def create(self, key: str, data: bytes, staged: str = "") -> bool:
        folder, _, name = key.rpartition("/")
        return create_if_absent(self.files, folder, name, data, staged)

    def get(self, key: str) -> bytes:
        return read_whole(self.files, key)

    def exists(self, key: str) -> bool:
        return self.files.exists(key)

    def delete(self, key: str) -> None:
        with suppress(FileNotFoundError):
            self.files.unlink(key)

    def put_file(self, source: str, key: str, *, immutable: bool) -> str:
        if immutable and self._linked(source, key):
            # Its writer need not have synced what the link shares, and a manifest will name it.
            sync_file(self.files, key)
        else:
            copy_file(self.files, source, key)
        return key

    def share_file(self, key: str, target: str) -> bool:
        self._must_be(key)
        return self._linked(key, target)

    def fetch_file(self, key: str, target: str) -> None:
        self._must_be(key)
        # Scratch: after a power cut it is fetched again.
        copy_file(self.files, key, target, durable=False)

    def _must_be(self, key: str) -> None:
        if not self.files.exists(key):
            raise FileNotFoundError(errno.ENOENT, "it is missing", key)

    def _linked(self, source: str, target: str) -> bool:
        try:
            self.files.link(source, target)
        except OSError as ex:
            if ex.errno in _NO_LINKS:
                return False
            raise
        return True
