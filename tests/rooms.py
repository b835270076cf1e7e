"""The rooms of the house: packages of ``millwheel``, what is in them, which imports which, and
their layers.

    python -m tests.rooms           # print what each room is for, and its files
    python -m tests.rooms --write   # write the layers into ARCHITECTURE.md
    python -m tests.rooms --arrows  # print which room imports which

A module that lies beside rooms (``workers/events.py`` beside ``workers/shard/``) is a room of its
own here: otherwise a package and what is in it would import each other by definition.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
PACKAGE = HOUSE / "millwheel"
GENERATED = PACKAGE / "adapters" / "pb"
PAGE = HOUSE / "ARCHITECTURE.md"
LAYERS = (
    "python", "tools", "launch", "engine", "control", "language", "connect", "api", "adapters",
    "core", "errors"
)  # fmt: skip
"""What stands at the top of the package, from above: each imports those after it only."""
PUBLIC = ("client", "plugins", "testing")
"""Modules for users beside the layers, above all of them: names, and no code."""
PLACE = "<!-- map of rooms -->"
"""Where ARCHITECTURE.md has the map in the docs site, and in the docs site alone."""
_TABLE = "<!-- layers -->", "<!-- end of the layers -->"


@cache
def modules() -> dict[str, Path]:
    """Dotted name to file, for everything that people wrote. A package is its ``__init__.py``."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if GENERATED not in path.parents:
            parts = path.relative_to(HOUSE).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def rooms() -> dict[Path, tuple[str, ...]]:
    """Folder to the names of its modules, without ``__init__``."""
    found: dict[Path, list[str]] = defaultdict(list)
    for path in modules().values():
        found[path.parent] += [path.name] if path.name != "__init__.py" else []
    return {folder: tuple(names) for folder, names in sorted(found.items())}


@cache
def room_of(module: str) -> str:
    path = modules()[module]
    beside_rooms = any(other != path.parent and path.parent in other.parents for other in rooms())
    return module if beside_rooms or path.name == "__init__.py" else module.rpartition(".")[0]


@cache
def arrows() -> dict[str, frozenset[str]]:
    """Room to the rooms that it imports, for types included."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in modules().items():
        for name in _imported(path):
            if room_of(name) != room_of(module):
                found[room_of(module)].add(room_of(name))
    return {room: frozenset(others) for room, others in found.items()}


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules() else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules().keys()


def layer_of(module: str) -> str:
    """The name at the top of the package that a module belongs to; "" for the package itself and
    its command."""
    name = module.split(".")[1] if "." in module else ""
    return "" if name == "__main__" else name


def upward() -> list[str]:
    """``module imports name`` for each import that leads from a layer to one above it, or to what
    stands above all."""
    height = {name: -number for number, name in enumerate(LAYERS)}
    return [
        f"{module} imports {name}"
        for module, path in modules().items()
        if layer_of(module) in height
        for name in sorted(_imported(path))
        if height.get(layer_of(name), 1) > height[layer_of(module)]
    ]


def circle() -> list[str]:
    """Rooms that import each other in a circle, if there are any."""
    try:
        TopologicalSorter(arrows()).prepare()
    except CycleError as ex:
        return list(ex.args[1])
    return []


def table() -> str:
    """The map of rooms, as the docs site has it: what lies in each shows the folder itself."""
    lines = ["| room | what it is for |", "|---|---|"]
    for folder in rooms():
        says = _summary(folder / "__init__.py")
        lines.append(f"| `{folder.relative_to(HOUSE).as_posix()}` | {says} |")
    return "\n".join(lines)


def files() -> str:
    """What each room is for, and the files in it."""
    return "\n".join(
        f"{folder.relative_to(HOUSE).as_posix()}: {_summary(folder / '__init__.py')}\n   "
        + " ".join(name.removesuffix(".py") for name in names)
        for folder, names in rooms().items()
    )


def layers() -> str:
    """The table of the layers, as ARCHITECTURE.md has it."""
    lines = ["| layer | what it is for |", "|---|---|"]
    for name in LAYERS:
        folder = PACKAGE / name
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        shown = f"`{name}/`" if folder.is_dir() else f"`{name}.py`"
        lines.append(f"| {shown} | {_summary(file)} |")
    return "\n".join(lines)


def _summary(file: Path) -> str:
    says = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(says.split("\n\n")[0].split())


def page() -> str:
    """ARCHITECTURE.md with the layers as they are."""
    text = PAGE.read_text(encoding="utf-8")
    begin, end = _TABLE
    made = f"{begin}\n\n{layers()}\n\n{end}"
    return re.sub(f"{begin}.*{end}", lambda _: made, text, flags=re.DOTALL)


def main() -> None:
    if "--arrows" in sys.argv:
        for room, others in sorted(arrows().items()):
            print(room, "->", *sorted(others))
    elif "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(files())


if __name__ == "__main__":
    main()
