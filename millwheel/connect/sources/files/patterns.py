"""The files that match paths and globs, each once.

A folder or file may have several names by symbolic links, and links may lead back to a folder
above. So a glob goes into each folder once, and a file that has a name without links counts under
that one.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from millwheel.adapters.spaces.object_address import local_path

_ANY_DEPTH = "**"
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


class FilePattern:
    """A path as a pipeline has it, relative to the ``folder`` of the pipeline, whose own name may
    have any letters."""

    def __init__(self, folder: str, path: str) -> None:
        self._whole = os.path.abspath(os.path.join(folder, local_path(path)))
        base = os.path.abspath(folder)
        rest = os.path.relpath(self._whole, base)
        outside = os.path.isabs(local_path(path)) or rest.split(os.sep)[0] in (os.curdir, os.pardir)
        self._base, self._rest = (os.sep, self._whole.lstrip(os.sep)) if outside else (base, rest)

    def __str__(self) -> str:
        return self._whole

    @property
    def fixed_folder(self) -> str:
        """The folder above the first wildcard, or above the file or folder that it names. It does
        not depend on existing files, so names stay the same when more appear."""
        parts = self._rest.split(os.sep)
        fixed = next(
            (number for number, part in enumerate(parts[:-1]) if glob.has_magic(part)),
            len(parts) - 1,
        )
        return os.path.join(self._base, *parts[:fixed])

    def matches(self) -> list[str]:
        """The paths that match; of a folder, the visible ones in it (no ``_SUCCESS`` either). A
        file or folder of exactly this name matches, too."""
        if os.path.isdir(self._whole):
            return [
                os.path.join(self._whole, name)
                for name in os.listdir(self._whole)
                if name[0] not in "._"
            ]
        paths, parts = [self._base], self._rest.split(os.sep)
        for part in [*parts, "*"] if parts[-1] == _ANY_DEPTH else parts:
            paths = list(_next(paths, part))
        return paths

    def fits(self, path: str) -> bool:
        """Whether a file with this path could match, whether or not it exists."""
        folder, name = os.path.split(path)
        if path == self._whole or (folder == self._whole and name[:1] not in ("", ".", "_")):
            return True
        pattern = self._rest.split(os.sep)
        if pattern[-1] == _ANY_DEPTH:
            pattern = [*pattern, "*"]
        reached = _past_any({0}, pattern)
        for part in os.path.relpath(path, self._base).split(os.sep):
            steps = {
                at + (pattern[at] != _ANY_DEPTH) for at in reached if _is_part(part, pattern, at)
            }
            reached = _past_any(steps, pattern)
        return len(pattern) in reached


def _is_part(part: str, pattern: Sequence[str], at: int) -> bool:
    """Whether a name could be that of a folder or file at one part of a pattern."""
    if at == len(pattern):
        return False
    expected = pattern[at]
    visible = part[0] != "." or expected[0] == "."
    if expected == _ANY_DEPTH:
        return visible
    return part == expected or (
        glob.has_magic(expected) and visible and fnmatch.fnmatchcase(part, expected)
    )


def _past_any(reached: set[int], pattern: Sequence[str]) -> set[int]:
    """``**`` may stand for no folder."""
    indexes = set(reached)
    for at in range(len(pattern)):
        if at in indexes and pattern[at] == _ANY_DEPTH:
            indexes.add(at + 1)
    return indexes


def each_once(paths: Iterable[str]) -> set[str]:
    """The paths without those that are another name, by a symbolic link, of a file among them."""
    names: dict[str, str] = {}
    folders: dict[str, str] = {}  # resolved once each, not once for each of its files
    for path in sorted(paths):
        folder, name = os.path.split(path)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        real = (
            os.path.realpath(path) if os.path.islink(path) else os.path.join(folders[folder], name)
        )
        if real not in names or path == real:
            names[real] = path
    return set(names.values())


def name_of(path: str, top: str) -> str:
    """The name of a partition: the path below ``top``, with bytes that are not UTF-8 as
    ``\\xff``."""
    return os.fsencode(os.path.relpath(path, top)).decode("utf-8", "backslashreplace")


def path_of(name: str, top: str) -> str:
    """The path of a partition."""
    path = os.path.normpath(os.path.join(top, name))
    if os.path.lexists(path) or "\\x" not in name:
        return path
    raw = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), name.encode())
    return os.path.normpath(os.path.join(top, os.fsdecode(raw)))


def _next(folders: Iterable[str], part: str) -> Iterator[str]:
    """The paths in some folders that match one part of a pattern."""
    for folder in folders:
        if part == _ANY_DEPTH:
            yield from _below(folder)
            continue
        if os.path.lexists(path := os.path.join(folder, part)):
            yield path
        if glob.has_magic(part):
            matches = re.compile(fnmatch.translate(part)).match
            for entry in _entries(folder):
                if (
                    entry.name != part
                    and matches(entry.name)
                    and (part[0] == "." or entry.name[0] != ".")
                ):
                    yield entry.path


def _below(folder: str) -> Iterator[str]:
    """The folder, and the visible ones below it at any depth, each once: first those that no link
    leads to."""
    seen: set[str] = set()
    waiting, linked = [folder], list[str]()
    while waiting or linked:
        path = waiting.pop() if waiting else linked.pop(0)
        if (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        yield path
        for entry in _entries(path):
            if entry.name[0] != "." and os.path.isdir(entry.path):  # a link may lead to itself
                (linked if entry.is_symlink() else waiting).append(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    # no folder, or one that may not be read: as with a shell's globs, nothing matches there
    except OSError:
        return []


def dealt(sizes: Mapping[str, int]) -> list[str]:
    """Names in an order in which each half, each half of a half, and so on, is about as large as
    the other."""
    if len(sizes) < 2:
        return list(sizes)
    halves: tuple[dict[str, int], dict[str, int]] = {}, {}
    room = (len(sizes) + 1) // 2
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        half = min(
            (half for half in halves if len(half) < room), key=lambda half: sum(half.values())
        )
        half[name] = sizes[name]
    return [name for half in sorted(halves, key=len) for name in dealt(half)]
