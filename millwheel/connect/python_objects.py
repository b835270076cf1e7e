"""Python objects by their names in YAML: ``module:name``.

The modules of a pipeline's folder are imported under their plain names, as if Python had been
started there, so that they can import each other. One folder at a time is importable. Loading from
another folder removes the modules of the first one from ``sys.modules`` (objects made from them
live on). So two pipelines that each have a ``callbacks.py`` never see the other's.
"""

from __future__ import annotations

import importlib
import re
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from millwheel.errors import PipelineError

_MACHINERY = ("<frozen importlib", "<frozen runpy", str(importlib.__file__))


class FolderFinder(MetaPathFinder):
    """Finds modules of a pipeline's folder: for each other, and for the file that loads the names
    of a pipeline, before anything else; for all other code after everything else.

    So a file beside the pipeline that has the name of a library's module (``queue.py``,
    ``secrets.py``) is never executed in its place, and a module of an environment never takes the
    place of one that the pipeline's own code asks for. Names of the standard library are always the
    standard library's.
    """

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
        """See :class:`importlib.abc.MetaPathFinder`. A folder without ``__init__.py`` does not hide
        a package."""
        if (
            path is not None
            or fullname in sys.stdlib_module_names
            or not self._ours(sys._getframe(1))
        ):
            return None
        spec = PathFinder.find_spec(fullname, [self._folder], target)
        return spec if spec is not None and spec.loader is not None else None

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


OBJECT_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""The form ``module:name``; ``name`` may have dots (an attribute of a class)."""

_lock = threading.RLock()
_depth = [0]
"""The number of imports of the user's code in progress, one within the other. Changed with the lock
held."""


@dataclass(slots=True)
class _Owner:
    """The importable folder, the modules that were loaded before it, and the finder of the folder's
    own modules."""

    folder: str = ""
    before: frozenset[str] = frozenset()
    finder: FolderFinder | None = None


_owner = _Owner()
_imported: dict[str, tuple[int, int]] = {}
"""Python pipelines by path, with time and size of the file as it was imported."""


def load_object(name: str, folder: str) -> Any:
    """The object that ``module:name`` names. The pipeline's ``folder`` is searched first.

    Raises PipelineError with one sentence: no such module (and where it was searched for), the
    module's own error (with file and line), or no such name in it (with the names that it has).
    """
    if not OBJECT_NAME.fullmatch(name):
        raise PipelineError(
            f"{name!r} names no Python object; write module:name, such as callbacks:Detector"
        )
    module_name, _, path = name.partition(":")
    with _lock:
        module = _import(module_name, str(Path(folder).resolve()))
    value: Any = module
    for part in path.split("."):
        if not hasattr(value, part):
            raise PipelineError(_no_such_name(name, part, value, module))
        value = getattr(value, part)
    return value


def import_file(file: str) -> ModuleType:
    """Import a Python file of a pipeline; again if the file has changed since.

    Its folder becomes the importable one. Raises PipelineError with the file and line of an error
    in it.
    """
    path = Path(file).resolve()
    try:
        stat = path.stat()
    except OSError as ex:
        raise PipelineError(
            f"{file}: the pipeline file cannot be read ({ex.strerror}); give the path of a file"
        ) from None
    if not path.stem.isidentifier():
        raise PipelineError(
            f"{file}: Python cannot import a file of this name; use letters, digits and _, as in"
            " visits.py"
        )
    with _lock:
        folder, stamp = str(path.parent), (stat.st_mtime_ns, stat.st_size)
        _own(folder)
        _refuse_hiding(path.stem, folder)
        if _imported.get(str(path)) != stamp:
            sys.modules.pop(path.stem, None)
            importlib.invalidate_caches()
        _depth[0] += 1
        try:
            module = importlib.import_module(path.stem)
        except KeyboardInterrupt:
            raise
        # any exception of the user's module while it is imported, SystemExit included
        except BaseException as ex:
            raise PipelineError(_file_failure(file, path, ex)) from ex
        finally:
            _depth[0] -= 1
        _imported[str(path)] = stamp
    return module


def forget_modules() -> None:
    """Import everything of the importable folder again at its next use: its files may have
    changed."""
    with _lock:
        _forget()
        _owner.folder = ""
        _imported.clear()
        importlib.invalidate_caches()


def importing() -> bool:
    """Whether a Python file of a pipeline is being imported."""
    return _depth[0] > 0


def _file_failure(file: str, path: Path, ex: BaseException) -> str:
    """``visits.py:5: ValueError: …``, with the innermost line of the user's code."""
    if isinstance(ex, SyntaxError):
        return (
            f"{file if ex.filename == str(path) else ex.filename}:{ex.lineno}: this is not Python:"
            f" {ex.msg}"
        )
    folder = path.parent
    frames = [
        frame
        for frame in traceback.extract_tb(ex.__traceback__)
        if Path(frame.filename).is_relative_to(folder)
    ]
    where = file
    if frames:
        last = frames[-1]
        where = f"{file if last.filename == str(path) else last.filename}:{last.lineno}"
    text = str(ex) if isinstance(ex, (PipelineError, ValueError)) else f"{type(ex).__name__}: {ex}"
    return f"{where}: {text}{_hint(ex)}"


