"""The program of a run, beyond the parts that its state depends on: all settings of the pipeline,
and the code that it names.

A later run on a complete root compares it, because results of another program do not count. Only
code that the pipeline names is compared, with the parts of the same modules that it uses: a line
elsewhere in a script changes nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import msgspec

from millwheel.connect.python_objects import OBJECT_NAME, load_object
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import PipelineError
from millwheel.language.spec.ship import files_to_ship

_PLACES = frozenset({"where", "folder", "file", "ship"})
"""Places in files, which decide nothing."""
_FORM, _FORM_NUMBER = "form", "2"
"""How settings are noted. Digests of another form cannot be compared."""
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def program_of(spec: PipelineSpec) -> dict[str, str]:
    """A digest for each part: its settings, each declared or imported file, each function and class
    that it names."""
    settings = _plain(spec)
    digests = {
        _FORM: _FORM_NUMBER,
        "its settings": _digest(
            msgspec.json.encode(settings, enc_hook=_kind, order="deterministic")
        ),
    }
    for path in files_to_ship(spec):
        # its bytes differ from process to process; the objects in it are named
        if path.suffix == ".pickle":
            continue
        digests[str(path.relative_to(spec.folder))] = _digest(path.read_bytes())
    for name in sorted(set(_names(settings))):
        try:
            thing = load_object(name, spec.folder)
        except PipelineError:
            continue
        # Another Python compiles the same code differently.
        digests[f"{name} in Python {_PYTHON}"] = _digest("\n".join(_code(thing, set())).encode())
    return digests


def changed_parts(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The parts of a program that differ, by name."""
    if old.get(_FORM) != new.get(_FORM):
        return ["the form in which another version noted its settings"]
    return [name for name in new if name in old and old[name] != new[name]] + [
        name for name in new if name not in old and " in Python " not in name
    ]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value) if each.name not in _PLACES]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return value.value if isinstance(value, Enum) else value


def _kind(value: Any) -> str:
    """Objects in options, secrets among them, by their kind alone."""
    return type(value).__qualname__


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if OBJECT_NAME.fullmatch(value):
            yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _names(each)


def _code(thing: Any, seen: set[int]) -> Iterator[str]:
    """The code of a function or class of the user's, and of those that it uses, as text."""
    if id(thing) in seen or not _is_own(thing):
        return
    seen.add(id(thing))
    if isinstance(thing, type):
        for name, part in vars(thing).items():
            inner = part.__func__ if isinstance(part, (staticmethod, classmethod)) else part
            if isinstance(inner, property):
                inner = inner.fget
            yield f"{name}:"
            yield from _code(inner, seen)
        for base in thing.__bases__:
            yield from _code(base, seen)
    elif isinstance(thing, FunctionType):
        yield repr(thing.__defaults__) if _is_literal(thing.__defaults__) else ""
        yield from _compiled(thing.__code__)
        for cell in thing.__closure__ or ():
            yield repr(cell.cell_contents) if _is_literal(cell.cell_contents) else ""
            yield from _code(cell.cell_contents, seen)
        for name in _used(thing.__code__):
            used = thing.__globals__.get(name)
            yield f"{name} = {used!r}" if _is_literal(used) else name
            yield from _code(used, seen)


def _compiled(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _compiled(constant)
        else:
            yield repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant)


def _used(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used(constant)


def _is_own(thing: Any) -> bool:
    if not isinstance(thing, (type, FunctionType)):
        return False
    module = sys.modules.get(thing.__module__ or "")
    file = (
        module.__file__ if isinstance(module, ModuleType) and "__file__" in vars(module) else None
    )
    top = (thing.__module__ or "").partition(".")[0]
    installed = file is not None and "site-packages" in Path(file).parts
    return (
        not installed and top not in sys.stdlib_module_names and top != "millwheel"
    ) or top == "__main__"


def _is_literal(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_literal, value))
    return isinstance(value, (int, float, str, bytes, bool, type(None)))
