"""The functions of expressions, as docs/expressions.md lists them: each says of itself what it
gives.

python -m tests.function_tables           # print them
python -m tests.function_tables --write   # write them into docs/expressions.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from millwheel.core.expressions.declaration import Function, Nulls
from millwheel.core.expressions.functions import FAMILIES

PAGE = Path(__file__).parents[1] / "docs" / "expressions.md"
_BEGIN, _END = "<!-- functions -->", "<!-- end of functions -->"
_HEAD = "| function | result | examples |\n|---|---|---|\n"


def tables() -> str:
    """The functions with a rule of their own, then a table for each family."""
    every = [function for functions in FAMILIES.values() for function in functions.values()]
    rules = (
        ("Null is a value like others for", [f for f in every if f.nulls is Nulls.TAKEN]),
        ("Record by record alone:", [f for f in every if not f.columns]),
        ("Not for questions of clients:", [f for f in every if not f.bounded]),
    )
    lists = "\n".join(f"- {rule} {', '.join(map(_name, names))}." for rule, names in rules)
    return f"{lists}\n\n" + "\n\n".join(
        f"### {family}\n\n{_HEAD}" + "\n".join(map(_row, functions.values()))
        for family, functions in FAMILIES.items()
    )


def page_with(text: str) -> str:
    """The page with ``text`` as its tables."""
    page = PAGE.read_text(encoding="utf-8")
    return re.sub(
        f"{_BEGIN}.*?{_END}", lambda _: f"{_BEGIN}\n\n{text}\n\n{_END}", page, flags=re.DOTALL
    )


def _row(function: Function) -> str:
    cells = (
        f"`{function.signature}`",
        function.description,
        "<br>".join(f"`{text}` = `{_shown(value)}`" for text, value in function.examples),
    )
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"


def _name(function: Function) -> str:
    return f"`{function.signature.partition('(')[0]}`"


def _shown(value: Any) -> str:
    """A value as an expression has it."""
    constants = {None: "null", True: "true", False: "false"}
    return constants[value] if value is None or isinstance(value, bool) else repr(value)


def main() -> None:
    if "--write" in sys.argv:
        PAGE.write_text(page_with(tables()), encoding="utf-8")
    else:
        print(tables())


if __name__ == "__main__":
    main()
