"""User code by name: classes, functions and key extractors, from the pipeline's own folder or what is installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from millwheel.core.keys import Key
from millwheel.core.spec import KeyKind, KeySpec
from millwheel.errors import RecordError, SetupError


def load_object(name: str, folder: str) -> Any:
    """What ``module:name`` refers to. Modules in ``folder`` come before installed ones.

    Raises SetupError saying whether the module, or the name in it, is missing, and what it does have.
    """
    module_name, _, attribute = name.partition(":")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as ex:
        if ex.name != module_name.split(".")[0] and ex.name != module_name:
            raise SetupError(f"{name}: {module_name} imports {ex.name!r}, which is not installed here") from ex
        raise SetupError(
            f"{name}: no module {module_name!r}, neither in the pipeline's folder ({folder}) nor installed"
        ) from ex
    except Exception as ex:  # the user's module runs code when imported
        raise SetupError(f"{name}: importing {module_name} failed: {type(ex).__name__}: {ex}") from ex
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            there = ", ".join(sorted(entry for entry in vars(module) if not entry.startswith("_")))
            raise SetupError(f"{name}: {module_name} has no {attribute!r}; it has: {there}")
        found = getattr(found, part)
    return found


def load_extractor(key: KeySpec, folder: str) -> Callable[[Any], Key]:
    """The function that takes a consumer's key from a value. RecordError when a field is missing."""
    if key.kind is KeyKind.FUNCTION:
        function: Callable[[Any], Key] = load_object(key.names[0], folder)
        return function
    if key.kind is KeyKind.FIELD:
        return field_reader(key.names[0])
    readers = [field_reader(name) for name in key.names]
    return lambda value: tuple([read(value) for read in readers])


def field_reader(name: str) -> Callable[[Any], Any]:
    """Reads one field of a dict or attribute of an object."""

    def read(value: Any) -> Any:
        try:
            return value[name] if isinstance(value, dict) else getattr(value, name)
        except (KeyError, AttributeError):
            raise RecordError(f"missing key: the record has no field {name!r}") from None

    return read
