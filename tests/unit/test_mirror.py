"""Each module with logic has its test where one looks for it: ``millwheel/a/b.py`` in
``tests/unit/a/test_b.py``, or, if that would be short, in a neighbour under a line ``# b.py``."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests import rooms

UNIT = Path(__file__).resolve().parent


def has_logic(tree: ast.AST) -> bool:
    """Whether a function does more than to return a constant: declarations, contracts and events
    have none."""
    functions = (
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return any(
        not _says_nothing(statement) for function in functions for statement in function.body
    )


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Return):
        return (
            statement.value is None
            or isinstance(statement.value, ast.Constant)
            or ast.unparse(statement.value) == "[]"
        )
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


@cache
def headings(folder: Path) -> set[str]:
    """The modules whose tests stand in the files of others."""
    texts = (path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))
    return {name for text in texts for name in re.findall(r"^# (\w+\.py)\b", text, re.MULTILINE)}


def unmirrored() -> set[str]:
    """Modules with logic and without tests of their own. A package's and a command's entry have
    none."""
    found = set()
    for path in rooms.modules().values():
        index = path.relative_to(rooms.PACKAGE)
        mirror = UNIT / index.parent / f"test_{index.name}"
        entry = path.name in ("__init__.py", "__main__.py")
        if (
            not entry
            and not mirror.exists()
            and path.name not in headings(mirror.parent)
            and has_logic(ast.parse(path.read_text(encoding="utf-8")))
        ):
            found.add(index.as_posix())
    return found


def test_each_module_with_logic_has_its_test_where_one_looks_for_it() -> None:
    missing = sorted(unmirrored())
    assert not missing, f"write tests/unit/ROOM/test_MODULE.py for {', '.join(missing)}"


@pytest.mark.parametrize(
    ("code", "logic"),
    [
        ("def f():\n    return 1", False),
        ("class A:\n    def f(self): ...", False),
        ("def f(x):\n    return x + 1", True),
        ("def f(x):\n    'Why.'\n    if x: return 1", True),
    ],
)
def test_what_only_declares_has_no_logic(code: str, logic: bool) -> None:
    assert has_logic(ast.parse(code)) == logic
