"""Finds modules of a pipeline's folder: for each other before anything else, for all other code after everything else.

So a file beside the pipeline that has the name of a library's module (``queue.py``, ``secrets.py``) is never executed
in its place, and a module of an environment never takes the place of one that the pipeline's own code asks for. Names
of the standard library are always the standard library's.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType

_MACHINERY = ("<frozen importlib", "<frozen runpy", str(importlib.__file__))


class FolderFinder(MetaPathFinder):
    """Finds modules of a folder for code of that folder, and for the file that loads what a pipeline names."""

    def __init__(self, folder: str, loader: str) -> None:
        self._folder = folder
        self._loader = loader
        self._listed = folder in sys.path

    def install(self) -> None:
        """Make the folder importable."""
        sys.meta_path.insert(0, self)
        if not self._listed:
            sys.path.append(self._folder)

    def remove(self) -> None:
        """Undo :meth:`install`. Modules that were imported stay."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if not self._listed and self._folder in sys.path:
            sys.path.remove(self._folder)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`. A folder without ``__init__.py`` does not hide a package."""
        if path is not None or fullname in sys.stdlib_module_names or not self._ours(sys._getframe(1)):
            return None
        found = PathFinder.find_spec(fullname, [self._folder], target)
        return found if found is not None and found.loader is not None else None

    def _ours(self, frame: FrameType | None) -> bool:
        """Whether the code that imports is the pipeline's own."""
        while frame is not None and frame.f_code.co_filename.startswith(_MACHINERY):
            frame = frame.f_back
        file = "" if frame is None else frame.f_code.co_filename
        return file == self._loader or lies_in(file, self._folder)


def lies_in(file: str, folder: str) -> bool:
    """True if a file belongs to the folder itself, not to an environment below it."""
    path = Path(file)
    return path.is_relative_to(folder) and "site-packages" not in path.parts
