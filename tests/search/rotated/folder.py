"""The followed files and the system that opens them: what is written, and how files are rotated."""

from __future__ import annotations

import errno
import gzip
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millwheel.core.model.times import SECOND

FAR = 400 * 86_400 * SECOND
"""So far behind or ahead a record may be."""


class FewFiles:
    """Stands for ``os`` in the module that opens followed files: so many may be open, and calls are
    counted."""

    def __init__(self) -> None:
        self.most = 10**6
        self.opened: dict[int, tuple[int, int]] = {}
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if not callable(found) or name == "fspath":
            return found
        self.calls[name] += 1
        return found

    def open(self, path: str, flags: int) -> int:
        self.calls["open"] += 1
        if len(self.opened) >= self.most:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        fd = os.open(path, flags)
        found = os.fstat(fd)
        self.opened[fd] = (found.st_dev, found.st_ino)
        return fd

    def close(self, fd: int) -> None:
        self.calls["close"] += 1
        del self.opened[fd]
        os.close(fd)


@dataclass
class Content:
    """What is in one file, from one truncation to the next: the numbers of its lines."""

    numbers: list[int] = field(default_factory=list)
    half: bool = False
    unseen: bool = False
    """It began with a truncation."""


class Folder:
    """The followed files and what became of them. ``living`` and ``old`` are paths with their
    contents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.living: dict[str, Content] = {}
        self.old: dict[str, list[tuple[str, Content]]] = {}
        self.written = 0
        self.rotations = 0
        self.freed: set[int] = set()
        """Inodes that were free since: a file that has one may be taken for another by the
        oracle."""

    def write(self, name: str, kind: str, count: int) -> None:
        content = self.living.setdefault(name, Content())
        self._append(self.path / f"{name}.log", content, kind, count)

    def _append(self, path: Path, content: Content, kind: str, count: int) -> None:
        text = ""
        for _ in range(count):
            self.written += 1
            number = self.written
            text += {
                "line": f'{{"n":{number},"at":{number}}}',
                "far": f'{{"n":{number},"at":{FAR * 9}}}',
                "bad": f"bad #{number}#",
                "half": f"half #{number}#",
            }[kind]
            text += "" if kind == "half" else "\n"
            content.numbers.append(number)
        with path.open("a") as out:
            out.write((" and\n" if content.half else "") + text)
        content.half = kind == "half"

    def write_old(self, name: str) -> list[int]:
        """A writer that has not noticed the rotation."""
        if not self.old.get(name):
            return []
        path, content = self.old[name][-1]
        before = len(content.numbers)
        self._append(Path(path), content, "line", 1)
        return content.numbers[before:]

    def rename(self, name: str) -> Content | None:
        if name not in self.living:
            return None
        self.rotations += 1
        target = f"{self.path}/{name}.log.{self.rotations}"
        os.rename(self.path / f"{name}.log", target)
        content = self.living.pop(name)
        self.old.setdefault(name, []).append((target, content))
        return content

    def truncate(self, name: str) -> Content | None:
        if name not in self.living:
            return None
        os.truncate(self.path / f"{name}.log", 0)
        content, self.living[name] = self.living[name], Content()
        return content

    def delete(self, name: str) -> Content | None:
        if name not in self.living:
            return None
        self._unlink(f"{self.path}/{name}.log")
        return self.living.pop(name)

    def compress(self, name: str) -> Content | None:
        """The oldest renamed file becomes another one."""
        if not self.old.get(name):
            return None
        path, content = self.old[name].pop(0)
        Path(path + ".gz").write_bytes(gzip.compress(Path(path).read_bytes()))
        self._unlink(path)
        return content

    def _unlink(self, path: str) -> None:
        self.freed.add(os.stat(path).st_ino)
        os.unlink(path)
