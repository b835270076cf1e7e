"""Modules under the paths that they had before the package stood in layers:
``millwheel.sinks.base`` is ``millwheel.connect.sinks.base``. So packages of connectors, and code
that is packed in a root, go on."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

_LAYERS = {
    "python": "fluent handles",
    "tools": "chaos cli dev explain gateway testing ui",
    "engine": "letters queries workers",
    "control": "coordinator injector master roots savepoints",
    "language": "schema spec",
    "connect": "connectors formats lookups options plug_ins python_objects sinks sources",
    "adapters": "pb ports processes redaction secret_values terminal waits",
}
_NOW = {
    f"millwheel.{name}": f"millwheel.{layer}.{name}"
    for layer, names in _LAYERS.items()
    for name in names.split()
}

_PUBLIC = ("millwheel.testing", "millwheel.testing.contracts")  # they are still there, in names


class EarlierPaths(MetaPathFinder, Loader):
    """Before all other finders, which would load a module of a package with two names twice."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See the base class."""
        if ".".join(name.split(".")[:2]) not in _NOW or name in _PUBLIC:
            return None
        spec = importlib.util.find_spec(_now(name))
        if spec is None:
            return ModuleSpec(name, self)  # and refused by this name
        package = spec.submodule_search_locations is not None
        return ModuleSpec(name, self, origin=spec.origin, is_package=package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, under its earlier name too."""
        now = _now(spec.name)
        try:
            module = importlib.import_module(now)
        except ModuleNotFoundError as ex:
            if not now.startswith(ex.name or now):
                raise  # of something else, which it imports
            raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name) from None
        warnings.warn(f"{spec.name} is {now}", DeprecationWarning, stacklevel=2)
        self._specs[now] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed: it only keeps its own specification."""
        module.__spec__ = self._specs.pop(module.__name__)

    def get_code(self, name: str) -> CodeType | None:
        """The code that ``python -m`` runs: ``python -m millwheel.workers`` is a worker."""
        spec = importlib.util.find_spec(_now(name))
        if spec is None or not isinstance(spec.loader, InspectLoader):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return spec.loader.get_code(_now(name))


def _now(name: str) -> str:
    top, first, *rest = name.split(".")
    return ".".join([_NOW[f"{top}.{first}"], *rest])


def install() -> None:
    """Let earlier paths lead to their modules."""
    if not any(isinstance(each, EarlierPaths) for each in sys.meta_path):
        sys.meta_path.insert(0, EarlierPaths())
