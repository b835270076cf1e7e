"""The modules of the package that people wrote, parsed once for all rules about them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.rooms import GENERATED, HOUSE, PACKAGE

SERVICES = {"injector": "control", "master": "control", "workers": "engine"}
"""The services by their packages, and the layers of these."""


@cache
def sources() -> tuple[Path, ...]:
    """Every module of the package that people wrote."""
    return tuple(path for path in sorted(PACKAGE.rglob("*.py")) if GENERATED not in path.parents)


def name_of(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module, in the order of :func:`ast.walk`."""
    return tuple(ast.walk(tree_of(path)))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Full dotted names of what a module imports, wherever in it; types only counts as well."""
    package, found = path.relative_to(HOUSE).parent.parts, list[str]()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join([*package[: len(package) + 1 - node.level], node.module or ""])
                if node.level
                else node.module
            )
            found += (f"{base}.{alias.name}" for alias in node.names)
    return tuple(found)


def offences(rule: object, paths: Iterator[Path] | tuple[Path, ...]) -> list[str]:
    """``module imports name`` for each import for which ``rule(path, name)`` holds."""
    assert callable(rule)
    return [
        f"{name_of(path)} imports {name}"
        for path in paths
        for name in imports_of(path)
        if rule(path, name)
    ]