def _import(module_name: str, folder: str) -> ModuleType:
    _own(folder)
    _refuse_hiding(module_name.partition(".")[0], folder)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    # any exception of the user's module while it is imported, SystemExit included
    except BaseException as ex:
        raise PipelineError(_import_failure(module_name, folder, ex)) from ex


def _own(folder: str) -> None:
    """Make ``folder`` the importable one."""
    if _owner.folder == folder:
        return
    _forget()
    _owner.folder, _owner.before = folder, frozenset(sys.modules)
    _owner.finder = FolderFinder(folder, _own.__code__.co_filename)
    _owner.finder.install()


def _forget() -> None:
    """Make the folder no longer importable, and remove its modules from ``sys.modules``."""
    if _owner.finder is not None:
        _owner.finder.remove()
        _owner.finder = None
    for name in set(sys.modules) - _owner.before:
        if _lies_in(sys.modules[name], _owner.folder):
            del sys.modules[name]


def _lies_in(module: Any, folder: str) -> bool:
    """True if a module was imported from the folder itself, not from an environment below it."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and lies_in(file, folder)


def _refuse_hiding(top: str, folder: str) -> None:
    """Refuses a file with the name of another module: one of the two would hide the other."""
    here = Path(folder)
    if not ((here / f"{top}.py").is_file() or (here / top / "__init__.py").is_file()):
        return
    loaded = sys.modules.get(top)
    elsewhere = loaded is not None and not _lies_in(loaded, folder)
    if top in sys.stdlib_module_names or elsewhere:
        raise PipelineError(
            f"{here / top} has the name of another module that Python has loaded already; rename"
            " the file"
        )


def _import_failure(module_name: str, folder: str, ex: BaseException) -> str:
    top = module_name.partition(".")[0]
    if isinstance(ex, ModuleNotFoundError) and ex.name in (module_name, top):
        there = ", ".join(sorted(path.stem for path in Path(folder).glob("*.py"))[:20]) or "none"
        return (
            f"there is no module {module_name!r}: neither {module_name.replace('.', '/')}.py beside"
            f" the pipeline (modules there: {there}) nor an installed package"
        )
    cause = f"{type(ex).__name__}: {ex}"
    if isinstance(ex, SyntaxError):
        cause = f"SyntaxError: {ex.msg} in {Path(ex.filename or '?').name}, line {ex.lineno}"
    elif where := _line_of(ex, folder):
        cause = f"{cause} ({where})"
    return f"importing {module_name!r} failed with {cause}{_hint(ex)}"


def _hint(ex: BaseException) -> str:
    """A hint for code that does not find a module or a file."""
    if isinstance(ex, ModuleNotFoundError) and (ex.name or "").startswith("millwheel."):
        return (
            "; this version of MillWheel has no such module. If another version packed this code,"
            " run the program that defines the pipeline again; code of yours imports from"
            " millwheel, and from its modules client, errors, plugins and testing"
        )
    if isinstance(ex, ModuleNotFoundError):
        return (
            "; install it where the workers run, or, if it lies beside the pipeline and is not"
            " imported by a plain `import`, declare its file (ship: [FILE])"
        )
    return missing_file_hint(ex)


def _line_of(ex: BaseException, folder: str) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(ex.__traceback__)
        if Path(frame.filename).is_relative_to(folder)
    ]
    return (
        f"{Path(frames[-1].filename).relative_to(folder)}, line {frames[-1].lineno}"
        if frames
        else ""
    )


def _no_such_name(name: str, part: str, holder: Any, module: ModuleType) -> str:
    own = [
        each
        for each, thing in vars(holder).items()
        if not each.startswith("_") and getattr(thing, "__module__", None) == module.__name__
    ]
    where = f" ({module.__file__})" if getattr(module, "__file__", None) else ""
    there = ", ".join(sorted(own)[:30]) or "nothing"
    return f"module {module.__name__!r}{where} has no {part!r} for {name!r}; it defines {there}"


_COPY_MARKS = ("origin", "params.json")
"""Files that a root adds beside its copy of a pipeline."""


def missing_file_hint(ex: BaseException) -> str:
    """A hint for an error about a file that the copy of a pipeline lacks; "" for other errors."""
    if not isinstance(ex, FileNotFoundError) or not isinstance(ex.filename, str):
        return ""
    name = ex.filename
    for folder in Path(name).absolute().parents:
        if all((folder / mark).is_file() for mark in _COPY_MARKS):
            relative = Path(name).absolute().relative_to(folder)
            return (
                "; workers get only the Python files that the pipeline imports and the files that"
                f" it declares: if {relative} is in its folder, declare it (ship: [{relative}])"
            )
    return ""
