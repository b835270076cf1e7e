"""The deliberate mistakes by area. Importing this package enlists them all."""

from __future__ import annotations

import importlib
import pkgutil

from tests.search.mistakes import MUTATIONS

__all__ = ["MUTATIONS"]

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
